import { expect, it } from 'vitest';
import { compileSpellings } from '../../src/orders/merging/field-aliases.ts';
import { replayEvents } from '../../src/orders/receiving/replay.ts';
import { sampleNotification } from '../support/order-samples.ts';
import { observation, openTestMirror } from './open-test-mirror.ts';

const withNote = compileSpellings({ addressDetails: ['doorNote'] });

/** Makes a mirror of two orders with a field (a note for the door) that only the present rules can read. */
async function mirrored() {
  const { mirror, clock } = openTestMirror();
  for (const number of [1, 2]) {
    const sent = { ...sampleNotification(number), doorNote: `ring ${number}` };
    await mirror.save([{ kind: 'order', observation: observation('poll', sent) }]);
  }
  const replay = () =>
    replayEvents({
      mirror,
      clock,
      spellings: withNote,
      listPath: '',
      filter: {},
      quarantinedOnly: false,
      dryRun: false,
      signal: new AbortController().signal,
    });
  return { mirror, clock, replay };
}

it('replayEvents reports once every order is written', async () => {
  const { clock, replay } = await mirrored();
  let report: Awaited<ReturnType<typeof replay>> | undefined;
  const done = replay().then((each) => {
    report = each;
  });
  for (let turn = 0; turn < 200 && report === undefined; turn++) await clock.advance(10);
  await done;
  expect(report).toMatchObject({ orders: 2, changed: 2, unchanged: 0, isComplete: true });
  expect(report?.changes).toHaveLength(2);
});

it('replayEvents ends with the error of a write that fails', async () => {
  const { mirror, replay } = await mirrored();
  mirror.write = () => Promise.reject(new Error('disk full'));
  await expect(replay()).rejects.toThrow('disk full');
});
