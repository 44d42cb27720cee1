import { ConfigSeenRows } from '../config/config-changes.ts';
import type { Clock } from '../core/time.ts';
import { ApiKeyRows } from '../db/api-keys.ts';
import { BootTime, type Holders, LeaseRows, systemHolders } from '../db/lease.ts';
import type { Role } from '../db/migrate.ts';
import { SigningKeyRows } from '../db/signing-keys.ts';
import { openStateFile } from '../db/state-file.ts';
import { AlarmRows } from '../health/notification-policy.ts';
import { HookRows } from '../hooks/hook-rows.ts';
import { HubRows, LinkKeyRows } from '../link/hub-state.ts';
import { EventCursorRows } from '../orders/reading/mirror-file.ts';
import { CallbackRows } from '../orders/receiving/callback-log.ts';
import { RateStore } from '../platform/rate-budget.ts';
import { TokenRows } from '../platform/tokens.ts';
import { WebhookRows } from '../platform/webhook-registration.ts';

interface StateOptions {
  path: string;
  clock: Clock;
  /**
   * Milliseconds for which a statement may block the event loop while another process holds the lock. Then callers
   * retry.
   */
  busyTimeoutMs?: number;
  /** Role whose tables the file gets, if it has not them yet. */
  role?: Role | undefined;
  /** Names of the holders of rate slots and leases. By default, the holders are the processes of this machine. */
  holders?: Holders;
  /** Called with every token and webhook secret before it is used or stored, so that the log can hide it. */
  onSecret?: ((value: string) => void) | undefined;
}

/** State that all processes of one company share. */
export type State = ReturnType<typeof openState>;

const BUSY_TIMEOUT_MS = 20;

/**
 * Opens or creates state.db. Throws `storage-busy` while another process creates or migrates it; then retry. Throws
 * `storage-corrupt` and `storage-newer`, and leaves the file unchanged then.
 */
export function openState(options: StateOptions) {
  const { clock, holders = systemHolders, onSecret = () => {} } = options;
  const file = openStateFile(options.path, options.busyTimeoutMs ?? BUSY_TIMEOUT_MS, options.role);
  const { db } = file;
  const time = new BootTime({ db, clock });
  const leases = new LeaseRows({ db, time, holders });
  return {
    ledger: new RateStore({ db, time, holders }),
    tokens: new TokenRows({ db, clock, leases, onSecret }),
    leases,
    webhook: new WebhookRows(db, onSecret),
    alarms: new AlarmRows(db),
    feed: new EventCursorRows({ db }),
    callbacks: new CallbackRows({ db }),
    configSeen: new ConfigSeenRows(db),
    hooks: new HookRows({ db }),
    apiKeys: new ApiKeyRows({ db }),
    hub: new HubRows(db, onSecret),
    linkKey: new LinkKeyRows(db, onSecret),
    signingKeys: new SigningKeyRows({ db }),
    close: () => file.close(),
  };
}
