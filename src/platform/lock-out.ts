import { isoUtc } from '../domain/clock.ts';
import { TillsyncError } from '../domain/errors.ts';
import type { LockOut } from '../domain/tokens.ts';

const HINT = 'Get a new token pair from the company panel or the support, then run: tillsync auth set';

/** The lock-out as it is told to whoever wanted to call. */
export function lockedOutError({ atMs, cause }: LockOut): TillsyncError {
  const why =
    cause === 'reply-lost'
      ? 'an answer with new tokens was lost on its way, and the platform takes the old refresh token no more'
      : 'the platform refused the refresh token as invalid, expired or revoked';
  return new TillsyncError(
    'auth-required',
    `Since ${isoUtc(atMs)} the platform asks for new tokens: ${why}.`,
    {
      hint: HINT,
      httpStatus: 401,
    },
  );
}

export function noTokensError(): TillsyncError {
  return new TillsyncError('auth-required', 'No tokens have been handed in yet.', { hint: HINT });
}
