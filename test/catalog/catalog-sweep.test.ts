/** Tests src/catalog/sweep.ts. */

import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { openMirror } from '../../src/app/mirror.ts';
import { LeasedSweep } from '../../src/catalog/sweep.ts';
import { TillsyncError } from '../../src/core/errors.ts';
import type { Mirror } from '../../src/orders/reading/mirror.ts';
import { MirrorStores } from '../../src/outbox/sending/repositories.ts';
import type { ProductListQuery, ProductPage, ProductRecord } from '../../src/platform/schemas.ts';
import { product } from '../outbox/outbox-fixture.ts';
import { tempState } from '../platform/temp-state.ts';
import { FakeClock } from '../support/fake-clock.ts';
import { freshMirror } from '../support/fresh-mirror.ts';

const BRANCH = { subsidiaryId: 's1', externalId: null };
const item = (n: number) => product(`p${n}`, `Product ${n}`, [{ sku: `${n}`, stocks: { s1: [`E${n}`, n] } }]);
const items = (count: number) => Array.from({ length: count }, (_, i) => item(i + 1));

let directory: string;
let mirror: Mirror;
let stores: MirrorStores;
/** The platform's products, oldest first. */
let shelf: ProductRecord[];
let calls: { page: number; limit: number }[];
let gets: string[];
let quarantined: string[];
let doubt: string | null;
let beforePage: (page: number, call: number) => void;
let shape: (page: ProductPage, asked: ProductListQuery) => ProductPage;

beforeEach(() => {
  directory = mkdtempSync(path.join(tmpdir(), 'tillsync-sweep-'));
  mirror = openMirror({ path: freshMirror(directory), clock: new FakeClock() });
  stores = new MirrorStores({ mirror, branches: [BRANCH], clock: mirrorClock });
  calls = [];
  gets = [];
  quarantined = [];
  doubt = null;
  beforePage = () => {};
  shape = (page) => page;
});
const mirrorClock = new FakeClock();
afterEach(async () => {
  await mirror.close();
  rmSync(directory, { recursive: true, force: true });
});

function sweep(pageSize = 10, scheduledMs?: number) {
  const run = new LeasedSweep({
    platform: {
      async productList(query, options) {
        calls.push({ page: query.page, limit: query.limit });
        options?.onSend?.();
        beforePage(query.page, calls.length);
        const start = (query.page - 1) * query.limit;
        const docs = shelf.slice(start, start + query.limit);
        const totalPages = Math.ceil(shelf.length / query.limit);
        const whole = { docs, unreadable: [], totalDocs: shelf.length, limit: query.limit, page: query.page };
        return shape({ ...whole, totalPages, hasNextPage: query.page < totalPages }, query);
      },
      async productGet(query) {
        const sku = 'sku' in query ? query.sku : '';
        gets.push(sku);
        return shelf.find(({ children }) => children.some((child) => child.sku === sku)) ?? null;
      },
    },
    stores,
    leases: tempState(mirrorClock).leases,
    quarantine: async (text) => void quarantined.push(text),
    alarms: {
      note(_key, trouble) {
        doubt = trouble;
      },
    },
    clock: mirrorClock,
    pageSize,
  });
  return run.sweep(BRANCH, { scheduledMs });
}

const mirrored = (state: 'there' | 'vanished' = 'there') =>
  mirror.read((db) =>
    db
      .prepare<[], string>(
        `SELECT product_id FROM products WHERE vanished_at IS ${state === 'there' ? '' : 'NOT'} NULL
         ORDER BY CAST(substr(product_id, 2) AS INTEGER)`,
      )
      .pluck()
      .all(),
  );
const ids = (records: ProductRecord[]) => records.map(({ id }) => id);
const writes = () => mirror.read((db) => Number(db.prepare('SELECT total_changes()').pluck().get()));

