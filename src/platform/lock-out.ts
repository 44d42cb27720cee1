import { TillsyncError } from '../domain/errors.ts';
import type { LockOut } from '../domain/platform/tokens.ts';
import { isoUtc } from '../domain/time/clock.ts';

const HINT = 'Get a new token pair from the company panel or the support, then run: {tillsync} auth set';

/** The lock-out as it is told to whoever wanted to call. */
export function lockedOutError({ atMs, cause }: LockOut): TillsyncError {
  const why =
    cause === 'reply-lost'
      ? 'an answer with new tokens was lost on its way, and the platform takes the old refresh token no more'
      : 'the platform refused the refresh token as invalid, expired or revoked';
  return new TillsyncError(
    'auth-required',
    `Since ${isoUtc(atMs).slice(0, 16).replace('T', ' ')} UTC the platform asks for new tokens: ${why}.`,
    {
      hint: HINT,
      httpStatus: 401,
    },
  );
}

export function noTokensError(): TillsyncError {
  return new TillsyncError('auth-required', 'No tokens have been handed in yet.', { hint: HINT });
}
