import { asTillsyncError } from '../domain/errors.ts';
import type { Log } from '../domain/log.ts';
import type { Clock, Random } from '../domain/time/clock.ts';
import { retryDelayMs } from './retry.ts';
import { Waker } from './waker.ts';
import type { WebhookRegistration } from './webhook-registration.ts';

const COMPARE_EVERY_MS = 3_600_000;
const LOCKED_OUT_LOOK_MS = 5_000;

export interface WebhookLoopOptions {
  registration: Pick<WebhookRegistration, 'ensure' | 'compare'>;
  /** False while only a person can bring new tokens. */
  mayCall: () => boolean;
  clock: Clock;
  random: Random;
  log: Log;
  beat: () => void;
}

/** Registers the webhook once at start, trying until it worked, then looks each hour whether it still stands. */
export async function webhookLoop(options: WebhookLoopOptions, signal: AbortSignal): Promise<void> {
  const { registration, mayCall, clock, random, log, beat } = options;
  const waker = new Waker(clock);
  let registered = false;
  let failures = 0;
  while (!signal.aborted) {
    beat();
    let restMs = COMPARE_EVERY_MS;
    if (failures > 0 && !mayCall()) restMs = LOCKED_OUT_LOOK_MS;
    else {
      try {
        if (registered) await registration.compare({ signal, onWait: beat });
        else await registration.ensure({ signal, onWait: beat });
        registered = true;
        failures = 0;
      } catch (error) {
        if (signal.aborted) return;
        failures += 1;
        restMs = retryDelayMs(failures, error, random);
        const { code, message, hint } = asTillsyncError(error);
        log.warn({ code, hint, failures }, `webhook not confirmed: ${message}`);
      }
    }
    const endMonoMs = clock.monotonicMs() + restMs;
    await waker.until(() => clock.nowMs() + endMonoMs - clock.monotonicMs(), signal, beat);
  }
}
