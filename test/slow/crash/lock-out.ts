import type { SandboxControl } from '../../../src/sandbox/control.ts';
import { limitMs } from '../../support/shared-config.ts';
import { type CommandResult, until } from '../../support/workplace.ts';
import type { DaemonLife } from './daemon-life.ts';
import type { GateCall } from './platform-gate.ts';

/** Time within which a complete answer is stored even under load; usually it takes much less. */
const SAVED_WITHIN_MS = limitMs(500);

/** Whether a kill came between the rotation of the tokens and the moment at which they must be saved. */
export function isInWindow(rotation: GateCall, life: number, killedMs: number): boolean {
  if (rotation.life !== life) return false;
  return rotation.answeredMs === null || killedMs - rotation.answeredMs < SAVED_WITHIN_MS;
}

export interface LockedOutStore {
  control: SandboxControl;
  /** A daemon that was started with a dead refresh token. */
  life: DaemonLife;
  command: (words: string[], input?: string) => Promise<CommandResult>;
  /** Makes the platform issue a new pair of tokens; returns the refresh token. */
  newToken: () => string;
}

/**
 * Checks a store that lost its tokens in the one window that no client can close. The lock-out must be reported as
 * such, callbacks must still be accepted, and new tokens must end it.
 */
export async function lockOutFaults({ control, life, command, newToken }: LockedOutStore): Promise<string[]> {
  await life.running();
  let report = { state: '', lockedOut: null as { cause: string } | null };
  let code: number | null = null;
  await until('the lock-out is told', async () => {
    const status = await command(['auth', 'status', '--json']);
    code = status.code;
    report = JSON.parse(status.stdout);
    return report.state !== 'ok';
  });
  const faults: string[] = [];
  if (report.state !== 'locked-out' || report.lockedOut?.cause !== 'reply-lost' || code !== 4) {
    faults.push(`the lock-out is told as ${JSON.stringify(report)} with ${code}`);
  }
  const order = control.createOrder({ items: [{ sku: 1002, qty: 1 }] });
  await control.settled();
  const delivery = control.deliveries().find(({ orderId }) => orderId === order.internalOrderId);
  if (delivery?.outcome !== 'confirmed') faults.push('no callback is taken while it is locked out');
  const set = await command(['auth', 'set'], newToken());
  if (set.code !== 0) faults.push(`auth set ended with ${set.code}: ${set.stderr}`);
  const polls = () => control.calls('order.all').filter(({ status }) => status === 200).length;
  const before = polls();
  await until('it polls again', () => polls() > before, 20_000);
  if ((await life.stop()) !== 0) faults.push('SIGTERM did not end it with 0');
  return faults;
}
