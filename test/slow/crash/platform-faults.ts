import type { SandboxControl } from '../../../src/sandbox/control.ts';
import { limitMs } from '../../support/shared-config.ts';
import type { GateCall } from './platform-gate.ts';

export interface PlatformView {
  control: SandboxControl;
  /** Calls in the order in which the platform processed them. */
  calls: readonly GateCall[];
  /** Time of each kill, by the number of the killed process (`GateCall.life`). */
  killedMs: ReadonlyMap<number, number>;
  /**
   * Number of token losses by a kill between the rotation of the tokens and their storage, which nobody can prevent.
   */
  lockOuts: number;
}

/** Time after which even a busy machine has stored an answer. */
const SETTLED_WITHIN_MS = limitMs(500);

/**
 * Returns the faults that the platform saw: broken limits, uses of dead tokens, older values after newer ones, and
 * values that were sent twice.
 */
export function faultsOf({ control, calls, killedMs, lockOuts }: PlatformView): string[] {
  const faults = control
    .violations()
    .map(({ endpoint, broken, at }) => `${endpoint} broke the limit ${broken} at ${at}`);
  const dead = control.deadRefreshUses().length;
  if (dead > lockOuts)
    faults.push(`${dead} dead refresh tokens were used, and ${lockOuts} were lost by a kill`);
  const last = new Map<string, { value: number; call: GateCall }>();
  for (const call of calls) {
    for (const { target, value } of call.applied) {
      const before = last.get(target);
      if (before && before.value > value) faults.push(`${target} was ${before.value} and then ${value}`);
      if (before?.value === value && !mayBeUnknown(before.call, killedMs)) {
        faults.push(`${target} was set to ${value} twice, though its answer had come`);
      }
      last.set(target, { value, call });
    }
  }
  return faults;
}

/** Whether a kill may have come before the answer was stored. */
function mayBeUnknown({ life, answeredMs }: GateCall, killedMs: ReadonlyMap<number, number>): boolean {
  const endMs = killedMs.get(life);
  return answeredMs === null || (endMs !== undefined && endMs - answeredMs < SETTLED_WITHIN_MS);
}
