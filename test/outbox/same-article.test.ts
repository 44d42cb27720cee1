import Database from 'better-sqlite3';
import { describe, expect, it } from 'vitest';
import { readChange } from '../../src/outbox/intake/change.ts';
import { GUARDS_OFF } from '../../src/outbox/intake/guards.ts';
import { oneRowEach, type Row, type RowsRule } from '../../src/outbox/intake/same-article.ts';
import { outgoing, product } from './outbox-fixture.ts';

/** Two products: SKUs 1 and 2 are of the first one; stock 1 has three ids in branch s1. */
function shelves() {
  const out = outgoing();
  const record = product('p1', 'Agua', [
    { sku: '1', stocks: { s1: ['A', 5], s2: ['A', 6] } },
    { sku: '2', stocks: { s1: ['B', 5] } },
  ]);
  Object.assign(record.children[0]?.integrations[0] ?? {}, { productIdPosA: 'A-pos', productCodePosB: '7' });
  out.sweep([record, product('p2', 'Pan', [{ sku: '3', stocks: { s1: ['C', 5] } }])]);
  return out;
}

/** Makes rows as a file or request has them; a CSV file has its header in line 1. */
function gathered(kind: 'stock' | 'product', values: object[], rows?: RowsRule, inLines = true): Row[] {
  const { intake } = shelves();
  const given = values.map((value, index): Row => {
    const reading = readChange(kind, value);
    return { index, line: inLines ? index + 2 : null, ...reading, ...('fault' in reading && { value }) };
  });
  const placed = intake.articlesOf(given);
  return oneRowEach(placed, { kind, rows, names: 'query' });
}

const brief = (rows: readonly Row[]) =>
  rows.map((row) => ('change' in row ? row.change : [row.index, row.fault.code]));
const refused = (...indexes: number[]) => indexes.map((index) => [index, 'same-article']);
const here = { subsidiaryId: 's1' };

it('rows that were looked at are resolved again once the catalogue has changed, by this connection or another', () => {
  const out = shelves();
  const rowOf = (value: object): Row => ({ index: 0, line: null, ...readChange('stock', value) }) as Row;
  const [row, same] = [rowOf({ externalId: 'C', qty: 4 }), rowOf({ externalId: 'C', qty: 5 })];
  const settings = { source: 'http', guards: GUARDS_OFF } as const;
  const targets = () =>
    out.db
      .prepare<[], string>("SELECT target FROM outbox WHERE kind = 'stock' ORDER BY change_id")
      .pluck()
      .all();
  out.intake.articlesOf([row, same]);
  out.db.prepare("UPDATE integrations SET sku = '2' WHERE ext_id = 'C'").run();
  out.intake.accept([row], settings);
  expect(targets()).toEqual(['sku:2@s1']);
  out.intake.articlesOf([same]);
  const other = new Database(out.db.name);
  other.prepare("UPDATE integrations SET sku = '3' WHERE ext_id = 'C'").run();
  other.close();
  out.intake.accept([same], settings);
  expect(targets()).toEqual(['sku:2@s1', 'sku:3@s1']);
});

