import type { CallbackStore } from '../../domain/callback.ts';
import type { AlarmMemoryStore } from '../../domain/health/alarm-news.ts';
import type { AlarmTestWishes } from '../../domain/health/alarm-test.ts';
import type { Leases } from '../../domain/leases.ts';
import type { FeedMemory } from '../../domain/order/feed-memory.ts';
import type { RateLedger } from '../../domain/platform/rate-ledger.ts';
import type { TokenStore } from '../../domain/platform/tokens.ts';
import type { WebhookMemoryStore } from '../../domain/platform/webhook-memory.ts';
import type { Clock } from '../../domain/time/clock.ts';
import { AlarmRows, AlarmTestRows } from './alarm-rows.ts';
import { AsideRows } from './aside-rows.ts';
import { BootTime } from './boot-time.ts';
import { CallbackRows } from './callback-rows.ts';
import { FeedRows } from './feed-rows.ts';
import { type Holders, systemHolders } from './holder.ts';
import { LeaseRows } from './lease-rows.ts';
import { RateRows } from './rate-rows.ts';
import { openStateFile } from './state-file.ts';
import { TokenRows } from './token-rows.ts';
import { WebhookRows } from './webhook-rows.ts';

export interface StateOptions {
  path: string;
  clock: Clock;
  /** How long one statement may block the event loop on another process's lock; callers then retry. */
  busyTimeoutMs?: number;
  /** Who holds lanes and leases; the machine's processes unless a simulation says otherwise. */
  holders?: Holders;
  /** Told of every token and webhook secret that is read or about to be stored, so that a log can hide it. */
  onSecret?: ((value: string) => void) | undefined;
}

/** What all processes of one company share. */
export interface State {
  ledger: RateLedger;
  tokens: TokenStore;
  leases: Leases & Pick<LeaseRows, 'isHeld' | 'holder'>;
  webhook: WebhookMemoryStore;
  alarms: AlarmMemoryStore;
  alarmTests: AlarmTestWishes;
  feed: FeedMemory;
  /** Alarms that the mirror could not take. */
  aside: Pick<AsideRows, 'list' | 'replace'>;
  callbacks: CallbackStore;
  close(): void;
}

const BUSY_TIMEOUT_MS = 20;

/**
 * Opens or creates state.db. May throw `storage-busy` while another process creates or upgrades it; try again
 * then. Throws `storage-corrupt` and `storage-newer` without touching the file.
 */
export function openState(options: StateOptions): State {
  const { clock, holders = systemHolders, onSecret } = options;
  const file = openStateFile(options.path, options.busyTimeoutMs ?? BUSY_TIMEOUT_MS);
  const { db } = file;
  const time = new BootTime({ db, clock });
  const leases = new LeaseRows({ db, time, holders });
  return {
    ledger: new RateRows({ db, time, holders }),
    tokens: new TokenRows({ db, clock, leases, onSecret }),
    leases,
    webhook: new WebhookRows({ db, onSecret }),
    alarms: new AlarmRows({ db }),
    alarmTests: new AlarmTestRows({ db }),
    feed: new FeedRows({ db }),
    aside: new AsideRows({ db }),
    callbacks: new CallbackRows({ db }),
    close: () => file.close(),
  };
}
