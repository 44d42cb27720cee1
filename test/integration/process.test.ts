import { readFileSync } from 'node:fs';
import path from 'node:path';
import Database from 'better-sqlite3';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { systemClock } from '../../src/core/system-clock.ts';
import { seededRandom } from '../support/fake-clock.ts';
import { limitMs } from '../support/shared-config.ts';
import { openWorkplace, until, type Workplace } from '../support/workplace.ts';

const SEED = Number(process.env.TILLSYNC_TEST_SEED ?? 7);
let place: Workplace;

beforeEach(async () => {
  place = await openWorkplace(SEED);
});
afterEach(() => place.close());

/** Checks that no limit of the platform was broken, and that no dead refresh token was used. */
function expectRulesKept(): void {
  expect(place.sandbox.control.violations()).toEqual([]);
  expect(place.sandbox.control.deadRefreshUses()).toEqual([]);
}

/** Returns the ids of orders whose callback was answered 2xx and which are not in the mirror. */
function lostOrders(): string[] {
  const rows = new Map(place.mirrorRows().map((row) => [row.order_id, row]));
  return place.sandbox.control
    .deliveries()
    .filter((delivery) => delivery.outcome === 'confirmed' && !rows.has(delivery.orderId))
    .map((delivery) => delivery.orderId);
}

describe('tillsync run', () => {
  it(
    `loses nothing that it acknowledged, killed at any moment (seed ${SEED})`,
    async () => {
      const { control } = place.sandbox;
      const random = seededRandom(SEED);
      const confirmed = () => control.deliveries().filter(({ outcome }) => outcome === 'confirmed').length;
      const first = await place.run();
      await until('callbacks arrive', () => {
        control.createOrder();
        return confirmed() > 0;
      });
      await first.end('SIGKILL');
      for (let round = 0; round < 6 || (confirmed() <= 20 && round < 40); round++) {
        const daemon = await place.run();
        const before = confirmed();
        const beganMs = performance.now();
        const endMs = beganMs + 100 + random.next() * 500;
        // A busy machine gets fewer callbacks through, so the rounds after the sixth wait for some.
        const isTooFew = () => round >= 6 && confirmed() < before + 4 && performance.now() - beganMs < 10_000;
        while (performance.now() < endMs || isTooFew()) {
          const order = control.createOrder();
          if (random.next() < 0.5) control.advanceOrder(order.internalOrderId);
          await systemClock.sleep(random.next() * 10);
        }
        await daemon.end('SIGKILL');
        await control.settled();
        expect(lostOrders()).toEqual([]);
      }
      expect(confirmed()).toBeGreaterThan(20);
      const last = await place.run();
      await until('mirror and platform are equal', () => place.differences().length === 0);
      expectRulesKept();
      expect(await last.end('SIGTERM')).toBe(0);
      expect(integrity()).toBe('ok');
    },
    limitMs(240_000),
  );

  it('ends beside another one on its storage directory, with a sentence that names that one', async () => {
    const daemon = await place.run();
    Object.assign(place.env, {
      TILLSYNC_WEBHOOK_LISTEN: '127.0.0.1:0',
      TILLSYNC_LOCAL_LISTEN: '127.0.0.1:0',
    });
    const second = await place.command('run');
    expect(second.code).toBe(2);
    expect(second.stderr).toContain(
      `A tillsync runs on ${place.storage} already: process ${daemon.child.pid}.`,
    );
    expect((await fetch(`${daemon.localUrl}/healthz`)).status).toBe(200);
    expect(await daemon.end('SIGTERM')).toBe(0);
  });

  it('is readable with plain SQL after it stopped, and its feed has no hole', async () => {
    const daemon = await place.run();
    for (let i = 0; i < 30; i++) place.sandbox.control.createOrder();
    await until('mirror and platform are equal', () => place.differences().length === 0);
    const stoppedMs = performance.now();
    expect(await daemon.end('SIGTERM')).toBe(0);
    expect(performance.now() - stoppedMs).toBeLessThan(limitMs(10_000));
    const db = new Database(path.join(place.storage, 'mirror.db'), { readonly: true });
    const seqs = db.prepare<[], number>('SELECT seq FROM order_events ORDER BY seq').pluck().all();
    db.close();
    expect(seqs).toEqual(Array.from({ length: seqs.length }, (_, i) => i + 1));
    expect(seqs.length).toBeGreaterThanOrEqual(30);
  });

  it(
    'keeps the limits together with commands beside it, across restarts',
    async () => {
      const first = await place.run();
      const commands = Array.from({ length: 4 }, () => place.command('sync', 'orders', '--json'));
      await systemClock.sleep(200);
      await first.end('SIGTERM');
      const second = await place.run();
      const results = await Promise.all(commands);
      for (const { code, stdout } of results) {
        expect(code).toBe(0);
        expect(JSON.parse(stdout)).toBeTypeOf('object');
      }
      await second.end('SIGKILL');
      expectRulesKept();
    },
    limitMs(40_000),
  );

  it('never shows a secret, in its log or to a reader of the mirror', async () => {
    const daemon = await place.run();
    place.sandbox.control.createOrder();
    await until('the order is here', () => place.mirrorRows().length === 1);
    await place.command('auth', 'refresh');
    await daemon.end('SIGTERM');
    const state = new Database(path.join(place.storage, 'state.db'), { readonly: true });
    const tokens = state.prepare('SELECT refresh_token, access_token FROM tokens').get() as object;
    state.close();
    const secrets = [
      place.refreshToken,
      ...Object.values(tokens),
      place.env.TILLSYNC_WEBHOOK_SECRET,
    ] as string[];
    expect(secrets).toHaveLength(4);
    const mirror = ['mirror.db', 'mirror.db-wal']
      .map((name) => readFileSync(path.join(place.storage, name), 'latin1'))
      .join('');
    for (const secret of secrets) {
      expect(secret.length).toBeGreaterThan(5);
      expect(daemon.log()).not.toContain(secret);
      expect(mirror).not.toContain(secret);
    }
  });
});

function integrity(): unknown {
  const db = new Database(path.join(place.storage, 'mirror.db'), { readonly: true });
  try {
    return db.pragma('integrity_check', { simple: true });
  } finally {
    db.close();
  }
}