describe('rows of one stock', () => {
  it('are refused by name, and leave the other articles alone', () => {
    const rows = gathered('stock', [
      { externalId: 'C', qty: 4 },
      { externalId: 'B', qty: 1 },
      { externalId: 'C', qty: 3 },
    ]);
    expect(brief(rows)).toEqual([...refused(0), { externalId: 'B', qty: 1 }, ...refused(2)]);
    const [first] = rows;
    expect(first && 'fault' in first && first.fault).toMatchObject({
      rows: [0, 2],
      message:
        'Lines 2 and 4 count one article: C 4; C 3. None of these rows was taken. To add such rows up, use rows=sum.',
    });
    const inJson = gathered('stock', Array(7).fill({ externalId: 'C', qty: 4 }), undefined, false)[6];
    expect(inJson && 'fault' in inJson && inJson.fault.message).toMatch(
      /^Indexes 0, 1, 2, 3, 4 and 2 more count/,
    );
  });

  it.each([
    ['an external id and its other fields', { externalId: 'A', ...here }, { externalId: 'A-pos' }],
    ['an external id and the sku', { externalId: 'C' }, { sku: '3', ...here }],
    ['both ids at once and one', { externalId: 'C', sku: 3 }, { externalId: 'C' }],
    ['with and without the branch', { externalId: 'B' }, { externalId: 'B', subsidiaryExternalId: 'B1' }],
    ['two ids of the branch', { externalId: 'A', ...here }, { externalId: 'A', subsidiaryExternalId: 'B1' }],
    ['an unknown article', { externalId: 'NEW' }, { externalId: 'NEW' }],
    ['an unknown article with and without the branch', { externalId: 'NEW', ...here }, { externalId: 'NEW' }],
    [
      'an unknown article by two ids of the branch',
      { externalId: 'NEW', ...here },
      { externalId: 'NEW', subsidiaryExternalId: 'B1' },
    ],
  ])('are found by %s', (_, one, other) => {
    const rows = [
      { ...one, qty: 4 },
      { ...other, qty: 4 },
    ];
    expect(brief(gathered('stock', rows))).toEqual(refused(0, 1));
    expect(brief(gathered('stock', rows, 'sum'))).toMatchObject([
      {
        ...gathered('stock', [{ ...one, qty: 8 }]).flatMap((row) => ('change' in row ? [row.change] : []))[0],
      },
    ]);
  });

  it('are not taken for one in two branches, nor rows that are refused anyway', () => {
    const branches = [
      { externalId: 'A', ...here, qty: 4 },
      { externalId: 'A', subsidiaryId: 's2', qty: 3 },
      { externalId: 'NEW', ...here, qty: 1 },
      { externalId: 'NEW', subsidiaryId: 's2', qty: 1 },
    ];
    expect(brief(gathered('stock', branches))).toEqual(branches);
    const ambiguous = [
      { externalId: 'A', qty: 4 },
      { externalId: 'A', qty: 3 },
    ];
    expect(brief(gathered('stock', ambiguous))).toEqual(ambiguous);
  });

  it('are added up exactly, with the visibility that one of them says', () => {
    const [sum, ...rest] = gathered(
      'stock',
      [
        { externalId: 'C', qty: 0.1 },
        { externalId: 'B', qty: 1 },
        { sku: '3', qty: 0.2, show: false },
        { externalId: 'C', qty: 0 },
      ],
      'sum',
    );
    expect(sum).toMatchObject({ index: 0, change: { externalId: 'C', qty: 0.3, show: false } });
    expect(sum?.added).toEqual([
      { index: 2, line: 4 },
      { index: 3, line: 5 },
    ]);
    expect(brief(rest)).toEqual([{ externalId: 'B', qty: 1 }]);
  });

  it('are not added up where they contradict each other, or one of them cannot be read', () => {
    const shows = [
      { externalId: 'C', qty: 1, show: true },
      { externalId: 'C', qty: 2, show: false },
    ];
    expect(brief(gathered('stock', shows, 'sum'))).toEqual(refused(0, 1));
    const unread = [
      { externalId: 'C', qty: 4 },
      { externalId: 'C', qty: 'x' },
    ];
    const [first, second] = gathered('stock', unread, 'sum');
    expect(brief([first as Row, second as Row])).toEqual([...refused(0), [1, 'bad-value']]);
    expect(first && 'fault' in first && first.fault.message).toContain('C 4; line 3 cannot be read');
    expect(brief(gathered('stock', unread))).toEqual([unread[0], [1, 'bad-value']]);
  });
});

describe('rows of one product', () => {
  it('are refused where they set a field to different values', () => {
    expect(
      brief(
        gathered('product', [
          { externalId: 'C', price: 990 },
          { sku: '3', price: 1090 },
          { sku: '1', price: 500 },
        ]),
      ),
    ).toEqual([...refused(0, 1), { sku: '1', price: 500 }]);
    const [one] = gathered('product', [
      { sku: '1', name: 'Agua' },
      { sku: '2', name: 'Agua con gas' },
    ]);
    expect(one && 'fault' in one && one.fault.message).toBe(
      'Lines 2 and 3 set name of one product to different values: sku 1 "Agua"; sku 2 "Agua con gas". None of these rows was taken.',
    );
  });

  it('are taken where they say the same or set different fields, and each SKU has its own price', () => {
    const rows = [
      { sku: '1', price: 500, show: true },
      { sku: '2', price: 600, show: true },
      { sku: '1', name: 'Agua' },
      { sku: '1', price: 500 },
    ];
    expect(brief(gathered('product', rows))).toEqual(rows);
  });
});
