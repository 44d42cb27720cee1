import { expect, it } from 'vitest';
import { TillsyncError } from '../../src/core/errors.ts';
import { storeRig } from '../support/store-rig.ts';

it.each([
  { cause: 'refused', told: 'The platform refused the refresh token.' },
  { cause: 'reply-lost', told: 'The answer to a token refresh was lost' },
])('auth.locked-out names the cause: $cause', async ({ cause, told }) => {
  const rig = storeRig();
  let isLost = cause === 'reply-lost';
  const { mirror, platform } = await rig.services(async (_request, pass) => {
    const answer = await pass();
    if (!isLost) return answer;
    isLost = false;
    throw new TillsyncError('platform-unreachable', 'The line was cut.');
  });
  if (cause === 'refused') rig.sandbox.control.revokeRefreshTokens();
  const ended = (async () => {
    for (let tries = 0; tries < 2; tries++) await platform.tokens.refresh().catch(() => undefined);
  })();
  await rig.run(ended);
  const auth = mirror.health.freshness().find(({ subject }) => subject === 'auth');
  expect(auth).toMatchObject({ state: 'locked-out', message: expect.stringContaining(told) });
});
