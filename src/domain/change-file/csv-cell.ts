import type { ChangeFault } from '../change/change.ts';
import { mayBeThousands, parsePlainDecimal } from '../decimal.ts';

/** Which sign of a file's numbers is the decimal one; the other then groups thousands. */
export type DecimalSign = 'point' | 'comma';

export interface CellRules {
  delimiter: string;
  /** undefined: nobody said. */
  decimal: DecimalSign | undefined;
}

/** What a spreadsheet makes of a long number in a column of ids, its digits lost. */
const SPOILT_ID = /^\d([.,]\d+)?E\+?\d+$/i;

/**
 * A cell as the type of its column; left as text when it is none of that type, for the check to name. Gives a fault for
 * what would be taken for something else than was meant.
 */
export function readCell(
  column: string,
  cell: string,
  rules: CellRules,
): { value: unknown } | { fault: ChangeFault } {
  const text = cell.trim();
  if (column === 'qty' || column === 'price') return readNumber(column, text, rules);
  if ((column === 'externalId' || column === 'sku') && SPOILT_ID.test(text)) {
    return bad(
      column,
      text,
      'is what a spreadsheet made of a long id; its digits are lost. Format the column as text.',
    );
  }
  if (column !== 'show') return { value: cell };
  const word = text.toLowerCase();
  if (word === 'true' || word === '1') return { value: true };
  return { value: word === 'false' || word === '0' ? false : cell };
}

function readNumber(
  column: string,
  text: string,
  { delimiter, decimal }: CellRules,
): { value: unknown } | { fault: ChangeFault } {
  if (decimal !== undefined) return { value: parsePlainDecimal(withPoint(text, decimal) ?? '') ?? text };
  // Where the comma does not part the cells, it may be the decimal sign of the one who wrote the file.
  if (delimiter !== ',' && mayBeThousands(text)) {
    const both = `${text.replace('.', '')} or ${Number(text)}`;
    return bad(column, text, `may mean ${both}. Say which: --decimal comma, or --decimal point.`);
  }
  if (/^[+-]?\d+(\.\d{3})*,\d+$/.test(text)) {
    return bad(column, text, 'has a comma. If that is the decimal sign of the file: --decimal comma.');
  }
  return { value: parsePlainDecimal(text) ?? text };
}

/** The number with a point and without groups; undefined when its signs do not stand as they should. */
function withPoint(text: string, decimal: DecimalSign): string | undefined {
  const [sign, group] = decimal === 'comma' ? [',', '.'] : ['.', ','];
  const [whole = '', fraction, ...more] = text.split(sign);
  const grouped = whole.split(group);
  const isGrouped =
    grouped.slice(1).every((each) => each.length === 3) && /^[+-]?[1-9]\d{0,2}$/.test(grouped[0] ?? '');
  if (more.length > 0 || (grouped.length > 1 && !isGrouped) || fraction?.includes(group)) return undefined;
  return fraction === undefined ? grouped.join('') : `${grouped.join('')}.${fraction}`;
}

function bad(column: string, text: string, why: string): { fault: ChangeFault } {
  const message = `${column} ${JSON.stringify(text.slice(0, 60))} ${why}`;
  return { fault: { code: 'bad-value', column, message } };
}
