import type { ChangeFault } from '../change/change.ts';
import { isExactDecimal } from '../decimal.ts';
import { badText } from './raw-item.ts';

/** Only a number of this many characters can lose digits in a double, or one so small that it becomes zero. */
const LONG_NUMBER = /\d[\d.eE+-]{14,}|\d[eE]-0*\d{3}/;

type SourceReviver = (key: string, value: unknown, context: { source?: string }) => unknown;
const parseWithSource = JSON.parse as (text: string, reviver: SourceReviver) => unknown;

/** Parses JSON text; a number that would lose digits is a fault, not a silently rounded value. */
export function parseExactJson(text: string): { value: unknown } | { fault: ChangeFault } {
  let lossy: string | undefined;
  try {
    if (!LONG_NUMBER.test(text)) return { value: JSON.parse(text) as unknown };
    const value = parseWithSource(text, (_key, each, { source }) => {
      if (typeof each === 'number' && source !== undefined && !isExactDecimal(source)) lossy ??= source;
      return each;
    });
    return lossy === undefined ? { value } : badText(`The number ${lossy} cannot be kept exactly.`);
  } catch {
    const shown = text.length > 60 ? `${text.slice(0, 57)}…` : text;
    return badText(`${JSON.stringify(shown)} is not JSON.`);
  }
}
