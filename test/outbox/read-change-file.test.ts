/** Tests src/outbox/intake/change-file.ts and src/outbox/intake/csv.ts. */

import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { hasCode } from '../../src/core/errors.ts';
import { type FileFormat, readChangeFile } from '../../src/outbox/intake/change-file.ts';

const encode = (text: string) => new TextEncoder().encode(text);

/** Returns the file in chunks of `size` bytes, so that every boundary is tried. */
function pieces(bytes: Uint8Array, size: number): Uint8Array[] {
  const list: Uint8Array[] = [];
  for (let at = 0; at < bytes.length; at += size) list.push(bytes.subarray(at, at + size));
  return list;
}

async function collect<T>(batches: AsyncIterable<T[]>): Promise<T[]> {
  const items: T[] = [];
  for await (const batch of batches) items.push(...batch);
  return items;
}

async function stock(text: string | Uint8Array, size = 7, format?: FileFormat) {
  const bytes = typeof text === 'string' ? encode(text) : text;
  return collect(readChangeFile(pieces(bytes, size), 'stock', format ? { format } : {}));
}

async function product(text: string, size = 7) {
  return collect(readChangeFile(pieces(encode(text), size), 'product'));
}

const brief = (items: Awaited<ReturnType<typeof stock>>) =>
  items.map((item) => ('fault' in item ? [item.line ?? item.index, item.fault.code] : item.change));

describe('CSV', () => {
  it('is read with any known delimiter and spelling of its columns', async () => {
    for (const [comma, name] of [
      [',', 'external_id'],
      [';', 'externalId'],
      ['\t', 'EXTERNAL_ID'],
    ]) {
      const text = `\uFEFF${name}${comma}qty${comma}show\r\nA-1${comma}2.50${comma}\r\n"B ""x"""${comma}0${comma}TRUE\r\n`;
      expect(brief(await stock(text))).toEqual([
        { externalId: 'A-1', qty: 2.5 },
        { externalId: 'B "x"', qty: 0, show: true },
      ]);
    }
  });

  it('names each bad line and takes the rest', async () => {
    const text = [
      'sku,externalId,qty',
      '1,,5',
      '007,,5',
      ',A,--1',
      ',A,"1,5"',
      ',A,1e3',
      ',A,1.00000000000000000001',
      ',A',
      ',A,5,6',
      '',
      ',"two\nlines",5',
      ',A"B,5',
      ',"A"B,5',
      ',,5',
      '12345678901234567890,,5',
      ',last,5',
    ].join('\n');
    expect(brief(await stock(text))).toEqual([
      { sku: '1', qty: 5 },
      [3, 'bad-value'],
      [4, 'bad-value'],
      [5, 'bad-value'],
      [6, 'bad-value'],
      [7, 'bad-value'],
      [8, 'bad-text'],
      [9, 'bad-text'],
      { externalId: 'two\nlines', qty: 5 },
      [13, 'bad-text'],
      [14, 'bad-text'],
      [15, 'no-product'],
      [16, 'bad-value'],
      { externalId: 'last', qty: 5 },
    ]);
  });

  it.each([
    ['external_id|qty\nA|5', 'not separated'],
    ['external_id,quantity\nA,5', '"quantity"'],
    ['external_id,qty,qty\nA,5,5', 'twice'],
    ['qty,show\n5,true', 'neither'],
    ['A,5\nB,6', '"A", "5"'],
    ['', 'no header'],
    [`${'x'.repeat(200)},qty`, 'xxx"'],
  ])('is refused whole for its header %j', async (text, message) => {
    const failure = await stock(text).catch((error: unknown) => error);
    expect(hasCode(failure, 'usage') && failure.message).toContain(message);
    expect(hasCode(failure, 'usage') && failure.hint).toContain('externalId, sku, qty');
  });

  it('is refused in UTF-16, and loses only the lines that are not UTF-8', async () => {
    for (const bytes of [
      new Uint8Array(Buffer.from('\uFEFFexternalId,qty\nA,5\n', 'utf16le')),
      new Uint8Array(Buffer.from('externalId,qty\nA,5\n', 'utf16le')),
    ]) {
      const failure = await stock(bytes).catch((error: unknown) => error);
      expect(hasCode(failure, 'usage') && failure.message).toContain('UTF-8');
    }
    const latin = new Uint8Array(Buffer.from('externalId,qty\nPiña,5\nB,6\n', 'latin1'));
    expect(brief(await stock(latin))).toEqual([[2, 'bad-text'], { externalId: 'B', qty: 6 }]);
  });

  it('that is cut off says so at the line', async () => {
    const header = 'externalId,qty,show\nA,5,true\n';
    expect(brief(await stock(`${header}B,6`)).at(-1)).toEqual([3, 'cut']);
    expect(brief(await stock(`${header}"B`)).at(-1)).toEqual([3, 'cut']);
    expect(brief(await stock(`${header}"B,6,true\nC,7,true\n`)).at(-1)).toEqual([3, 'cut']);
    expect(brief(await stock(`${header}B,6,true`)).at(-1)).toEqual({ externalId: 'B', qty: 6, show: true });
  });

  it('gives up on a quote that would swallow the file, and says where', async () => {
    const text = `externalId,qty\nA,5\n"B,6\n${'C,7\n'.repeat(300_000)}`;
    const items = await stock(text, 65_536);
    expect(brief(items)).toEqual([{ externalId: 'A', qty: 5 }, [3, 'cut']]);
  });

  it('clears a description by two quotes, and never by an empty cell', async () => {
    const changes = async (text: string) =>
      (await product(text)).map((item) => ('change' in item ? item.change : item.fault));
    expect(await changes('sku,price,description\n1,5,\n2,6,""\n3,7,""""""\n')).toEqual([
      { sku: '1', price: 5 },
      { sku: '2', price: 6, description: '' },
      { sku: '3', price: 7, description: '' },
    ]);
    // A program that puts each cell into quotes says nothing by the quotes of an empty one.
    expect(await changes('"sku","price","description"\n"1","5",""\n"2","6",""""""\n')).toEqual([
      { sku: '1', price: 5 },
      { sku: '2', price: 6, description: '' },
    ]);
  });
});

