import { expect, it } from 'vitest';
import { drawFrom, seededRandom } from '../../src/sandbox/draws.ts';

it('drawFrom gives each entry in the end, and says so where there is none', () => {
  const random = seededRandom(1);
  const drawn = new Set(Array.from({ length: 100 }, () => drawFrom(random, ['a', 'b', 'c'])));
  expect([...drawn].sort()).toEqual(['a', 'b', 'c']);
  expect(() => drawFrom(random, [])).toThrow('not empty');
});
