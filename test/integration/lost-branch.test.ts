/**
 * Kills a branch at a random moment, throws its files away and joins a new machine in its place. TILLSYNC_LOST says how
 * many machines are lost.
 */

import { rmSync } from 'node:fs';
import path from 'node:path';
import Database from 'better-sqlite3';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { systemClock } from '../../src/core/system-clock.ts';
import type { Random } from '../../src/core/time.ts';
import { type BranchPlace, ChainPlace, rowsOf, TWO_BRANCHES } from '../support/chain-place.ts';
import { seededRandom } from '../support/fake-clock.ts';
import { hasNatsServer } from '../support/nats-server.ts';
import { limitMs } from '../support/shared-config.ts';
import { until } from '../support/workplace.ts';

const MACHINES = Number(process.env.TILLSYNC_LOST ?? 3);
/** The till pauses for at most this long between two orders. */
const PAUSE_MS = 300;
/** The machine is killed within this time after its till has begun. */
const LIFE_MS = 8_000;

/** What a till handed over, with the time. `what` is an order's id or a count's reference, which ends in `n`. */
interface Handed {
  what: string;
  n: number;
  atMs: number;
}

/** A till at a branch: it reads orders from the mirror, acknowledges each and counts after it, all by SQL. */
class Till {
  readonly acks: Handed[] = [];
  readonly counts: Handed[] = [];
  readonly #place: BranchPlace;
  readonly #chain: ChainPlace;
  readonly #random: Random;
  readonly #name: string;
  #isOver = false;
  #working: Promise<void> | undefined;

  constructor(chain: ChainPlace, place: BranchPlace, name: string, random: Random) {
    this.#chain = chain;
    this.#place = place;
    this.#name = name;
    this.#random = random;
  }

  open(): void {
    this.#working = this.#work();
  }

  async close(): Promise<void> {
    this.#isOver = true;
    await this.#working;
  }

  /** Closes the till in the moment of the kill: it hands over nothing afterwards. */
  async die(killed: Promise<void>): Promise<void> {
    await Promise.all([killed, this.close()]);
  }

