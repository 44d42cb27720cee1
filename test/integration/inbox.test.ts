import { existsSync, readdirSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import Database from 'better-sqlite3';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { systemClock } from '../../src/core/system-clock.ts';
import { seededRandom } from '../support/fake-clock.ts';
import { limitMs } from '../support/shared-config.ts';
import { type DaemonProcess, openWorkplace, until, type Workplace } from '../support/workplace.ts';

const SEED = Number(process.env.TILLSYNC_TEST_SEED ?? 23);
let place: Workplace;
let inbox: string;

beforeEach(async () => {
  place = await openWorkplace(SEED);
  inbox = path.join(place.storage, 'inbox', 'inbox.db');
});
afterEach(() => place.close());

function using<T>(file: string, options: Database.Options, action: (db: Database.Database) => T): T {
  const db = new Database(file, options);
  try {
    return action(db);
  } finally {
    db.close();
  }
}

const pos = <T>(action: (db: Database.Database) => T) => using(inbox, { fileMustExist: true }, action);
const mirror = <T>(query: string) =>
  using(path.join(place.storage, 'mirror.db'), { readonly: true }, (db) => db.prepare(query).all() as T[]);
const put = (qty: number, externalId = 'A-1001-1') =>
  pos((db) => db.prepare('INSERT INTO stock_changes (external_id, qty) VALUES (?, ?)').run(externalId, qty));
const onPlatform = () => place.sandbox.control.stockOf(1001, 'sub-1');
const alarm = () =>
  mirror<{ message: string }>("SELECT message FROM alarms WHERE key = 'inbox.damaged'")[0]?.message;

async function run(): Promise<DaemonProcess> {
  const daemon = await place.run();
  await until('the inbox is there and whole', () => {
    try {
      return pos((db) => db.pragma('user_version', { simple: true })) === 1;
    } catch {
      return false;
    }
  });
  return daemon;
}

describe('an inbox in the hands of a POS', () => {
  it('takes acknowledgements of CHAR columns, and tells of orders that nobody heard of', async () => {
    const order = place.sandbox.control.createOrder().internalOrderId;
    const daemon = await run();
    await until('the order is there', () => place.mirrorRows().some((row) => row.order_id === order));
    pos((db) => {
      const ack = db.prepare('INSERT INTO order_acks (order_id) VALUES (?)');
      for (const id of [`${order}      `, 'ord-1002X  ']) ack.run(id);
    });
    const acks = () => mirror<{ order_id: string }>('SELECT order_id FROM order_acks ORDER BY order_id');
    await until('both are noted', () => acks().length === 2);
    expect(acks().map((row) => row.order_id)).toEqual([order, 'ord-1002X'].sort());
    await until('it is told', () => daemon.log().includes('ord-1002X'));
    expect(daemon.log()).not.toContain(`"orders":["${order}`);
    expect(await daemon.end('SIGTERM')).toBe(0);
  });

  it('the last hand-over wins, whatever way it took: 40 by SQL and then 10 by HTTP is 10', async () => {
    const daemon = await run();
    const { port } = place.config.local;
    const byHttp = async (qty: number) => {
      const answer = await fetch(`http://127.0.0.1:${port}/v1/stock`, {
        method: 'POST',
        headers: { 'content-type': 'application/json' },
        body: JSON.stringify([{ externalId: 'A-1001-1', qty }]),
      });
      expect(answer.status, await answer.text()).toBeLessThan(300);
    };
    const isQuiet = () =>
      mirror("SELECT 1 FROM outbox WHERE state IN ('pending', 'sending')").length === 0 &&
      pos((db) => db.prepare('SELECT count(*) FROM stock_changes').pluck().get()) === 0;
    for (let round = 0; round < 5; round++) {
      put(40 + round);
      await byHttp(10 + round);
      await until('nothing waits', isQuiet);
      expect(onPlatform()).toBe(10 + round);
    }
    expect(await daemon.end('SIGTERM')).toBe(0);

    // The command's count is newer than the one in the inbox, but is accepted first.
    put(20);
    const set = await place.command('stock', 'set', '--external-id', 'A-1001-1', '--qty', '5', '--wait');
    expect(set.code, set.stderr).toBe(0);
    const again = await run();
    await until('nothing waits', isQuiet);
    expect(onPlatform()).toBe(5);
    await until(
      'nothing is noted any more',
      () => mirror("SELECT * FROM _seen WHERE kind = 'hand-over'").length === 0,
    );
    expect(await again.end('SIGTERM')).toBe(0);
  });

  it(
    'that is locked for long, damaged, deleted or replaced stops nothing else and says so',
    async () => {
      const { control } = place.sandbox;
      const daemon = await run();
      put(5);
      await until('the count is there', () => onPlatform() === 5);

      const holder = new Database(inbox);
      holder.exec('BEGIN EXCLUSIVE');
      holder.prepare("INSERT INTO stock_changes (external_id, qty) VALUES ('A-1001-1', 6)").run();
      const order = control.createOrder();
      await until('orders arrive meanwhile', () =>
        place.mirrorRows().some((row) => row.order_id === order.internalOrderId),
      );
      await systemClock.sleep(500);
      expect(alarm()).toBeUndefined();
      holder.exec('COMMIT');
      holder.close();
      await until('what was held is there', () => onPlatform() === 6);

      writeFileSync(inbox, 'rubbish '.repeat(2_000));
      await until('it is set aside', () => alarm()?.includes('damaged') ?? false);
      const kept = readdirSync(path.dirname(inbox)).filter((name) => name.includes('.damaged-'));
      expect(kept).toHaveLength(1);
      expect(alarm()).toContain(kept[0]);
      put(7);
      await until('the new one works', () => onPlatform() === 7);
      expect(alarm()).toContain(kept[0]);
      await daemon.end('SIGTERM');
      const again = await run();
      await systemClock.sleep(700);
      expect(alarm()).toContain(kept[0]);
      rmSync(path.join(path.dirname(inbox), kept[0] as string));
      await until('the alarm is over', () => alarm() === undefined);

      rmSync(inbox);
      await until('a new one is there', () => existsSync(inbox));
      await until('it says so', () => alarm()?.includes('deleted') ?? false);
      await until('the POS can insert', () => {
        try {
          return put(8).changes === 1;
        } catch {
          return false;
        }
      });
      await until('it arrives', () => onPlatform() === 8);
      await until('the alarm is over', () => alarm() === undefined);

      using(`${inbox}.copy`, {}, (db) => db.exec(pos((from) => schemaOf(from))));
      using(`${inbox}.copy`, {}, (db) => {
        db.pragma('user_version = 1');
        db.prepare("INSERT INTO stock_changes (external_id, qty) VALUES ('A-1001-1', 9)").run();
      });
      renameSync(`${inbox}.copy`, inbox);
      await until('the other one is used', () => onPlatform() === 9);
      expect(await again.end('SIGTERM')).toBe(0);
      expect(control.violations()).toEqual([]);
    },
    limitMs(60_000),
  );

  it(
    `loses nothing and sends nothing old over anything new, killed again and again (seed ${SEED})`,
    async () => {
      const { control } = place.sandbox;
      const random = seededRandom(SEED);
      const targets = control
        .products()
        .flatMap(({ children }) => children)
        .flatMap(({ sku, stocks, integrations }) =>
          integrations.flatMap(({ subsidiaryId, productIdPosA }) =>
            productIdPosA !== null && stocks.some((entry) => entry.subsidiaryId === subsidiaryId)
              ? [{ sku, subsidiaryId, externalId: productIdPosA }]
              : [],
          ),
        );
      expect(targets.length).toBeGreaterThan(40);
      const last = new Map<string, number>();
      control.setFault({ kind: 'drop', endpoint: 'product.stock.batch', when: 'after', probability: 0.1 });
      let inserted = 0;
      const first = await run();
      // The kills begin after the first token refresh, because a kill during a refresh loses the tokens in any case.
      const polled =
        "SELECT last_ok_at FROM freshness WHERE subject = 'orders.poll' AND last_ok_at IS NOT NULL";
      await until('the first tokens are there', () => mirror(polled).length === 1);
      await first.end('SIGKILL');
      for (let round = 0; round < 6; round++) {
        const daemon = await place.run();
        const endMs = performance.now() + 200 + random.next() * 900;
        while (performance.now() < endMs) {
          pos((db) => {
            const insert = db.prepare(
              'INSERT INTO stock_changes (external_id, qty, reference) VALUES (?, ?, ?)',
            );
            db.transaction(() => {
              for (let i = 0; i < 25; i++) {
                const target = targets[Math.floor(random.next() * targets.length)];
                if (!target) continue;
                inserted += 1;
                insert.run(target.externalId, inserted, `r${inserted}`);
                last.set(`${target.sku}@${target.subsidiaryId}`, inserted);
              }
            }).immediate();
          });
          await systemClock.sleep(random.next() * 30);
        }
        await daemon.end('SIGKILL');
      }
      control.clearFaults();
      const daemon = await place.run();
      const left = "SELECT count(*) AS n FROM outbox WHERE state IN ('pending', 'sending')";
      await until(
        'all is sent',
        () => {
          const [counts] = mirror<{ n: number }>(left);
          const waiting = pos((db) => db.prepare('SELECT count(*) FROM stock_changes').pluck().get());
          return counts?.n === 0 && waiting === 0;
        },
        40_000,
      );
      const different = [...last].filter(([key, qty]) => {
        const [sku, subsidiaryId = ''] = key.split('@');
        return control.stockOf(Number(sku), subsidiaryId) !== qty;
      });
      expect(inserted).toBeGreaterThan(500);
      expect(different).toEqual([]);
      const [taken] = mirror<{ n: number }>('SELECT count(*) + sum(replaced) AS n FROM outbox');
      expect(taken?.n).toBe(inserted);
      await until(
        'nothing is remembered of what is gone',
        () => mirror("SELECT * FROM _seen WHERE kind = 'inbox-row'").length === 0,
      );
      expect(control.violations()).toEqual([]);
      expect(control.deadRefreshUses()).toEqual([]);
      expect(await daemon.end('SIGTERM')).toBe(0);
    },
    limitMs(120_000),
  );
});

function schemaOf(db: Database.Database): string {
  const rows = db
    .prepare<[], string>("SELECT sql FROM sqlite_schema WHERE sql IS NOT NULL AND name NOT LIKE 'sqlite%'")
    .pluck()
    .all();
  return `${rows.join(';\n')};`;
}
