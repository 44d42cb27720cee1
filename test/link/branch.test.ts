import { expect, it, onTestFinished, vi } from 'vitest';
import * as z from 'zod';
import { TillsyncError } from '../../src/core/errors.ts';
import { silentLog } from '../../src/core/log.ts';
import { supervise } from '../../src/daemon/service.ts';
import { readAnswer } from '../../src/link/branch.ts';
import { idOf } from '../orders/retention-rig.ts';
import { type BranchStore, openChain } from './chain-rig.ts';

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

/** Runs the branch's loops as the daemon does, until the test ends. */
function runLoops(branch: BranchStore) {
  const over = new AbortController();
  const running = branch
    .loops()
    .map(({ name, run }) => supervise(name, run, { clock: branch.own, log: silentLog, signal: over.signal }));
  onTestFinished(async () => {
    over.abort();
    await Promise.all(running.map(({ ended }) => ended));
  });
}

it('takes orders again once its mirror can be read again', async () => {
  const { hub, branches, clock } = await openChain();
  const [branch] = branches;
  const arrives = async (number: number) => {
    await hub.order(number, 'B1');
    await vi.waitUntil(async () => {
      await hub.publish();
      await clock.advance(500);
      return branch.rows('SELECT 1 FROM orders WHERE order_id = ?', idOf(number)).length === 1;
    });
  };
  runLoops(branch);
  await arrives(1);
  const read = vi.spyOn(branch.services.mirror, 'read').mockImplementation(() => {
    throw new TillsyncError('storage-failed', 'The disk answers with an error.');
  });
  await clock.advance(3_000);
  read.mockRestore();
  await clock.advance(10_000);
  await arrives(2);
});

it('says hello also after its clock was set back by hours', async () => {
  const { hub, branches, clock } = await openChain();
  const [branch] = branches;
  runLoops(branch);
  const answer = vi.spyOn(hub.hub, 'answer');
  await vi.waitUntil(() => answer.mock.calls.length > 0);
  clock.jumpWall(-7_200_000);
  answer.mockClear();
  for (let i = 0; i < 120; i++) await clock.advance(1_000);
  expect(answer.mock.calls.length).toBeGreaterThan(0);
});
