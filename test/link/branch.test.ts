import { expect, it } from 'vitest';
import * as z from 'zod';
import { readAnswer } from '../../src/link/branch.ts';

const ANSWER = z.object({ upTo: z.number() });

it('readAnswer gives the answer of the hub, and its refusal as an error', () => {
  expect(readAnswer('{"upTo":7}', ANSWER)).toEqual({ upTo: 7 });
  const refusal = JSON.stringify({ refused: { code: 'expired', message: 'Not this branch.' } });
  expect(() => readAnswer(refusal, ANSWER)).toThrow(expect.objectContaining({ code: 'link-refused' }));
});

it.each(['', 'no JSON', 'null', '{"upTo":"7"}', '{}'])(
  'readAnswer takes %j for no answer, as if the line were down',
  (text) => {
    expect(() => readAnswer(text, ANSWER)).toThrow(expect.objectContaining({ code: 'link-down' }));
  },
);
