import type Database from 'better-sqlite3';
import type { GuardSettings } from '../../domain/change/guard-rails.ts';
import { readProductChange, readStockChange } from '../../domain/change/read-change.ts';
import { type ResolveOptions, resolveChange } from '../../domain/change/resolve-change.ts';
import { type Branch, branchDirectory } from '../../domain/product/catalog-lookup.ts';
import type { Clock } from '../../domain/time/clock.ts';
import { MirrorCatalog } from '../catalog/mirror-catalog.ts';
import { type AckResult, OrderTakings } from '../outbox/order-takings.ts';
import { type Acceptance, type IntakeItem, OutboxIntake } from '../outbox/outbox-intake.ts';
import { InboxCopy } from './inbox-copy.ts';
import { type InboxBatch, type InboxChange, WIRE_NAMES } from './inbox-rows.ts';

export interface InboxReport {
  accepted: Acceptance[];
  acks: AckResult[];
  /** Rows that had been taken in before. */
  repeated: number;
}

/** Copies rows of the inbox into the outbox, each once, in one transaction of the mirror. */
export class InboxIntake {
  readonly #db: Database.Database;
  readonly #copy: InboxCopy;
  readonly #intake: OutboxIntake;
  readonly #takings: OrderTakings;
  readonly #resolving: ResolveOptions;

  constructor({ db, clock, branches }: { db: Database.Database; clock: Clock; branches: readonly Branch[] }) {
    const directory = branchDirectory(branches);
    this.#db = db;
    this.#copy = new InboxCopy({ db, clock });
    this.#intake = new OutboxIntake({ db, clock });
    this.#takings = new OrderTakings({ db, clock, branches: directory });
    this.#resolving = { catalog: new MirrorCatalog({ db, branches }), branches: directory };
  }

  /** First the counts, then the acknowledgements that say that these counts include them. */
  takeIn(batch: InboxBatch, guards: GuardSettings): InboxReport {
    return this.#db
      .transaction(() => {
        const fresh = this.#copy.take(batch);
        const items = fresh.changes.map((row) => this.#itemOf(row));
        const accepted = this.#intake.accept(items, { source: 'inbox', guards });
        // An order has no id as long as that, so there is none to acknowledge.
        const orderIds = fresh.acks.filter((ack) => ack.tooLong === null).map((ack) => ack.orderId);
        const acks = this.#takings.acknowledge(orderIds, 'inbox');
        const all = batch.changes.length + batch.acks.length;
        return { accepted, acks, repeated: all - accepted.length - acks.length };
      })
      .immediate();
  }

  /** To be called when the inbox has no row at all, nor a file that was set aside. */
  forgetAll(): void {
    this.#db.transaction(() => this.#copy.forgetAll()).immediate();
  }

  /** To be called when the inbox no longer has the rows of the batch. */
  forget(batch: InboxBatch): void {
    this.#db.transaction(() => this.#copy.forget(batch)).immediate();
  }

  /** A row that no check of the inbox could catch is kept as rejected, since nobody else would tell the POS. */
  #itemOf({ kind, value, reference, tooLong }: InboxChange): IntakeItem {
    if (tooLong !== null) {
      const { column, bytes, maxBytes } = tooLong;
      const message = `${WIRE_NAMES[column] ?? column} has ${bytes} bytes; no more than ${maxBytes} are taken.`;
      return { kind, fault: { code: 'bad-value', column, message }, value, reference };
    }
    if (kind === 'stock') {
      const reading = readStockChange(value);
      if ('fault' in reading) return { kind, fault: reading.fault, value, reference };
      const { change } = reading;
      return { kind, change, reference, resolution: resolveChange({ kind, change }, this.#resolving) };
    }
    const reading = readProductChange(value);
    if ('fault' in reading) return { kind, fault: reading.fault, value, reference };
    const { change } = reading;
    return { kind, change, reference, resolution: resolveChange({ kind, change }, this.#resolving) };
  }
}
