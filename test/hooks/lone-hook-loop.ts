import { silentLog } from '../../src/core/log.ts';
import { type HookLoopOptions, hookLoop } from '../../src/hooks/hook-loop.ts';
import type { TestMirror } from '../orders/open-test-mirror.ts';
import { tempState } from '../platform/temp-state.ts';
import { seededRandom } from '../support/fake-clock.ts';

/** Runs the loop of hooks on a mirror, without a daemon. Later events do not wake the loop. */
export function loneHookLoop(
  { mirror, clock }: Pick<TestMirror, 'mirror' | 'clock'>,
  options: Pick<HookLoopOptions, 'hooks' | 'receiverOf'> & Partial<HookLoopOptions>,
  signal: AbortSignal,
): Promise<void> {
  const around = {
    place: { timezone: 'America/Santiago', branches: [] },
    rows: tempState(clock).hooks,
    alarms: mirror.health,
    onChange: () => () => {},
    platformSkewMs: () => 0,
    onTried() {},
    random: seededRandom(1),
    log: silentLog,
    beat() {},
  };
  return hookLoop({ mirror, clock, ...around, ...options }, signal);
}