describe('CSV of a spreadsheet', () => {
  /**
   * Reads a file with `tell`, as for a person; chunks of any size must give the same result. Returns the items, the
   * messages of faults, and the notes on how the file was read.
   */
  async function told(
    text: string | Uint8Array,
    options: { decimal?: 'point' | 'comma' } = {},
    kind: 'stock' | 'product' = 'stock',
  ) {
    const bytes = typeof text === 'string' ? encode(text) : text;
    const results = [];
    for (const size of [1, 2, 3, 5, bytes.length]) {
      const notes: string[] = [];
      const how = { ...options, tell: (note: string) => notes.push(note) };
      const items = await collect(readChangeFile(pieces(bytes, size), kind, how));
      results.push({
        items: brief(items),
        faults: items.map((item) => ('fault' in item ? item.fault.message : '')),
        notes,
      });
    }
    for (const each of results) expect(each).toEqual(results[0]);
    return results[0] as (typeof results)[number];
  }

  it.each([';', '\t'])(
    'asks which sign is the decimal one where a number may mean two, parted by %j',
    async (cut) => {
      const text = [
        'externalId,qty',
        'A,1.500',
        'B,1.5',
        'C,0.500',
        'D,12',
        'E,1501,5',
        'F,1.500,5',
        'G,1500.25',
      ]
        .map((line) => line.replace(',', cut))
        .join('\n');
      const open = await told(text);
      expect(open.items).toEqual([
        [2, 'bad-value'],
        { externalId: 'B', qty: 1.5 },
        { externalId: 'C', qty: 0.5 },
        { externalId: 'D', qty: 12 },
        [6, 'bad-value'],
        [7, 'bad-value'],
        { externalId: 'G', qty: 1500.25 },
      ]);
      expect(open.faults[0]).toBe(
        'qty "1.500" may mean 1500 or 1.5. Say which: --decimal comma, or --decimal point.',
      );
      expect(open.faults[4]).toContain('--decimal comma');
      const comma = await told(text, { decimal: 'comma' });
      expect(comma.items).toEqual([
        { externalId: 'A', qty: 1500 },
        [3, 'bad-value'],
        [4, 'bad-value'],
        { externalId: 'D', qty: 12 },
        { externalId: 'E', qty: 1501.5 },
        { externalId: 'F', qty: 1500.5 },
        [8, 'bad-value'],
      ]);
      const point = await told(text, { decimal: 'point' });
      expect(point.items[0]).toEqual({ externalId: 'A', qty: 1.5 });
      expect(point.items.slice(4)).toEqual([
        [6, 'bad-value'],
        [7, 'bad-value'],
        { externalId: 'G', qty: 1500.25 },
      ]);
      const prices = await told('sku;price\n10;1.990\n', { decimal: 'comma' }, 'product');
      expect(prices.items).toEqual([{ sku: '10', price: 1990 }]);
      expect((await told('sku;price\n10;1.990\n', {}, 'product')).items).toEqual([[2, 'bad-value']]);
    },
  );

  it('takes a point as it is where the comma parts the cells', async () => {
    expect((await told('externalId,qty\nA,1.500\n')).items).toEqual([{ externalId: 'A', qty: 1.5 }]);
    const grouped = await told('externalId,qty\nA,"1,500.5"\n', { decimal: 'point' });
    expect(grouped.items).toEqual([{ externalId: 'A', qty: 1500.5 }]);
  });

  it.each([
    ['sep=;\r\nexternalId;qty\r\nA;5\r\n', []],
    ['"sep=;"\nCódigo;Cantidad\nA;5\n', []],
    ['External ID;Stock;\nA;5;\n', []],
    ['external-id;notes;qty;Foto\nA;x;5;y\n', ['Columns that are passed over: "notes", "Foto".']],
  ])('is read with the header %j', async (text, notes) => {
    expect(await told(text)).toMatchObject({ items: [{ externalId: 'A', qty: 5 }], notes });
  });

  it('knows prices by their Spanish names', async () => {
    const { items } = await told('sku;Precio;Nombre;Descripción\n10;990;Té;\n', {}, 'product');
    expect(items).toEqual([{ sku: '10', price: 990, name: 'Té' }]);
  });

  it.each([
    ['externalId;qyt\nA;5\n', 'looks like qty'],
    ['externalId;qty;subsidary_id\nA;5;s1\n', 'looks like subsidiaryId'],
    ['externalId;amount\nA;5\n', 'names no qty'],
    ['código;externalId;qty\nA;A;5\n', 'twice'],
    ['article;qty\nA;5\n', 'neither externalId nor sku'],
    [`${Array.from({ length: 500 }, (_, i) => `c${i}`).join(';')}\n`, 'and 488 more'],
    [`externalId;qty${' '.repeat(1_100_000)}`, 'too long to be a header'],
  ])('lets no slip in the header pass (%#)', async (text, message) => {
    const failure = await collect(readChangeFile([encode(text)], 'stock', { tell: () => {} })).catch(
      (error: unknown) => error,
    );
    expect(hasCode(failure, 'usage') && failure.message).toContain(message);
  });

  it('in Windows-1252 is read as that and said; one fault in UTF-8 stays a fault', async () => {
    const latin = (text: string) => new Uint8Array(Buffer.from(text, 'latin1'));
    const note = 'The file is not UTF-8, so it is read as Windows-1252.';
    expect(await told(latin('Código;Cantidad\nPiña;5\n'))).toMatchObject({
      items: [{ externalId: 'Piña', qty: 5 }],
      notes: [note],
    });
    expect(await told(latin('externalId,qty\nB,6\nÑ,1'))).toMatchObject({
      items: [
        { externalId: 'B', qty: 6 },
        { externalId: 'Ñ', qty: 1 },
      ],
      notes: [note],
    });
    const mixed = new Uint8Array([...encode('externalId,qty\nPiña,5\n'), ...latin('Ñu,6\nC,7\n')]);
    expect(await told(mixed)).toMatchObject({
      items: [{ externalId: 'Piña', qty: 5 }, [3, 'bad-text'], { externalId: 'C', qty: 7 }],
      notes: [],
    });
  });

  it('refuses an id of which a spreadsheet lost the digits', async () => {
    const { items, faults } = await told('externalId;qty\n7.70E+11;5\n7,70E+11;5\nE-1002;5\n12E3X;5\n');
    expect(items).toEqual([
      [2, 'bad-value'],
      [3, 'bad-value'],
      { externalId: 'E-1002', qty: 5 },
      { externalId: '12E3X', qty: 5 },
    ]);
    expect(faults[0]).toContain('"7.70E+11" is what a spreadsheet made of a long id');
  });
});

