import { mkdirSync } from 'node:fs';
import path from 'node:path';
import Database from 'better-sqlite3';
import { systemClock } from '../../../src/core/system-clock.ts';
import { GUARDS_OFF } from '../../../src/outbox/intake/guards.ts';
import { Inbox } from '../../../src/outbox/intake/inbox.ts';
import { bareUpserts } from '../bare-upserts.ts';
import { openBenchSink } from '../bench-sink.ts';
import { openBenchStores } from '../bench-stores.ts';
import { externalIdOf } from '../catalog-samples.ts';
import { benchEntry } from '../mirror-samples.ts';
import { startServer } from '../server-process.ts';
import { type CpuMeasure, cpuOf, ownCpu, type Sides } from './measure.ts';
import '../../support/api-key.ts';

const PRODUCTS = 1_000;
/** Number of rows that tillsync copies from the inbox at once. */
const PER_COMMIT = 1_000;

/** Opens a separate mirror, into which the bare loop writes the same counts without looking up their targets. */
async function openBareLoop(parent: string): Promise<Pick<Sides, 'bare' | 'close'>> {
  const directory = path.join(parent, 'bare');
  mkdirSync(directory);
  const { mirror } = await openBenchStores(directory, PRODUCTS);
  const upserts = bareUpserts(directory);
  let qty = 0;
  return {
    bare: () => {
      qty += 1;
      return ownCpu(PRODUCTS, () => {
        for (let at = 0; at < PRODUCTS; at += PER_COMMIT) upserts.take(at, at + PER_COMMIT, qty);
      });
    },
    close() {
      upserts.close();
      return mirror.close();
    },
  };
}

const BARE_LOOP = 'one prepared upsert for each, in commits of a thousand';

export const COUNT_BY_INBOX: CpuMeasure = {
  name: 'count by inbox',
  beside: BARE_LOOP,
  rounds: 60,
  async open(parent) {
    const loop = await openBareLoop(parent);
    const directory = path.join(parent, 'ours');
    mkdirSync(directory);
    const { mirror, stores } = await openBenchStores(directory, PRODUCTS);
    const file = path.join(directory, 'inbox.db');
    const inbox = new Inbox({ path: file, clock: systemClock, onTrouble: () => {} });
    inbox.prepare();
    const pos = new Database(file);
    const insert = pos.prepare('INSERT INTO stock_changes (external_id, qty) VALUES (?, ?)');
    const insertAll = pos.transaction((qty: number) => {
      for (let n = 0; n < PRODUCTS; n++) insert.run(externalIdOf(n), qty);
    });
    let qty = 0;
    return {
      async ours() {
        qty += 1;
        insertAll(qty);
        let accepted = 0;
        const us = await ownCpu(PRODUCTS, async () => {
          for (let more = true; more; ) {
            const batch = inbox.read(PER_COMMIT);
            const { taken, accepted: some } = await stores.write(({ inbox: intake }) =>
              intake.ingest(batch, GUARDS_OFF),
            );
            inbox.remove(taken.changes);
            await stores.write(({ inbox: intake }) => intake.forget(taken));
            accepted += some.filter(({ state }) => state === 'pending').length;
            more = batch.changes.length > 0;
          }
        });
        if (accepted !== PRODUCTS) throw new Error(`${accepted} of ${PRODUCTS} counts were taken.`);
        return us;
      },
      bare: loop.bare,
      async close() {
        pos.close();
        inbox.close();
        await mirror.close();
        await loop.close();
      },
    };
  },
};

const PER_REQUEST = 500;

export const COUNT_BY_HTTP: CpuMeasure = {
  name: 'count by HTTP',
  beside: BARE_LOOP,
  rounds: 60,
  async open(parent) {
    const loop = await openBareLoop(parent);
    const directory = path.join(parent, 'ours');
    mkdirSync(directory);
    const server = await startServer('change-server.ts', directory, String(PRODUCTS));
    let qty = 0;
    const post = async (from: number) => {
      const counts = Array.from({ length: PER_REQUEST }, (_, n) => ({
        externalId: externalIdOf(from + n),
        qty,
      }));
      const headers = { 'content-type': 'application/json' };
      const body = JSON.stringify(counts);
      const answer = await fetch(`${server.url}/v1/stock`, { method: 'POST', body, headers });
      const { pending } = (await answer.json()) as { pending?: number };
      if (pending !== PER_REQUEST) throw new Error(`${pending} of ${PER_REQUEST} counts were taken.`);
    };
    return {
      ours() {
        qty += 1;
        return cpuOf(server.pid, PRODUCTS, async () => {
          for (let from = 0; from < PRODUCTS; from += PER_REQUEST) await post(from);
        });
      },
      bare: loop.bare,
      async close() {
        await server.stop();
        await loop.close();
      },
    };
  },
};

const ORDERS = 1_000;
const PAGE = 100;
const PAGES_AT_ONCE = 2;

/** Measures a page of a hundred events with their orders; the unit is one event. */
export const FEED_PAGE: CpuMeasure = {
  name: 'page of the feed',
  beside: 'the same rows by three prepared statements, as JSON',
  rounds: 60,
  async open(directory) {
    const { sink, close } = openBenchSink(directory);
    await sink.save(Array.from({ length: ORDERS }, (_, n) => benchEntry(n)));
    await close();
    const server = await startServer('change-server.ts', directory, '1');
    const db = new Database(path.join(directory, 'mirror.db'), { readonly: true });
    const statement = (sql: string) => db.prepare<[string | number], Record<string, unknown>>(sql);
    const events = statement('SELECT * FROM order_events WHERE seq > ? ORDER BY seq LIMIT 100');
    const order = statement('SELECT * FROM orders WHERE order_id = ?');
    const items = statement('SELECT * FROM order_items WHERE order_id = ?');
    const modifiers = statement('SELECT * FROM order_item_modifiers WHERE order_id = ?');
    const whole = (id: string) => ({
      ...order.get(id),
      items: items.all(id),
      modifiers: modifiers.all(id),
    });
    const pages = Array.from({ length: PAGES_AT_ONCE }, (_, n) => (n * PAGE) % ORDERS);
    return {
      ours: () =>
        cpuOf(server.pid, PAGES_AT_ONCE * PAGE, async () => {
          for (const after of pages) {
            const answer = await fetch(`${server.url}/v1/orders?after=${after}&limit=${PAGE}`);
            const { events: some } = (await answer.json()) as { events?: unknown[] };
            if (some?.length !== PAGE) throw new Error(`A page had ${some?.length} events.`);
          }
        }),
      bare: () =>
        ownCpu(PAGES_AT_ONCE * PAGE, () => {
          for (const after of pages) {
            const page = events.all(after);
            JSON.stringify(page.map((event) => ({ ...event, order: whole(String(event.order_id)) })));
          }
        }),
      async close() {
        db.close();
        await server.stop();
      },
    };
  },
};
