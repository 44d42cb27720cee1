import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { hasCode } from '../../src/core/errors.ts';
import { recordText, scanRecords, speaksOfMorePages } from '../../src/core/json-records.ts';
import { parseLossless } from '../../src/core/values.ts';

const bytesOf = (text: string) => new TextEncoder().encode(text);
const scan = (text: string) => scanRecords(bytesOf(text));

function texts(text: string, path: string): string[] {
  const bytes = bytesOf(text);
  const list = scanRecords(bytes).lists.find((each) => each.path === path);
  return Array.from({ length: list?.length ?? -1 }, (_, i) => recordText(bytes, list!, i));
}

describe('finding the records of an answer', () => {
  it('gives each record exactly as it was received', () => {
    const answer = '{"data" : {"docs":[ {"id":12345678901234567890 , "t":1.50} ,{"n":"a\\"]}["}]}, "z":1e3}';
    expect(texts(answer, 'data.docs')).toEqual(['{"id":12345678901234567890 , "t":1.50}', '{"n":"a\\"]}["}']);
  });

  it('finds the root itself, past a byte order mark', () => {
    expect(texts('\ufeff [{"a":[{"b":1}]}, null, 3] ', '')).toEqual(['{"a":[{"b":1}]}', 'null', '3']);
  });

  it('tells lists apart by their path', () => {
    const { lists } = scan('{"errors":["x"],"data":{"orders":[{},{},7],"empty":[]}}');
    expect(lists.map(({ path, length }) => [path, length])).toEqual([
      ['errors', 1],
      ['data.orders', 3],
      ['data.empty', 0],
    ]);
  });

  it('reads what the envelope says beside the records', () => {
    const { hints } = scan(
      '{"success":true,"data":{"docs":[{"page":9}],"page":2,"totalPages":3,"hasNextPage":true}}',
    );
    expect(hints).toEqual({ success: true, page: 2, totalPages: 3, hasNextPage: true });
    expect(speaksOfMorePages(hints, 1)).toBe(true);
    expect(speaksOfMorePages({ page: 3, totalPages: 3 }, 5)).toBe(false);
    expect(speaksOfMorePages({ page: 1, totalPages: 2 }, 5)).toBe(true);
    expect(speaksOfMorePages({ totalPages: 2 }, 5)).toBe(true);
    expect(speaksOfMorePages({ page: 3, totalPages: 3, totalDocs: 15, limit: 5 }, 5)).toBe(false);
    expect(speaksOfMorePages({ totalDocs: 6, limit: 5 }, 5)).toBe(true);
    // Without `limit`, `totalDocs` may be higher than the number of records that the answer would ever list.
    expect(speaksOfMorePages({ totalDocs: 6 }, 5)).toBe(false);
    expect(speaksOfMorePages({ limit: 5 }, 5)).toBe(false);
    expect(speaksOfMorePages({}, 5)).toBe(false);
  });

  it.each(['', '  ', '{', '[1,', '{"a"', '{"a":', '{"a":[{"b":"c', '[{}', '{"a":"\\'])(
    'refuses %j as cut off',
    (text) => {
      expect(() => scan(text)).toThrowError(expect.objectContaining({ code: 'platform-garbled' }));
    },
  );

  it.each([
    '<html>',
    '[}',
    '{]',
    '[1 2]',
    '{"a" 1}',
    '{a:1}',
    '[1],',
    '[{"a":[}]]',
    '{} x',
    'nul',
    '[1,]',
    '{"a":1,}',
  ])('refuses %j', (text) => {
    expect(() => scan(text)).toThrowError(expect.objectContaining({ code: 'platform-garbled' }));
  });

  it('survives depth that no stack would', () => {
    const depth = 200_000;
    expect(texts(`[${'['.repeat(depth)}${']'.repeat(depth)}]`, '')[0]).toHaveLength(2 * depth);
    expect(() => scan('['.repeat(depth))).toThrow();
  });

  it('agrees with JSON.parse on any JSON, and finds every cut', () => {
    fc.assert(
      fc.property(fc.jsonValue(), fc.nat(), fc.boolean(), (value, cut, pretty) => {
        const text = JSON.stringify({ orders: [value, { value }] }, null, pretty ? 1 : 0);
        expect(texts(text, 'orders').map((each) => JSON.parse(each))).toEqual(
          [value, { value }].map(viaJson),
        );
        const shorter = bytesOf(text).slice(0, cut % bytesOf(text).length);
        try {
          scanRecords(shorter);
          expect.unreachable();
        } catch (error) {
          expect(hasCode(error, 'platform-garbled')).toBe(true);
        }
      }),
    );
  });
});

describe('parsing without a loss', () => {
  it('reads a long whole number as its digits, in any depth and in no text', () => {
    const depth = 50_000;
    const deep = `${'['.repeat(depth)}${']'.repeat(depth)}`;
    const said =
      '"a\\":[12345678901234567890]\\\\","b":-9007199254740993,"c":1.5,"d":[12345678901234567891,1e21]';
    expect(parseLossless(`{"a":${said},"deep":${deep},"b":9007199254740993}`)).toMatchObject({
      a: 'a":[12345678901234567890]\\',
      b: '9007199254740993',
      c: 1.5,
      d: ['12345678901234567891', 1e21],
    });
  });

  it('agrees with a reviver on any JSON, and refuses what JSON.parse refuses', () => {
    const revived = (text: string) =>
      JSON.parse(text, (_name, value, { source = '' } = {}) =>
        typeof value === 'number' && !Number.isSafeInteger(value) && /^-?\d+$/.test(source) ? source : value,
      );
    const parsedBy = (parse: (text: string) => unknown, text: string) => {
      try {
        return { value: parse(text) };
      } catch {
        return undefined;
      }
    };
    const long = fc.bigInt({ min: -(2n ** 70n), max: 2n ** 70n });
    fc.assert(
      fc.property(
        fc.jsonValue(),
        long,
        fc.nat(),
        fc.constantFrom('', '"', '0', ',', '\\'),
        (value, id, at, extra) => {
          const whole = `{"id": ${id}, "value": ${JSON.stringify([value, String(id)])}, "ids": [${id}]}`;
          const place = at % whole.length;
          for (const text of [whole, `${whole.slice(0, place)}${extra}${whole.slice(place)}`]) {
            expect(parsedBy(parseLossless, text)).toEqual(parsedBy(revived, text));
          }
        },
      ),
    );
  });
});

function viaJson(value: unknown): unknown {
  return JSON.parse(JSON.stringify(value));
}
