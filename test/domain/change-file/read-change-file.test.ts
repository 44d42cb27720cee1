import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import {
  type FileFormat,
  readProductFile,
  readStockFile,
} from '../../../src/domain/change-file/read-change-file.ts';
import { hasCode } from '../../../src/domain/errors.ts';

const encode = (text: string) => new TextEncoder().encode(text);

/** The file in pieces of `size` bytes, so that every boundary is tried. */
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
  return collect(readStockFile(pieces(bytes, size), format ? { format } : {}));
}

async function product(text: string, size = 7) {
  return collect(readProductFile(pieces(encode(text), size)));
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
      ',A,-1',
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
    ['', 'Unknown columns'],
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

  it('never clears a description by an empty cell', async () => {
    expect(await product('sku,price,description\n1,5,\n2,6,""\n')).toMatchObject([
      { change: { sku: '1', price: 5 } },
      { change: { sku: '2', price: 6 } },
    ]);
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
  });

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
      // NUL and the replacement character are refused: the one breaks readers, the other shows a wrong encoding.
      .filter((id) => id.trim() !== '' && !/[\0\uFFFD]/.test(id)),
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

  it('of a hundred thousand items is read whole', async () => {
    const lines = Array.from({ length: 100_000 }, (_, i) => `ext-${i},${i % 50}\n`);
    const items = await stock(`externalId,qty\n${lines.join('')}`, 65_536);
    expect(items).toHaveLength(100_000);
    expect(items.every((item) => 'change' in item)).toBe(true);
    expect(items.at(-1)).toEqual({
      index: 99_999,
      line: 100_001,
      change: { externalId: 'ext-99999', qty: 49 },
    });
  });
});
