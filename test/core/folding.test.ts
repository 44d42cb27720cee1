import fc from 'fast-check';
import { expect, it } from 'vitest';
import { fold, searchFor } from '../../src/core/folding.ts';

it.each([
  ['ÑANDÚ', 'nandu'],
  ['  Ana \u00a0 Soto\n', 'ana soto'],
  ['cafe\u0301', 'cafe'],
  ['\ufeffABC\u200b-7\u00ad', 'abc-7'],
  ['STRASSE', fold('straße')],
  ['İstanbul', 'istanbul'],
  ['ŁUKASZ Ødegård', 'lukasz odegard'],
  ['ΟΔΟΣ', fold('οδος')],
  ['ＡＢＣ１２３', 'abc123'],
  ['', ''],
])('%j folds to %j', (text, folded) => {
  expect(fold(text)).toBe(folded);
});

it('is the same for every spelling of a text, and stays as it is when it is folded again', () => {
  fc.assert(
    fc.property(
      fc.string({ unit: 'binary', maxLength: 30 }).filter((text) => text.isWellFormed()),
      (text) => {
        const folded = fold(text);
        expect(fold(folded)).toBe(folded);
        for (const form of ['NFC', 'NFD', 'NFKC', 'NFKD']) expect(fold(text.normalize(form))).toBe(folded);
        expect(fold(text.toUpperCase())).toBe(folded);
        expect(fold(` ${[...text].join('\u200b')}\t`)).toBe(folded);
      },
    ),
  );
});

it.each([
  ['+56912345678', '+56 9 1234-5678', true],
  ['+56912345678', '912345678', true],
  ['912345678', '+56 (9) 1234 5678', true],
  ['9 1234', '+56912345678', true],
  ['5678', '+56 9 1234-56 78', true],
  ['78', '9 1234 56 7 8', false],
  ['+56912345679', '+56 9 1234 5678', false],
  ['ana', '+56 9 1234 5678', false],
  ['123456', '9 1234\n5678 123', false],
])('the typed number %j finds the phone %j: %j', (typed, phones, isFound) => {
  expect(searchFor(typed)('', phones)).toBe(isFound);
});
