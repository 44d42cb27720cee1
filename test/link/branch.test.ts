import { expect, it, vi } from 'vitest';
import * as z from 'zod';
import { readAnswer } from '../../src/link/branch.ts';
import { openChain } from './chain-rig.ts';

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

it('tells the hub within a second that it heard where the hub will be', async () => {
  const { hub, branches, clock } = await openChain();
  const [branch] = branches;
  let stamp = 'before';
  const ways = {
    told: () => ({ stamp, refused: null }),
    heard: () => {
      stamp = 'announced';
      return null;
    },
  };
  Object.assign(branch.link, { ways });
  const over = new AbortController();
  const handing = branch.follower.upload(over.signal, () => {});
  const told = () =>
    hub.services.state.hub.branches().find((each) => each.branch === 'B1')?.report?.ways?.stamp;
  await vi.waitUntil(() => told() === 'before');
  await clock.advance(1_000);
  await vi.waitUntil(() => told() === 'announced');
  over.abort();
  await handing;
});
