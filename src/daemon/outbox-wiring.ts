import type { Clock } from '../domain/clock.ts';
import type { Unlisted } from '../domain/platform.ts';
import type { Mirror } from '../store/mirror/mirror.ts';
import type { CatalogKeeper } from '../sync/catalog-sweep.ts';
import type { OutboxChores } from '../sync/outbox-care.ts';
import type { PushLine } from '../sync/push-loop.ts';
import type { ChangeDesk } from './change-desk.ts';
import type { MirrorStores, Stores } from './mirror-stores.ts';
import { unresolvedChanges } from './unresolved-changes.ts';

const SETTLED_KEPT_MS = 30 * 86_400_000;
const PRUNED_AT_ONCE = 5_000;

/** The mirror's catalogue as a sweep wants it. */
export function catalogKeeper(
  stores: MirrorStores,
  mirror: Pick<Mirror, 'keeper'>,
  clock: Clock,
): CatalogKeeper {
  return {
    readMark: () => stores.read(({ catalog }) => catalog.readMark()),
    applyPage: (branch, records, mark) =>
      stores.write(({ catalog }) => catalog.applyPage(branch, records, mark)),
    applyRead: (record, mark) => stores.write(({ catalog }) => catalog.applyRead(record, mark)),
    unlisted: (branch, seen): Unlisted[] => stores.read(({ catalog }) => catalog.unlisted(branch, seen)),
    completeSweep: (sweep) => stores.write(({ catalog }) => catalog.completeSweep(sweep)),
    async quarantine(payload) {
      const reason = 'An entry of GET /product/list could not be read whole as a product.';
      const unreadable = { source: 'catalog', receivedAtMs: clock.nowMs(), reason, payload } as const;
      await mirror.keeper.keep([{ kind: 'unreadable', unreadable }]);
    },
  };
}

export interface SendSettings {
  holdBack: boolean;
  skipUnchanged: boolean;
  /** Whether a first sweep may still come: until then targets by their own words wait. */
  hasBranches: boolean;
}

/** The mirror's outbox as the sender wants it. */
export function pushLine(stores: MirrorStores, desk: ChangeDesk, settings: SendSettings): PushLine {
  const { holdBack, skipUnchanged, hasBranches } = settings;
  const sendAsIs = ({ lookup }: Pick<Stores, 'lookup'>) => !hasBranches || lookup.isComplete;
  const targets = new WaitingTargets(desk);
  return {
    outlook: (kind) => stores.read((at) => at.claims.outlook(kind, { sendAsIs: sendAsIs(at) })),
    async claim(kind, max) {
      for (;;) {
        await targets.find(stores);
        const claim = await stores.write((at) =>
          targets.areFound(at)
            ? at.claims.claim(kind, max, { holdBack, skipUnchanged, sendAsIs: sendAsIs(at) })
            : undefined,
        );
        if (claim) return claim;
      }
    },
    settle: (callId, outcomes) => stores.write(({ settlement }) => settlement.settle(callId, outcomes)),
  };
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
  clock: Clock;
}

/** What the outbox needs besides sending. */
export function outboxChores(
  stores: MirrorStores,
  desk: ChangeDesk,
  mirror: Pick<Mirror, 'newestSeq'>,
  settings: ChoreSettings,
): OutboxChores {
  const { holdBack, clock } = settings;
  return {
    reclaim: () => stores.write(({ settlement }) => settlement.reclaim()),
    unresolved: unresolvedChanges(stores, desk, settings),
    correct: () => (holdBack ? stores.write(({ acks }) => acks.correct()) : Promise.resolve(0)),
    newestSeq: () => mirror.newestSeq(),
    prune: () =>
      stores.write(({ decisions, acks }) => {
        acks.prune();
        return decisions.prune(clock.nowMs() - SETTLED_KEPT_MS, PRUNED_AT_ONCE) === PRUNED_AT_ONCE;
      }),
    forPeople: () =>
      stores.read(({ queries }) => {
        const { held, rejected } = queries.counts();
        return { held, rejected };
      }),
  };
}