describe('a sweep', () => {
  it('takes one call a page, and a second one without changes writes nothing but its end', async () => {
    shelf = items(95);
    expect(await sweep()).toMatchObject({ products: 95, pages: 10, written: 95, vanished: 0, restarts: 0 });
    expect(calls).toHaveLength(10);
    expect(mirrored()).toEqual(ids(shelf));
    const before = writes();
    expect(await sweep()).toMatchObject({ written: 0, pages: 10 });
    expect(writes() - before).toBe(1);
  });

  it('keeps an entry that is no product, and goes on with its neighbours', async () => {
    shelf = items(3);
    shape = (page) => ({ ...page, docs: page.docs.slice(1), unreadable: ['{"name":"no id"}'] });
    expect(await sweep()).toMatchObject({ products: 2, unreadable: 1, restarts: 0 });
    expect(quarantined).toEqual(['{"name":"no id"}']);
    expect(mirrored()).toEqual(['p2', 'p3']);
  });

  it('begins again when the list shifts under it, and takes nothing for vanished that is there', async () => {
    shelf = items(35);
    await sweep();
    const [gone] = shelf;
    beforePage = (page, call) => {
      if (page === 3 && call < 5) shelf = shelf.slice(1);
    };
    calls = [];
    expect(await sweep()).toMatchObject({ restarts: 1, vanished: 1 });
    expect(mirrored()).toEqual(ids(shelf));
    expect(mirrored('vanished')).toEqual([gone?.id]);
  });

  it('asks for what a deletion and a creation at once have hidden', async () => {
    shelf = items(35);
    await sweep();
    beforePage = (page) => {
      if (page === 2 && shelf.some(({ id }) => id === 'p1')) shelf = [...shelf.slice(1), item(36)];
    };
    expect(await sweep()).toMatchObject({ restarts: 0, vanished: 0 });
    expect(gets).toEqual(['11']);
    // The product that was deleted after it was listed is missing in the next sweep.
    expect(await sweep()).toMatchObject({ restarts: 0, vanished: 1, products: 35 });
    expect(gets).toEqual(['11', '1']);
    expect(mirrored()).toEqual(ids(shelf));
  });

  it('believes a great disappearance only when it is said twice', async () => {
    shelf = items(60);
    await sweep();
    const all = shelf;
    beforePage = (_page, call) => {
      shelf = call === 1 ? all.slice(0, 35) : all;
    };
    calls = [];
    await sweep(100);
    expect(mirrored('vanished')).toEqual([]);
    beforePage = () => {
      shelf = all.slice(0, 35);
    };
    expect(await sweep(100)).toMatchObject({ vanished: 25 });
    expect(mirrored()).toEqual(ids(all.slice(0, 35)));
    beforePage = () => {
      shelf = all;
    };
    await sweep(100);
    expect(mirrored()).toEqual(ids(all));
  });

  it.each([
    ['every product', 60, 0],
    ['most of few products', 5, 2],
  ])('believes that %s is gone only at the next reading of the schedule', async (_what, count, left) => {
    const all = items(count);
    const rows = () =>
      mirror.read((db) => ({
        skus: db.prepare('SELECT count(*) FROM skus').pluck().get(),
        stocks: db.prepare('SELECT count(*) FROM stocks').pluck().get(),
        ids: db.prepare('SELECT count(*) FROM integrations').pluck().get(),
      }));
    shelf = all;
    await sweep(100);
    shelf = all.slice(0, left);
    const nightMs = mirrorClock.nowMs();
    await mirrorClock.advance(5_000);
    // Readings for the same time of the schedule and those by command, however many, say it once.
    for (const scheduledMs of [nightMs, undefined, undefined, nightMs]) {
      expect(await sweep(100, scheduledMs)).toMatchObject({ vanished: 0, doubted: count - left });
    }
    expect(mirrored()).toEqual(ids(all));
    expect(rows()).toEqual({ skus: count, stocks: count, ids: count });
    expect(doubt).toContain(`s1: ${count - left} of ${count} products missing since`);
    // A reading with all of them ends the doubt.
    shelf = all;
    expect(await sweep(100)).toMatchObject({ vanished: 0, doubted: 0, written: 0 });
    expect(doubt).toBeNull();
    shelf = all.slice(0, left);
    await mirrorClock.advance(60_000);
    const nextMs = mirrorClock.nowMs();
    await mirrorClock.advance(5_000);
    expect(await sweep(100, nextMs)).toMatchObject({ vanished: 0, doubted: count - left });
    await mirrorClock.advance(60_000);
    expect(await sweep(100, mirrorClock.nowMs())).toMatchObject({ vanished: count - left, doubted: 0 });
    expect(mirrored()).toEqual(ids(shelf));
    expect(doubt).toBeNull();
  });

  describe.each([
    ['skus', () => ({ children: [] })],
    [
      'stocks',
      ({ children }: ProductRecord) => ({ children: children.map((child) => ({ ...child, stocks: [] })) }),
    ],
    [
      'ids',
      ({ children }: ProductRecord) => ({
        children: children.map((child) => ({ ...child, integrations: [] })),
      }),
    ],
    [
      'ids, each of them null,',
      ({ children }: ProductRecord) => ({
        children: children.map((child) => ({
          ...child,
          integrations: child.integrations.map((each) => ({ ...each, extId: null })),
        })),
      }),
    ],
  ])('a list whose products have no %s', (_what, without) => {
    const emptied = (record: ProductRecord) => {
      const changed = { ...record, ...without(record), raw: '' };
      return { ...changed, raw: JSON.stringify(changed) };
    };
    const rows = () =>
      ['skus', 'stocks', 'integrations WHERE ext_id IS NOT NULL'].map((table) =>
        mirror.read((db) => db.prepare(`SELECT count(*) FROM ${table}`).pluck().get()),
      );

    it('is believed only at the next reading of the schedule, if that says so of most', async () => {
      const all = items(24);
      shelf = all;
      await sweep(100);
      shelf = all.map(emptied);
      const nightMs = mirrorClock.nowMs();
      await mirrorClock.advance(5_000);
      for (const scheduledMs of [nightMs, undefined, nightMs]) {
        expect(await sweep(100, scheduledMs)).toMatchObject({ doubted: 24 });
        expect(rows()).toEqual([24, 24, 24]);
      }
      expect(doubt).toContain('s1: 24 of 24 products missing since');
      shelf = all;
      expect(await sweep(100)).toMatchObject({ doubted: 0 });
      expect(doubt).toBeNull();
      shelf = all.map(emptied);
      expect(await sweep(100)).toMatchObject({ doubted: 24 });
      await mirrorClock.advance(60_000);
      expect(await sweep(100, mirrorClock.nowMs())).toMatchObject({ doubted: 0, vanished: 0 });
      expect(rows().filter((count) => count === 0).length).toBeGreaterThan(0);
      expect(doubt).toBeNull();
      expect(await sweep(100)).toMatchObject({ written: 0 });
    });

    it('is believed at once if it says so of few', async () => {
      const all = items(24);
      shelf = all;
      await sweep(100);
      shelf = all.map((record, i) => (i < 2 ? emptied(record) : record));
      expect(await sweep(100)).toMatchObject({ doubted: 0 });
      expect(rows()).toContain(22);
      expect(doubt).toBeNull();
    });
  });

  it('takes nothing for vanished when it breaks off, or when the list never holds still', async () => {
    shelf = items(60);
    await sweep();
    beforePage = (page) => {
      if (page === 3) throw new TillsyncError('platform-failed', 'HTTP 500.');
      shelf = items(60).slice(30);
    };
    await expect(sweep()).rejects.toThrow('HTTP 500');
    let n = 60;
    beforePage = () => {
      n += 1;
      shelf = [...items(40), item(n)].slice(0, n % 2 === 0 ? 41 : 40);
    };
    await expect(sweep()).rejects.toThrow('changed under each of 3 readings');
    expect(mirrored('vanished')).toEqual([]);
  });

  it('falls back to the usual page size when a larger one is refused', async () => {
    shelf = items(50);
    shape = (page, asked) => {
      if (asked.limit > 20) throw new TillsyncError('platform-refused', 'limit must not be above 20');
      return page;
    };
    expect(await sweep(100)).toMatchObject({ products: 50, pages: 3 });
    expect(calls.map(({ limit }) => limit)).toEqual([100, 20, 20, 20]);
  });

  it('does not go on with smaller pages when a later one is refused', async () => {
    shelf = items(250);
    shape = (page, asked) => {
      if (asked.page > 1) throw new TillsyncError('platform-refused', 'not now');
      return page;
    };
    await expect(sweep(100)).rejects.toThrow('not now');
    expect(calls).toHaveLength(2);
  });

  it('takes nothing for vanished that a page left out, though nobody can ask for it', async () => {
    const bare = (n: number) => product(`p${n}`, `Product ${n}`, []);
    shelf = [...items(11), bare(12), ...items(15).slice(12)];
    await sweep();
    // The totals are right, but one product is on no page.
    const omit = ({ docs, ...page }: ProductPage) => ({
      ...page,
      docs: docs.filter(({ id }) => id !== 'p12'),
    });
    shape = omit;
    await expect(sweep()).rejects.toThrow('changed under each');
    // There are no totals, and another product is on two pages.
    shape = (page) => ({
      ...omit(page),
      docs: page.page === 2 ? [...omit(page).docs, ...shelf.slice(0, 1)] : page.docs,
      totalDocs: null,
    });
    await expect(sweep()).rejects.toThrow('changed under each');
    expect(mirrored('vanished')).toEqual([]);
  });

  it('takes a product for vanished whose sku another one has now', async () => {
    shelf = items(15);
    await sweep();
    shelf = [...shelf.slice(1), product('p16', 'Product 16', [{ sku: '1', stocks: { s1: ['E1', 1] } }])];
    // Another branch lists product 16, but this branch does not.
    shape = ({ docs, totalDocs, ...page }) => ({
      ...page,
      docs: docs.filter(({ id }) => id !== 'p16'),
      totalDocs: Number(totalDocs) - 1,
    });
    expect(await sweep()).toMatchObject({ vanished: 1 });
    expect(mirrored('vanished')).toEqual(['p1']);
  });

  it('reads on when pages are shorter than asked for and say nothing of what follows', async () => {
    shelf = items(50);
    shape = (_page, asked) => ({
      docs: shelf.slice((asked.page - 1) * 20, asked.page * 20),
      unreadable: [],
      totalDocs: null,
      limit: null,
      page: null,
      totalPages: null,
      hasNextPage: null,
    });
    expect(await sweep(100)).toMatchObject({ products: 50, vanished: 0 });
    expect(await sweep(100)).toMatchObject({ products: 50, vanished: 0, written: 0 });
    expect(mirrored()).toEqual(ids(shelf));
  });

  it('ends when a platform promises a next page for ever', async () => {
    shelf = items(15);
    shape = (page) => ({ ...page, hasNextPage: true });
    expect(await sweep()).toMatchObject({ products: 15 });
    expect(calls.length).toBeLessThan(5);
    shape = (page) => ({ ...page, docs: shelf.slice(0, 10), hasNextPage: true });
    await expect(sweep()).rejects.toThrow('changed under each');
    expect(mirrored('vanished')).toEqual([]);
  });
});
