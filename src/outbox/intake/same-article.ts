import type { Change, ChangeFault, ChangeKind, SourceLine, StockChange, SubmittedChange } from './change.ts';

/**
 * How the sender names an option in a message: `--rows sum` on the command line, `rows=sum` in the query of a request.
 */
export type OptionNames = 'command' | 'query';

export function optionText(names: OptionNames, option: string, value: string): string {
  return names === 'command' ? `--${option} ${value}` : `${option}=${value}`;
}

/** What happens to several rows of one stock in one file or request. Left out, they are refused. */
export type RowsRule = 'sum' | undefined;

/** An item of a file or request. `added`: the other rows whose quantities were added to this one. */
export type Row = SourceLine & SubmittedChange & { added?: readonly SourceLine[] };
type ReadableRow = SourceLine & Change & { reference?: string | null; countedAt?: string | null };

/** A row with what it is about. */
export interface ArticleRow<T extends Row> {
  row: T;
  /** Key of the stock, or of the SKU of a product change; undefined if nobody can tell. */
  key: string | undefined;
  /** Key of the product, whose name, description and visibility its SKUs share; like `key` for a stock. */
  productKey: string | undefined;
  /**
   * Set if the mirror does not have the article: product and branch as the row names them. With and without a branch
   * may then be one stock.
   */
  unplaced?: { product: string; branch: string | null } | undefined;
}

export interface RowsOptions {
  kind: ChangeKind;
  rows: RowsRule;
  names: OptionNames;
}

/**
 * Makes one row of each article. Rows of one stock are refused, or added up; rows of one product are refused if they
 * set a field to different values. A refused row becomes a fault, and the other articles are not affected.
 * [A 4, B 1, A 3] → [A fault, B 1, A fault], or with `sum` [A 7, B 1].
 */
export function oneRowEach<T extends Row>(
  given: readonly ArticleRow<T>[],
  options: RowsOptions,
): (T | Row)[] {
  const outcome = new Map<T, Row | null>();
  if (options.kind === 'product') refuseContradictions(given, outcome);
  else for (const group of groupsOf(given, stockKeys(given))) gather(group, options, outcome);
  // Nearly every request has one row of each article.
  if (outcome.size === 0) return given.map(({ row }) => row);
  return given.flatMap(({ row }) => {
    const made = outcome.get(row);
    return made === null ? [] : [made ?? row];
  });
}

/** Returns the key of each row's stock. A row without a branch joins the rows of the same unknown product that have one. */
function stockKeys<T extends Row>(given: readonly ArticleRow<T>[]): (string | undefined)[] {
  const branchless = new Set<string>();
  for (const { unplaced } of given) if (unplaced?.branch === null) branchless.add(unplaced.product);
  return given.map(({ key, unplaced }) =>
    unplaced && branchless.has(unplaced.product) ? `unplaced ${unplaced.product}` : key,
  );
}

/** Returns the rows of each key that several rows have. */
function groupsOf<T extends Row>(
  given: readonly ArticleRow<T>[],
  keys: readonly (string | undefined)[],
): T[][] {
  // Hardly any key is repeated, so the rows of a key are gathered only if it is.
  const seen = new Set<string>();
  const groups = new Map<string, T[]>();
  for (const key of keys) {
    if (key === undefined) continue;
    if (seen.has(key)) groups.set(key, []);
    else seen.add(key);
  }
  if (groups.size > 0) for (const [i, { row }] of given.entries()) groups.get(keys[i] ?? '')?.push(row);
  return [...groups.values()];
}

function gather<T extends Row>(
  group: readonly T[],
  { rows, names }: RowsOptions,
  outcome: Map<T, Row | null>,
): void {
  const readable = group.filter((row) => 'change' in row) as (T & ReadableRow)[];
  const [first, ...others] = readable;
  // An unreadable row is reported as such. It is no second count, but without it there is no sum.
  if (!first || (rows !== 'sum' && others.length === 0)) return;
  const sum = rows === 'sum' && readable.length === group.length ? sumOf(readable) : undefined;
  if (sum !== undefined) {
    const countedAt = oldestOf(readable);
    outcome.set(first, {
      ...{ ...first, change: sum, added: others.map(placeOf) },
      ...(countedAt !== undefined && { countedAt }),
    } as Row);
    for (const row of others) outcome.set(row, null);
    return;
  }
  const fault = sameArticle(rows === 'sum' ? group : readable, rows, names);
  for (const row of readable) outcome.set(row, faulty(row, fault));
}

