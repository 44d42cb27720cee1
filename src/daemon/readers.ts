import { existsSync } from 'node:fs';
import { join } from 'node:path';
import type { Config } from '../config/config-type.ts';
import { whenFree } from '../domain/busy.ts';
import type { Clock } from '../domain/clock.ts';
import { asTillsyncError, TillsyncError } from '../domain/errors.ts';
import type { RateLedger } from '../domain/rate-ledger.ts';
import type { TokenStore } from '../domain/tokens.ts';
import { type Mirror, openMirror } from '../store/mirror/mirror.ts';
import { openState, type State } from '../store/state/open-state.ts';

export interface ReadersOptions {
  config: Config;
  clock: Clock;
}

/** What a command needs that only looks: nothing is created, upgraded or written. */
export interface Readers {
  mirror: Mirror;
  /** Of state.db; undefined when there is none yet or another user's commands own it, then `stateFault` says so. */
  state: { tokens: Pick<TokenStore, 'read'>; ledger: Pick<RateLedger, 'waits'> } | undefined;
  stateFault: string | undefined;
  /** Rows of the mirror. */
  counts(): { orders: number; openOrders: number; events: number; quarantine: number };
  close(): Promise<void>;
}

/** Opens the stored files for looking, also beside a running daemon. Throws `not-found` before the first start. */
export async function openReaders({ config, clock }: ReadersOptions): Promise<Readers> {
  const { directory } = config.storage;
  const path = join(directory, 'mirror.db');
  if (!existsSync(path)) {
    throw new TillsyncError('not-found', `There is no mirror in ${directory} yet.`, {
      hint: 'Start tillsync first (tillsync run), or look into another directory with --config FILE.',
    });
  }
  const mirror = await whenFree(clock, () => openMirror({ path, clock, readonly: true }));
  const { state, fault } = await stateOf(join(directory, 'state.db'), clock);
  return {
    mirror,
    state,
    stateFault: fault,
    counts: () => countsOf(mirror),
    close: async () => {
      state?.close();
      await mirror.close();
    },
  };
}

async function stateOf(path: string, clock: Clock): Promise<{ state?: State; fault?: string }> {
  if (!existsSync(path)) return { fault: 'There is no state.db yet, so nothing is known of tokens.' };
  try {
    return { state: await whenFree(clock, () => openState({ path, clock })) };
  } catch (error) {
    return { fault: `Nothing can be said of tokens: ${asTillsyncError(error).message}` };
  }
}

function countsOf(mirror: Mirror) {
  const open = "(status IS NULL OR status NOT IN ('dispatched', 'payment-canceled', 'cancel', 'refund'))";
  const counts = mirror.read(({ db }) =>
    db
      .prepare<[], { orders: number; openOrders: number; quarantine: number }>(
        `SELECT (SELECT count(*) FROM orders) AS orders,
           (SELECT count(*) FROM orders WHERE ${open}) AS openOrders,
           (SELECT count(*) FROM quarantine) AS quarantine`,
      )
      .get(),
  );
  const { orders = 0, openOrders = 0, quarantine = 0 } = counts ?? {};
  return { orders, openOrders, events: mirror.newestSeq(), quarantine };
}
