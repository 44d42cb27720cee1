import type { Clock } from '../core/time.ts';
import type { Mirror } from '../orders/mirror.ts';
import type { ChangeKind } from '../outbox/change.ts';
import type { OutboxChores } from '../outbox/maintenance.ts';
import type { PushLine, SentOutcome } from '../outbox/sender.ts';
import { type ChangeDesk, unresolvedChanges } from './change-desk.ts';
import type { MirrorStores, Stores } from './stores.ts';

/** In one transaction; few enough that no callback waits behind it. */
const PRUNED_AT_ONCE = 250;

/** Told what became of the changes of a call; `delayMs` from handing one over to its outcome. */
export type OnSettled = (kind: ChangeKind, outcomes: readonly SettledChange[]) => void;

export interface SettledChange {
  state: 'done' | 'rejected' | 'retry';
  delayMs: number | null;
}

export interface SendSettings {
  holdBack: boolean;
  skipUnchanged: boolean;
  /** See `SendRules`. */
  trustMs: number;
  platformDeducts: boolean;
  /** Whether a first sweep may still come: until then targets by their own words wait. */
  hasBranches: boolean;
  /** Wall clock of the last complete poll of the orders; null: none yet. */
  lastPollOkMs: () => number | null;
  clock: Clock;
  onSettled?: ((outcomes: readonly SettledChange[]) => void) | undefined;
}

/** Orders of a longer silence may have taken of a stock what the mirror still has: nothing is unchanged then. */
const ORDERS_KNOWN_MS = 900_000;

/** The mirror's outbox as the sender wants it. */
export function pushLine(stores: MirrorStores, desk: ChangeDesk, settings: SendSettings): PushLine {
  const { holdBack, trustMs, platformDeducts, hasBranches, lastPollOkMs, clock, onSettled } = settings;
  const maySkip = () => {
    const lastMs = settings.skipUnchanged ? lastPollOkMs() : null;
    return lastMs !== null && Math.abs(clock.nowMs() - lastMs) < ORDERS_KNOWN_MS;
  };
  // What orders took of a stock can be told only where the catalogue says which one is meant.
  const sendAsIs = ({ lookup }: Pick<Stores, 'lookup'>, kind: ChangeKind) =>
    kind === 'stock' && holdBack ? false : !hasBranches || lookup.isComplete;
  const targets = new WaitingTargets(desk);
  return {
    outlook: (kind) =>
      stores.read((at) => at.claims.outlook(kind, { sendAsIs: sendAsIs(at, kind), holdBack })),
    async claim(kind, max) {
      for (;;) {
        await targets.find(stores);
        const skipUnchanged = maySkip();
        if (kind === 'stock') while (await stores.write((at) => at.claims.catchUp({ holdBack })));
        const claim = await stores.write((at) =>
          targets.areFound(at)
            ? at.claims.claim(kind, max, {
                ...{ holdBack, skipUnchanged, trustMs, platformDeducts },
                sendAsIs: sendAsIs(at, kind),
              })
            : undefined,
        );
        if (claim) return claim;
      }
    },
    async settle(callId, outcomes) {
      const report = await stores.write(({ settlement }) => settlement.settle(callId, outcomes));
      try {
        onSettled?.(settledChanges(stores, outcomes));
      } catch {
        // It is settled; that it could not be counted changes nothing.
      }
      return report;
    },
  };
}

function settledChanges(stores: MirrorStores, outcomes: readonly SentOutcome[]): SettledChange[] {
  return stores.read(({ queries }) =>
    outcomes.map(({ changeId, state }) => {
      const { createdAt = '', settledAt } = queries.get(changeId) ?? {};
      const delayMs = Date.parse(settledAt ?? '') - Date.parse(createdAt);
      return { state, delayMs: Number.isNaN(delayMs) ? null : Math.max(0, delayMs) };
    }),
  );
}

/** Changes looked at in one transaction. */
const PART = 500;

/**
 * Changes that were to be sent by their own words may have targets after a reading of the catalogue. They are put
 * where they belong before anything else is sent, so that an older one never arrives after a newer one.
 */
class WaitingTargets {
  readonly #desk: ChangeDesk;
  #foundAfter = '';

  constructor(desk: ChangeDesk) {
    this.#desk = desk;
  }

  /** Whether nothing of the catalogue was read whole since the last time. */
  areFound(at: Stores): boolean {
    return !at.lookup.isComplete || newestSweep(at) === this.#foundAfter;
  }

  async find(stores: MirrorStores): Promise<void> {
    if (stores.read((at) => this.areFound(at))) return;
    const newest = stores.read(newestSweep);
    let after: number | undefined = 0;
    while (after !== undefined) {
      const from: number = after;
      after = await stores.write((at) => {
        const kept = at.decisions.unresolved('as-is', { after: from, limit: PART });
        for (const each of kept) at.decisions.retarget(each, this.#desk.resolve(at, each));
        return kept.at(-1)?.changeId;
      });
    }
    this.#foundAfter = newest;
  }
}

function newestSweep({ catalog }: Stores): string {
  const times = catalog.sweeps().map(({ completedAt }) => completedAt);
  return times.sort().at(-1) ?? '';
}

export interface ChoreSettings {
  holdBack: boolean;
  /** Whether this process reads the catalogue when it is asked to. */
  readsCatalog: boolean;
  /** How long settled changes stay; 0: for ever. */
  keptMs: number;
  clock: Clock;
}

/** What the outbox needs besides sending. */
export function outboxChores(
  stores: MirrorStores,
  desk: ChangeDesk,
  mirror: Pick<Mirror, 'newestSeq'>,
  settings: ChoreSettings,
): OutboxChores {
  const { holdBack, keptMs, clock } = settings;
  return {
    reclaim: () => stores.write(({ settlement }) => settlement.reclaim()),
    unresolved: unresolvedChanges(stores, desk, settings),
    catchUp: async () => {
      // While the hold-back is off nothing is sent because of an order; the next count catches up.
      if (!holdBack) return 0;
      while (await stores.write(({ claims }) => claims.catchUp({ holdBack })));
      return stores.read(({ claims }) => claims.movedCount);
    },
    newestSeq: () => mirror.newestSeq(),
    prune: () =>
      stores.write(({ decisions, takings }) => {
        takings.collect();
        if (keptMs === 0) return false;
        return decisions.prune(clock.nowMs() - keptMs, PRUNED_AT_ONCE) === PRUNED_AT_ONCE;
      }),
    forPeople: () =>
      stores.read(({ queries }) => {
        const { held, rejected } = queries.counts();
        return { held, rejected };
      }),
  };
}