/** Returns one count for all rows; undefined if they contradict each other in `show`, or the sum is not exact. */
function sumOf(group: readonly ReadableRow[]): StockChange | undefined {
  const changes = group.map(({ change }) => change as StockChange);
  const [first] = changes;
  const shows = new Set(changes.flatMap(({ show }) => (show === undefined ? [] : [show])));
  // Decimal quantities such as 0.1 + 0.2 get no digits that nobody counted.
  const qty = Number(changes.reduce((sum, each) => sum + each.qty, 0).toFixed(9));
  if (!first || shows.size > 1 || Math.abs(qty) > Number.MAX_SAFE_INTEGER) return undefined;
  const [show] = shows;
  return { ...first, qty, ...(show !== undefined && { show }) };
}

/**
 * Returns the time of the oldest count, because the sum contains no order that came after it; an unreadable time before
 * all others, so that it is refused. Undefined if no row says when it was counted.
 */
function oldestOf(group: readonly ReadableRow[]): string | undefined {
  const timeOf = (text: string) => Date.parse(text) || Number.NEGATIVE_INFINITY;
  const said = group.flatMap(({ countedAt }) => (countedAt ? [countedAt] : []));
  return said.toSorted((a, b) => timeOf(a) - timeOf(b))[0];
}

const PRODUCT_FIELDS = ['price', 'name', 'description', 'show'] as const;

function refuseContradictions<T extends Row>(
  given: readonly ArticleRow<T>[],
  outcome: Map<T, Row | null>,
): void {
  for (const field of PRODUCT_FIELDS) {
    const saying = given.filter(({ row }) => 'change' in row && field in row.change);
    // A price belongs to one SKU; everything else to the product with all its SKUs.
    const keys = saying.map(({ key, productKey }) => (field === 'price' ? key : productKey));
    for (const group of groupsOf(saying, keys)) {
      const values = new Set(group.map((row) => saidIn(row, field)));
      if (values.size === 1) continue;
      const told = group.slice(0, TOLD_MAX).map((row) => `${nameOf(row)} ${textOf(saidIn(row, field))}`);
      const of = field === 'price' ? 'article' : 'product';
      const message = `${placesOf(group)} set ${field} of one ${of} to different values: ${told.join('; ')}. None of these rows was taken.`;
      const fault = { ...SAME_ARTICLE, column: field, message, rows: group.map(({ index }) => index) };
      for (const row of group) if (!outcome.has(row)) outcome.set(row, faulty(row, fault));
    }
  }
}

const SAME_ARTICLE = { code: 'same-article', column: null } as const;
const TOLD_MAX = 5;

/** Returns why rows of one stock are refused. `group` has all of them, unreadable ones too. */
export function sameArticle(group: readonly Row[], rows: RowsRule, names: OptionNames): ChangeFault {
  const told = group.slice(0, TOLD_MAX).map((row) => {
    if (!('change' in row)) return `${placeText(row)} cannot be read`;
    const { show } = row.change;
    const seen = show === undefined ? '' : `, show ${show}`;
    return `${nameOf(row)} ${textOf(saidIn(row, 'qty'))}${seen}`;
  });
  const more = group.length > TOLD_MAX ? '; …' : '';
  const why =
    rows === 'sum'
      ? 'They cannot be added up.'
      : `To add such rows up, use ${optionText(names, 'rows', 'sum')}.`;
  const message = `${placesOf(group)} count one article: ${told.join('; ')}${more}. None of these rows was taken. ${why}`;
  return { ...SAME_ARTICLE, message, rows: group.map(({ index }) => index) };
}

function faulty<T extends Row>(row: T, fault: ChangeFault): Row {
  return { ...placeOf(row), kind: row.kind, fault };
}

function placeOf({ index, line }: SourceLine): SourceLine {
  return { index, line };
}

function saidIn(row: Row, field: string): unknown {
  return 'change' in row ? (row.change as Record<string, unknown>)[field] : undefined;
}

function textOf(value: unknown): string {
  return typeof value === 'string' ? JSON.stringify(value.slice(0, 60)) : String(value);
}

function nameOf(row: Row): string {
  if (!('change' in row)) return placeText(row);
  const { externalId, sku } = row.change;
  return externalId === undefined ? `sku ${sku}` : externalId;
}

function placeText({ index, line }: SourceLine): string {
  return line === null ? `index ${index}` : `line ${line}`;
}

/** Returns the places of rows: `Lines 3, 5 and 7`. */
function placesOf(group: readonly SourceLine[]): string {
  const inLines = group.every(({ line }) => line !== null);
  const all = group.map(({ index, line }) => String(inLines ? line : index));
  const shown = all.length > TOLD_MAX ? [...all.slice(0, TOLD_MAX), `${all.length - TOLD_MAX} more`] : all;
  return `${inLines ? 'Lines' : 'Indexes'} ${shown.slice(0, -1).join(', ')} and ${shown.at(-1)}`;
}