describe('JSON', () => {
  const items = '{"externalId":"A]","qty":5},\n {"sku":7,"qty":1.5,"show":false} ';

  it('is read as an array, whatever the pieces', async () => {
    for (let size = 1; size < 20; size++) {
      expect(brief(await stock(`\uFEFF [${items}]\n`, size))).toEqual([
        { externalId: 'A]', qty: 5 },
        { sku: '7', qty: 1.5, show: false },
      ]);
    }
    expect(await stock('[]')).toEqual([]);
  });

  it('names each bad element and takes the rest', async () => {
    const text = `[${items}, 5, {"externalId":"A","qty":"5"}, {"qty":1]}, {"externalId":"B","qty":1.00000000000000000001},, null, {"externalId":"\\\\","qty":2},]`;
    expect(brief(await stock(text)).slice(2)).toEqual([
      [2, 'not-an-object'],
      [3, 'bad-value'],
      [4, 'bad-text'],
      [5, 'bad-text'],
      [6, 'bad-text'],
      [7, 'not-an-object'],
      { externalId: '\\', qty: 2 },
      [9, 'bad-text'],
    ]);
  });

  it('takes no number for zero that is only small', async () => {
    expect(brief(await stock('[{"externalId":"A","qty":1e-400},{"externalId":"B","qty":0e-400}]'))).toEqual([
      [0, 'bad-text'],
      { externalId: 'B', qty: 0 },
    ]);
  });

  it('is not held up by a number of very many zeros', async () => {
    const text = `[{"externalId":"A","qty":1.${'0'.repeat(500_000)}1}]`;
    expect(brief(await stock(text, 65_536))).toEqual([[0, 'bad-text']]);
  });

  it('tells once of what follows its end, whatever the pieces', async () => {
    const text = `[{"externalId":"A","qty":1}] ${'[{"externalId":"B","qty":2}] '.repeat(20)}`;
    for (const size of [7, 10_000]) {
      expect(brief(await stock(text, size))).toEqual([{ externalId: 'A', qty: 1 }, [1, 'bad-text']]);
    }
  });

  it('that is cut off keeps the whole elements and says so', async () => {
    expect(brief(await stock(`[${items},{"externalId":"C","qt`)).at(2)).toEqual([2, 'cut']);
    expect(brief(await stock(`[${items}`)).map((each) => Array.isArray(each))).toEqual([false, true]);
    expect(brief(await stock('[{"externalId":"A","qty":5}] x')).at(1)).toEqual([1, 'bad-text']);
    const exact = '{"externalId":"A","qty":1.00000000000000000001}';
    expect(brief(await stock(exact, 7, 'ndjson'))).toEqual([[1, 'bad-text']]);
    expect(brief(await stock(exact.slice(0, -1), 7, 'ndjson'))).toEqual([[1, 'cut']]);
  });

  it.each([
    ['json', '[{"externalId":"A","qty":5},{"externalId":"', 'a', [1, 'cut']],
    ['json', '[{"externalId":"A","qty":5},', '[', [1, 'cut']],
    ['ndjson', '{"externalId":"A","qty":5}\n{"externalId":"', 'a', [2, 'cut']],
  ] as const)(
    'gives up on an item of %s that never ends, and reads no further',
    async (format, head, fill, fault) => {
      const items: unknown[] = [];
      let read = 0;
      function* endless() {
        yield encode(head);
        for (; read < 200; read += 1) yield encode(fill.repeat(10_000));
        yield encode(`\n{"externalId":"B","qty":6}\n`);
      }
      for await (const some of readChangeFile(endless(), 'stock', { format })) {
        if (some.length === 0) continue;
        items.push(...brief(some));
        // The fault is reported at once, not only at the end of the input.
        expect(read).toBeLessThan(110);
      }
      expect(items).toEqual([{ externalId: 'A', qty: 5 }, fault]);
    },
  );

  it('is read line by line as NDJSON', async () => {
    const text =
      '{"externalId":"A","qty":5}\r\n\n{"externalId":"B"}\n{broken}\n{"sku":2,"qty":6}\n{"sku":3,"q';
    expect(brief(await stock(text))).toEqual([
      { externalId: 'A', qty: 5 },
      [3, 'nothing-to-change'],
      [4, 'bad-text'],
      { sku: '2', qty: 6 },
      [6, 'cut'],
    ]);
  });
});

