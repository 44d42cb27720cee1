import type { Clock } from '../domain/clock.ts';
import type { Unlisted } from '../domain/platform.ts';
import type { Mirror } from '../store/mirror/mirror.ts';
import type { CatalogKeeper } from '../sync/catalog-sweep.ts';
import type { OutboxChores } from '../sync/outbox-care.ts';
import type { PushLine } from '../sync/push-loop.ts';
import type { ChangeDesk } from './change-desk.ts';
import type { MirrorStores, Stores } from './mirror-stores.ts';

const SETTLED_KEPT_MS = 30 * 86_400_000;

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
export function pushLine(stores: MirrorStores, settings: SendSettings): PushLine {
  const { holdBack, skipUnchanged, hasBranches } = settings;
  const sendAsIs = ({ lookup }: Pick<Stores, 'lookup'>) => !hasBranches || lookup.isComplete;
  return {
    outlook: (kind) => stores.read((at) => at.claims.outlook(kind, { sendAsIs: sendAsIs(at) })),
    claim: (kind, max) =>
      stores.write((at) => at.claims.claim(kind, max, { holdBack, skipUnchanged, sendAsIs: sendAsIs(at) })),
    settle: (callId, outcomes) => stores.write(({ settlement }) => settlement.settle(callId, outcomes)),
  };
}

/** What the outbox needs besides sending. */
export function outboxChores(
  stores: MirrorStores,
  desk: ChangeDesk,
  mirror: Pick<Mirror, 'newestSeq'>,
  settings: { holdBack: boolean; clock: Clock },
): OutboxChores {
  const { holdBack, clock } = settings;
  return {
    reclaim: () => stores.write(({ settlement }) => settlement.reclaim()),
    unresolved: (limit) =>
      stores.read((at) =>
        at.decisions.unresolved('needs-read', { limit }).flatMap((kept) => {
          const resolution = desk.resolve(at, kept);
          const { externalId, sku } = kept.change;
          if (resolution.state === 'needs-read') return { changeId: kept.changeId, query: resolution.query };
          const query = externalId === undefined ? { sku: sku ?? '' } : { externalId };
          return { changeId: kept.changeId, query };
        }),
      ),
    readMark: () => stores.read(({ catalog }) => catalog.readMark()),
    resolved: (changeId, record, mark) =>
      stores.write((at) => {
        if (record) at.catalog.applyRead(record, mark);
        const kept = at.decisions.unresolved('needs-read', { after: changeId - 1, limit: 1 })[0];
        if (kept?.changeId === changeId) at.decisions.retarget(kept, desk.resolve(at, kept, true));
      }),
    correct: () => (holdBack ? stores.write(({ acks }) => acks.correct()) : Promise.resolve(0)),
    newestSeq: () => mirror.newestSeq(),
    prune: () =>
      stores.write(({ decisions, acks }) => decisions.prune(clock.nowMs() - SETTLED_KEPT_MS) + acks.prune()),
  };
}

/** After a complete sweep, changes that were to be sent by their own words may have targets. */
export async function retargetAsIs(stores: MirrorStores, desk: ChangeDesk): Promise<void> {
  let after = 0;
  for (;;) {
    const last = await stores.write((at) => {
      const kept = at.decisions.unresolved('as-is', { after, limit: 200 });
      for (const each of kept) at.decisions.retarget(each, desk.resolve(at, each));
      return kept.at(-1)?.changeId;
    });
    if (last === undefined) return;
    after = last;
  }
}
