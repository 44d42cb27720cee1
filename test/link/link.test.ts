import { expect, it } from 'vitest';
import { CHANGES, HELLO, HELLO_ANSWER } from '../../src/link/link.ts';
import { helloAnswerOf, helloOf } from '../support/hello.ts';

// Hub and branches are upgraded one after the other, so each must accept messages of a later version.
it('a hello, its answer and an item with a field of a later version are understood', () => {
  expect(HELLO.parse({ ...helloOf(), moon: 'full' })).toEqual(helloOf());
  expect(HELLO_ANSWER.parse({ ...helloAnswerOf(), moon: 'full' })).toEqual(helloAnswerOf());
  const ack = { u: 1, kind: 'ack', changeId: null, reference: null, value: 'o1' };
  const changes = { instance: 'i', line: 'l', items: [ack] };
  expect(CHANGES.parse({ ...changes, items: [{ ...ack, moon: 'full' }], moon: 'full' })).toEqual(changes);
});

it('a hello names at most a hundred orders whose customer was removed, and a hundred epochs', () => {
  const takes = (more: object) => HELLO.safeParse(helloOf(more)).success;
  const ids = Array.from({ length: 101 }, (_, n) => `o${n}`);
  expect(takes({ forgotten: ids.slice(1), left: ids.slice(1) })).toBe(true);
  expect(takes({ forgotten: ids })).toBe(false);
  expect(takes({ left: ids })).toBe(false);
});
