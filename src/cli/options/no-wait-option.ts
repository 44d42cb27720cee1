import type { Command } from 'commander';
import { TillsyncError } from '../../domain/errors.ts';
import type { CallOptions } from '../../domain/platform/call.ts';
import { waitText } from '../texts/wait-text.ts';

export interface NoWaitOption {
  /** False with `--no-wait`. */
  wait: boolean;
}

/** Adds `--no-wait` to a command that calls the platform. */
export function withNoWait(command: Command): Command {
  return command.option('--no-wait', 'end at once, with exit code 1, if the platform may not be called now');
}

/** How a command calls: with `--no-wait` it throws `rate-limited` instead of waiting for its first call. */
export function patienceOf<C extends CallOptions>(call: C, { wait: isPatient }: NoWaitOption): C {
  if (isPatient) return call;
  let hasSent = false;
  return {
    ...call,
    onSend: () => {
      hasSent = true;
    },
    onWait: (wait) => {
      if (hasSent) return call.onWait?.(wait);
      throw notNow(waitText(wait), wait.waitMs);
    },
  };
}

/** That a command with `--no-wait` did nothing. */
export function notNow(why: string, retryAfterMs?: number): TillsyncError {
  return new TillsyncError('rate-limited', `Nothing was asked: ${why}.`, {
    hint: 'Try again then; without --no-wait the command waits for its turn.',
    ...(retryAfterMs !== undefined && { retryAfterMs }),
  });
}
