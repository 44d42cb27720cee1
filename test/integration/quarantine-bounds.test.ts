import { expect, it } from 'vitest';
import { OBSERVED_MS, openTestMirror } from '../orders/open-test-mirror.ts';

const unreadable = (payload: string) => ({
  kind: 'unreadable' as const,
  unreadable: {
    source: 'webhook' as const,
    receivedAtMs: OBSERVED_MS,
    reason: 'No order id was found.',
    payload,
  },
});

it('the quarantine is bounded: huge payloads are cut, and the oldest go', async () => {
  const { mirror } = openTestMirror();
  for (let i = 0; i < 5; i++) await mirror.save([unreadable(`${i}${'x'.repeat(33 * 1024 * 1024)}`)]);
  const list = mirror.quarantine.list(9);
  expect(list.map(({ quarantineId }) => quarantineId)).toEqual([5, 4, 3]);
  expect(list[0]).toMatchObject({
    bytes: 32 * 1024 * 1024,
    reason: expect.stringContaining(`of its ${33 * 1024 * 1024 + 1} bytes`),
  });
  await mirror.save(Array.from({ length: 10_005 }, (_, i) => unreadable(`small ${i}`)));
  const ids = mirror.quarantine.list(20_000).map(({ quarantineId }) => quarantineId);
  // When there are too many payloads, a tenth of them is deleted at once, the oldest first.
  expect(ids.length).toBeGreaterThan(9_000);
  expect(ids.length).toBeLessThanOrEqual(10_000);
  expect(ids).toEqual(ids.map((_, i) => 10_010 - i));
});
