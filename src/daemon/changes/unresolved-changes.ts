import type { Resolution } from '../../domain/change/target.ts';
import type { KeptChange } from '../../store/outbox/outbox-decisions.ts';
import type { Unresolved, UnresolvedChanges } from '../../sync/product-reads.ts';
import type { MirrorStores, Stores } from '../storage/mirror-stores.ts';
import type { ChangeDesk } from './change-desk.ts';

/** How long after its beginning a whole reading of the catalogue speaks for changes that are handed over. */
const CATALOG_SPEAKS_MS = 15 * 60_000;
/** Changes looked at in one transaction. */
const PART = 200;

/** Changes whose product the mirror does not know, as the reader of products wants them. */
export function unresolvedChanges(
  stores: MirrorStores,
  desk: ChangeDesk,
  { readsCatalog }: { readsCatalog: boolean },
): UnresolvedChanges {
  return {
    count: () => stores.read(({ decisions }) => decisions.countUnresolved('needs-read')),
    next: (passedOver) => stores.write((at) => nextUnresolved(at, desk, passedOver)),
    readMark: () => stores.read(({ catalog }) => catalog.readMark()),
    resolved: (changeId, record, mark) =>
      stores.write((at) => {
        if (record) at.catalog.applyRead(record, mark);
        const kept = at.decisions.unresolved('needs-read', { after: changeId - 1, limit: 1 })[0];
        if (kept?.changeId === changeId) at.decisions.retarget(kept, desk.resolve(at, kept, true));
      }),
    async judgeByCatalog() {
      const sweptMs = stores.read(({ lookup }) => lookup.sweptMs);
      // The first reading comes by itself, and without branches there is none.
      if (sweptMs === undefined) return true;
      const handedOverUntilMs = readsCatalog ? sweptMs + CATALOG_SPEAKS_MS : undefined;
      let after = 0;
      for (;;) {
        const last = await stores.write((at) => {
          const part = { after, limit: PART, ...(handedOverUntilMs !== undefined && { handedOverUntilMs }) };
          const kept = at.decisions.unresolved('needs-read', part);
          for (const each of kept) at.decisions.retarget(each, byCatalog(desk.resolve(at, each, true), each));
          return kept.at(-1)?.changeId;
        });
        if (last === undefined) break;
        after = last;
      }
      return stores.read(({ decisions }) => decisions.countUnresolved('needs-read')) === 0;
    },
  };
}

/** When the oldest of the branches' last whole readings began; undefined while one was never read. */
function nextUnresolved(
  at: Stores,
  desk: ChangeDesk,
  passedOver: ReadonlySet<number>,
): Unresolved | undefined {
  for (const kept of at.decisions.unresolved('needs-read', { limit: PART })) {
    const resolution = desk.resolve(at, kept);
    if (resolution.state === 'needs-read') {
      if (passedOver.has(kept.changeId)) continue;
      return { changeId: kept.changeId, query: resolution.query };
    }
    at.decisions.retarget(kept, resolution);
  }
  return undefined;
}

function byCatalog(resolution: Resolution, { change }: KeptChange): Resolution {
  if (resolution.state !== 'rejected' || resolution.code !== 'unknown-product') return resolution;
  const name = change.externalId === undefined ? `sku ${change.sku}` : `externalId ${change.externalId}`;
  return { ...resolution, message: `No configured branch lists a product with ${name}.` };
}
