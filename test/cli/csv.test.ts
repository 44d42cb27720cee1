import fc from 'fast-check';
import { expect, test } from 'vitest';
import { csvText } from '../../src/cli/csv.ts';
import { readChangeFile } from '../../src/outbox/intake/change-file.ts';

const CHARACTERS = fc.oneof(
  fc.constantFrom(...'=+-@＝ \t\n\r\0"\ufeff'),
  fc.integer({ min: 0, max: 0x10_ffff }).map((code) => String.fromCodePoint(code)),
);
const cellsOf = (value: string) => csvText([value], { a: (text) => text }).split('\r\n')[1];

test.each([
  ['=1+1', "'=1+1"],
  ['Ana;=1+1', "Ana;'=1+1"],
  ['=1; =2', "'=1; '=2"],
  ['+569 123', "'+569 123"],
  ['-2', "'-2"],
  ['@SUM(A1)', "'@SUM(A1)"],
  ['  =1', "'  =1"],
  ['＝1', "'＝1"],
  ['\t=1', "'\t=1"],
  ['\n=1', '"\'\n=1"'],
  ['a=1', 'a=1'],
  ['say "no"', '"say ""no"""'],
  ['', ''],
])('the text %j stays a text', (value, cell) => {
  expect(csvText([value], { a: (text) => text })).toBe(`\ufeffa\r\n${cell}\r\n`);
});

test('no text of a customer begins a formula, whatever it is', () => {
  fc.assert(
    fc.property(fc.string({ unit: CHARACTERS }), (value) => {
      const cell = (cellsOf(value.replaceAll('\r\n', ' ')) ?? '').replace(/^"/, '');
      expect(cell).not.toMatch(/^[\s\0]*[=+\-@]/);
    }),
  );
});

test('amounts are numbers with the sign of the country, and what is no number is a text', () => {
  const columns = { a: (amount: number | string | null) => ({ amount }), b: () => true };
  const rows = [1990, 19.5, '19.50', '-3', null, '=1', '1.990,5'];
  expect(csvText(rows, columns)).toBe(
    '\ufeffa,b\r\n1990,true\r\n19.5,true\r\n19.5,true\r\n-3,true\r\n,true\r\n\'=1,true\r\n"1.990,5",true\r\n',
  );
  expect(csvText([19.5], columns, 'comma')).toBe('\ufeffa;b\r\n19,5;true\r\n');
});

test('what was written is read again by push', async () => {
  for (const decimal of ['point', 'comma'] as const) {
    const text = csvText(
      [{ id: 'A "1"; x', qty: 2.5 }],
      {
        externalId: ({ id }) => id,
        qty: ({ qty }) => ({ amount: qty }),
      },
      decimal,
    );
    const items = [];
    const pieces = (async function* () {
      yield Buffer.from(text);
    })();
    for await (const some of readChangeFile(pieces, 'stock', { format: 'csv', decimal })) items.push(...some);
    expect(items).toMatchObject([{ change: { externalId: 'A "1"; x', qty: 2.5 } }]);
  }
});