  async #work(): Promise<void> {
    const { storage } = this.#place;
    const inbox = new Database(path.join(storage, 'inbox/inbox.db'), { timeout: 5_000 });
    const acknowledge = inbox.prepare('INSERT INTO order_acks (order_id) VALUES (?)');
    const count = inbox.prepare('INSERT INTO stock_changes (sku, qty, reference) VALUES (?, ?, ?)');
    const [product] = this.#chain.hub.sandbox.control.products();
    const sku = String(product?.children[0]?.sku);
    try {
      for (let n = 1; !this.#isOver; n++) {
        const orderId = this.#chain.orderFor('sub-1');
        this.#chain.hub.sandbox.control.advanceOrder(orderId, 'payment-approved');
        // Some orders are left to be booked by the next machine.
        const isBooked = this.#random.next() < 0.7;
        while (!this.#isOver && !this.#chain.has(this.#place, orderId)) await systemClock.sleep(20);
        if (this.#isOver) return;
        if (isBooked) {
          acknowledge.run(orderId);
          this.acks.push({ what: orderId, n, atMs: Date.now() });
          const reference = `${this.#name}-${n}`;
          count.run(sku, 100 + n, reference);
          this.counts.push({ what: reference, n, atMs: Date.now() });
        }
        await systemClock.sleep(this.#random.next() * PAUSE_MS);
      }
    } finally {
      inbox.close();
    }
  }
}

describe.skipIf(!hasNatsServer)('a branch whose machine is lost, and that is invited again', () => {
  let chain: ChainPlace;
  let place: BranchPlace;
  const random = seededRandom(Number(process.env.TILLSYNC_SEED ?? 1));
  /** Seconds before its end of which a lost machine took something with it. */
  const lostS: number[] = [];

  const strings = (storage: string, sql: string, file?: string) =>
    new Set(rowsOf<{ value: string }>(storage, sql, file).map(({ value }) => value));
  const ackedIn = ({ storage }: { storage: string }) =>
    strings(storage, 'SELECT order_id AS value FROM order_acks WHERE seq IS NOT NULL');
  const toBookIn = ({ storage }: { storage: string }) =>
    strings(storage, 'SELECT order_id AS value FROM orders_to_book');
  /** Returns the number of a machine's newest count that the hub has. A newer count replaces an older one on its way. */
  const newestCountAtHub = (machine: string) => {
    const sql = "SELECT replace(reference, 'B1: ', '') AS value FROM outbox";
    const own = [...strings(chain.hub.storage, sql)].filter((each) => each.startsWith(`${machine}-`));
    return Math.max(0, ...own.map((each) => Number(each.split('-')[1])));
  };

  /** Returns what the lost machine's own files say that the hub may not have. */
  const unsentOf = ({ storage }: BranchPlace) => ({
    acks: new Set([
      ...strings(storage, 'SELECT order_id AS value FROM order_acks', 'inbox/inbox.db'),
      ...strings(storage, 'SELECT order_id AS value FROM _up_acks'),
      ...strings(storage, "SELECT json_extract(body, '$.value') AS value FROM _up_items WHERE kind = 'ack'"),
    ]),
    counts: new Set([
      ...strings(storage, 'SELECT reference AS value FROM stock_changes', 'inbox/inbox.db'),
      ...strings(storage, "SELECT reference AS value FROM outbox WHERE state = 'pending'"),
      ...strings(
        storage,
        "SELECT json_extract(body, '$.reference') AS value FROM _up_items WHERE kind = 'stock'",
      ),
    ]),
  });

  beforeAll(async () => {
    chain = await ChainPlace.open(53, TWO_BRANCHES);
    await chain.startHub();
    place = await chain.join('B1');
    await chain.start(place);
    await chain.arrives(place, chain.orderFor('sub-1'));
    await until('the catalogue is there', () => chain.hasCaughtUp('B1', place), 60_000);
  }, limitMs(180_000));

  afterAll(async () => {
    await chain.close();
    const figures = [...lostS].sort((a, b) => a - b).map((s) => s.toFixed(2));
    process.stderr.write(`seconds of a lost machine that are missing: ${figures.join(' ')}\n`);
  });

  it.each(Array.from({ length: MACHINES }, (_, n) => n + 1))(
    'goes on with its orders and acknowledgements, and no number comes twice: machine %i',
    async (n) => {
      const till = new Till(chain, place, `m${n}`, random);
      till.open();
      await systemClock.sleep(500 + LIFE_MS * random.next());
      const endMs = Date.now();
      await till.die(chain.kill(place));

      // Recovers the inbox, which the kill may have left with a journal that a reader cannot roll back.
      chain.edit(place.storage, 'inbox/inbox.db', 'SELECT 1 FROM order_acks');
      const unsent = unsentOf(place);
      const had = strings(place.storage, "SELECT order_id || ' ' || status AS value FROM orders");
      const [{ seq: read } = { seq: 0 }] = rowsOf<{ seq: number }>(
        place.storage,
        'SELECT max(seq) AS seq FROM order_events',
      );
      rmSync(place.storage, { recursive: true });
      rmSync(place.configFile);

      const next = chain.branchAt(`B1-${n}`, await chain.invite('B1'));
      const joined = await chain.joinAs(next);
      expect(joined.code, joined.stderr).toBe(0);
      // The machines after this one begin with it, also if something below is found wrong.
      place = next;
      await chain.start(next);
      const isSnapshotWritten = "SELECT 1 FROM _feed_branches WHERE branch = 'B1' AND snapshot_stage IS NULL";
      const hasAll = () =>
        rowsOf(chain.hub.storage, isSnapshotWritten).length === 1 && chain.hasCaughtUp('B1', next);
      await until('it has all', hasAll, 120_000);

      // What the hub had not accepted is missing, and nothing else.
      const hubAcks = ackedIn(chain.hub);
      const newestCount = newestCountAtHub(`m${n}`);
      const acks = till.acks.filter(({ what }) => !hubAcks.has(what));
      const counts = till.counts.filter((count) => count.n > newestCount);
      for (const { what } of acks) expect(unsent.acks).toContain(what);
      for (const { what } of counts.slice(-1)) expect(unsent.counts).toContain(what);
      const missing = [...acks, ...counts];
      lostS.push(Math.max(0, ...missing.map(({ atMs }) => (endMs - atMs) / 1_000)));

      const has = strings(next.storage, "SELECT order_id || ' ' || status AS value FROM orders");
      for (const order of had) expect(has).toContain(order);
      expect([...ackedIn(next)].sort()).toEqual([...hubAcks].sort());
      const toBook = strings(
        chain.hub.storage,
        "SELECT order_id AS value FROM orders_to_book WHERE store_external_id = 'B1'",
      );
      expect([...toBookIn(next)].sort()).toEqual([...toBook].sort());
      const [{ seq: first } = { seq: 0 }] = rowsOf<{ seq: number }>(
        next.storage,
        'SELECT min(seq) AS seq FROM order_events',
      );
      expect(first).toBeGreaterThan(read);
      // Nothing that the hub said of the lost machine's changes is taken for an answer here.
      expect(rowsOf(next.storage, 'SELECT * FROM outbox')).toEqual([]);
    },
    limitMs(180_000),
  );

  it(
    'gets answers to what its new machine hands over',
    async () => {
      const till = new Till(chain, place, 'last', random);
      till.open();
      await until('it handed over counts', () => till.counts.length >= 3, 60_000);
      await till.close();
      // A newer count replaces one that waits, so not each has a row of its own.
      const newest = till.counts.at(-1)?.what ?? '';
      const isDone = `SELECT 1 FROM outbox WHERE reference = '${newest}' AND state = 'done'`;
      await until('the newest has its answer', () => rowsOf(place.storage, isDone).length === 1, 60_000);
      const unsettled = "SELECT 1 FROM outbox WHERE state IN ('pending', 'sending')";
      await until('so has each before it', () => rowsOf(place.storage, unsettled).length === 0, 60_000);
      const acked = () => till.acks.every(({ what }) => ackedIn(chain.hub).has(what));
      await until('the hub has the acknowledgements', acked, 60_000);
      // The lost machines' changes have their answers at the hub.
      const open = "SELECT 1 FROM outbox WHERE reference LIKE 'B1: m%' AND state IN ('pending', 'sending')";
      await until('no change of a lost machine is open', () => rowsOf(chain.hub.storage, open).length === 0);
    },
    limitMs(120_000),
  );
});