describe('any file', () => {
  const change = fc.record({
    externalId: fc
      .string({ minLength: 1, unit: 'grapheme' })
      // NUL and the replacement character are refused, because NUL breaks readers and the replacement character shows a
      // wrong encoding. Blanks around an id are removed.
      .filter((id) => id !== '' && id.trim() === id && !/[\0\uFFFD]/.test(id)),
    qty: fc.oneof(
      fc.nat(),
      fc.float({ min: 0, max: 1000, noNaN: true }).map((n) => Number(n.toFixed(3))),
    ),
    show: fc.boolean(),
  });

  it('gives back what was written, in every format and any pieces', async () => {
    await fc.assert(
      fc.asyncProperty(
        fc.array(change, { minLength: 1 }),
        fc.integer({ min: 1, max: 40 }),
        async (changes, size) => {
          const quote = (text: string) => `"${text.replaceAll('"', '""')}"`;
          const csv = [
            'externalId,qty,show',
            ...changes.map((c) => `${quote(c.externalId)},${c.qty},${c.show}`),
          ];
          const texts = [
            `${csv.join('\r\n')}\r\n`,
            JSON.stringify(changes),
            changes.map((each) => JSON.stringify(each)).join('\n'),
          ];
          const expected = changes.map((each) => ({ ...each, qty: each.qty === 0 ? 0 : each.qty }));
          for (const text of texts) expect(brief(await stock(text, size))).toEqual(expected);
        },
      ),
      { numRuns: 60 },
    );
  });

  it('of a hundred thousand items is read whole', { tags: ['bulk'] }, async () => {
    const lines = Array.from({ length: 100_000 }, (_, i) => `ext-${i},${i % 50}\n`);
    const items = await stock(`externalId,qty\n${lines.join('')}`, 65_536);
    expect(items).toHaveLength(100_000);
    expect(items.every((item) => 'change' in item)).toBe(true);
    expect(items.at(-1)).toEqual({
      index: 99_999,
      line: 100_001,
      kind: 'stock',
      change: { externalId: 'ext-99999', qty: 49 },
    });
  });
});
