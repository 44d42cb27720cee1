import { hash } from 'node:crypto';
import {
  ITEM_SPELLINGS,
  MODIFIER_SPELLINGS,
  OPTION_SPELLINGS,
  ORDER_SPELLINGS,
} from '../../domain/order/order-spellings.ts';
import type { ExtraSpellings } from '../../domain/order/spelling-tree.ts';

/** Raised when records are read differently than before, so that they are all read again. */
const READER_VERSION = 1;

/**
 * Names a poll's record: SHA-256 of its bytes, behind a mark of the rules by which it was read. Equal names mean
 * that reading it again would bring nothing new.
 */
export class PollDigests {
  readonly #extra: ExtraSpellings;
  #rules = '';

  constructor(extra: ExtraSpellings) {
    this.#extra = extra;
  }

  of(record: string | Uint8Array): string {
    this.#rules ||= this.#digestOfRules();
    return `${this.#rules}:${hash('sha256', record, 'hex')}`;
  }

  #digestOfRules(): string {
    const rules = [
      READER_VERSION,
      ORDER_SPELLINGS,
      ITEM_SPELLINGS,
      MODIFIER_SPELLINGS,
      OPTION_SPELLINGS,
      this.#extra,
    ];
    return hash('sha256', JSON.stringify(rules), 'hex').slice(0, 8);
  }
}
