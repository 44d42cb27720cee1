/** Tests src/health/retention-rules.ts. */

import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { isoUtc } from '../../src/core/time.ts';
import { usedBytes } from '../../src/db/sqlite.ts';
import type { retentionRun } from '../../src/health/retention.ts';
import { ORDER_STATUSES } from '../../src/orders/merging/order.ts';
import { observation, openTestMirror, sampleNotification } from './open-test-mirror.ts';
import {
  ack,
  at,
  DAY_MS,
  holdBack,
  idOf,
  judge,
  keep,
  rows,
  run,
  START_MS,
  seqs,
  snapshot,
  writes,
} from './retention-rig.ts';

type RetentionOptions = Parameters<typeof retentionRun>[0];

describe('retention', () => {
  it('lets go of earlier events and payloads of ended orders, and a reader from 0 still sees every order', async () => {
    const { mirror } = openTestMirror();
    for (const [day, status] of ['pending', 'ready', 'dispatched'].entries()) {
      for (const number of [1, 2]) await keep(mirror, day, number, status);
    }
    await keep(mirror, 0, 3, 'pending');
    await keep(mirror, 1, 3, 'ready');
    expect((await run(mirror, 2)).dropped).toEqual({});
    expect((await run(mirror, 40)).dropped).toEqual({ payloads: 4 });
    expect(rows(mirror, 'SELECT order_id AS id FROM _order_payloads')).toEqual([{ id: idOf(3) }]);
    expect((await run(mirror, 95)).dropped).toEqual({ events: 4 });
    // Event 8 is the newest of all, 7 and 8 belong to an open order, 5 and 6 are the newest events of their orders.
    expect(seqs(mirror)).toEqual([5, 6, 7, 8]);
    expect(rows(mirror, "SELECT value FROM marks WHERE name = 'events.trimmed'")).toEqual([{ value: 4 }]);
    expect((await run(mirror, 500)).dropped).toEqual({ orders: 2, events: 2 });
    expect(mirror.orders.list({ limit: 9 }).map(({ orderId }) => orderId)).toEqual([idOf(3)]);
    for (const table of ['order_items', 'order_item_modifiers']) {
      expect(rows(mirror, `SELECT DISTINCT order_id AS id FROM ${table}`)).toEqual([{ id: idOf(3) }]);
    }
    await keep(mirror, 500, 4, 'pending');
    expect(mirror.orders.newestSeq()).toBe(9);
  });

  it('leaves nothing of an order that goes', async () => {
    const { mirror } = openTestMirror();
    for (const status of ['pending', 'dispatched']) await keep(mirror, 0, 1, status, 'webhook');
    await keep(mirror, 0, 1, 'pending', 'webhook');
    await keep(mirror, 0, 2, 'pending');
    await ack(mirror, 1);
    const tables = rows<{ name: string }>(
      mirror,
      `SELECT m.name FROM sqlite_schema m JOIN pragma_table_info(m.name) c WHERE m.type = 'table' AND c.name = 'order_id'`,
    );
    const left = () =>
      tables.flatMap(({ name }) => {
        const [row] = rows<{ n: number }>(
          mirror,
          `SELECT count(*) AS n FROM ${name} WHERE order_id = '${idOf(1)}'`,
        );
        return row?.n ? [name] : [];
      });
    expect(left()).toContain('_held_notifications');
    await run(mirror, 500);
    expect(left()).toEqual([]);
  });

  it.each(['events', 'payloads'] as const)(
    'keeps the %s of an order that came to life after they were looked for',
    async (family) => {
      const { mirror } = openTestMirror();
      for (const status of ['pending', 'ready', 'dispatched']) await keep(mirror, 0, 1, status);
      await keep(mirror, 0, 2, 'pending');
      let revived = false;
      const write: RetentionOptions['mirror']['write'] = async (action) => {
        if (!revived) await keep(mirror, 100, 1, 'inProcess');
        revived = true;
        return await mirror.write(action);
      };
      // With a retention time of 0, rows are never deleted, so the first deletion is that of a row of `family`.
      const settings = { ordersMs: 0, eventsMs: 0, payloadsMs: 0, [`${family}Ms`]: 30 * DAY_MS };
      const report = await run(mirror, 100, { settings, mirror: { write } });
      expect(report.dropped[family] ?? 0).toBe(0);
      expect(revived).toBe(true);
    },
  );

  it('is not held up by what a wrong clock dated into the future', async () => {
    const { mirror } = openTestMirror();
    await keep(mirror, 9_999, 1, 'ready');
    for (const status of ['pending', 'dispatched']) await keep(mirror, 0, 2, status);
    await keep(mirror, 0, 3, 'pending');
    expect((await run(mirror, 100)).dropped).toEqual({ events: 1, payloads: 1 });
    expect(seqs(mirror)).toEqual([1, 3, 4]);
  });

  it('takes nothing for old by a clock that is ahead of the platform', async () => {
    const { mirror } = openTestMirror();
    for (const number of [1, 2, 3]) await keep(mirror, 0, number, 'dispatched');
    const settings = { personalDataMs: 60 * DAY_MS };
    const ahead = await run(mirror, 13_000, { settings, skewMs: -12_999 * DAY_MS });
    expect(ahead).toMatchObject({ dropped: {}, forgotten: 0 });
    expect((await run(mirror, 13_000, { settings })).forgotten).toBe(3);
  });

  it('keeps what came while the clock was not set, for it may be new', async () => {
    const { mirror } = openTestMirror();
    const day1970 = -START_MS / DAY_MS + 1;
    await keep(mirror, day1970, 1, 'dispatched');
    for (const number of [2, 3]) await keep(mirror, 0, number, 'dispatched');
    expect((await run(mirror, 1)).dropped).toEqual({});
    expect((await run(mirror, 500)).dropped).toEqual({ orders: 1, events: 1 });
    expect(seqs(mirror)).toEqual([1, 3]);
  });

  it('gives no seq twice, also when every event but the newest is gone', async () => {
    const { mirror } = openTestMirror();
    for (const number of [1, 2, 3]) await keep(mirror, 0, number, 'dispatched');
    expect((await run(mirror, 500)).dropped).toEqual({ orders: 2, events: 2 });
    await keep(mirror, 500, 4, 'pending');
    expect(seqs(mirror)).toEqual([3, 4]);
  });

  it('keeps what the POS has not acknowledged once it acknowledges, and what held-back stock goes by', async () => {
    const { mirror } = openTestMirror();
    for (const number of [1, 2, 3, 4, 5]) {
      await keep(mirror, 0, number, 'pending');
      await keep(mirror, 1, number, number === 4 ? 'cancel' : 'dispatched');
    }
    await ack(mirror, 1);
    await ack(mirror, 3);
    await mirror.write((db) => holdBack(db, idOf(3), 5));
    const takenInTo = (seq: number) =>
      mirror.write((db) => {
        db.prepare("UPDATE marks SET value = ? WHERE name = 'ledger.seen'").run(seq);
        db.prepare("DELETE FROM _seen WHERE kind = 'holding-branch'").run();
        if (seq >= 0)
          db.prepare("INSERT INTO _seen (kind, name, first_at) VALUES ('holding-branch', '', '2026')").run();
      });
    await takenInTo(0);
    expect((await run(mirror, 100)).dropped).not.toHaveProperty('events');
    await takenInTo(-1);
    expect((await run(mirror, 100)).dropped).toMatchObject({ events: 2 });
    expect(seqs(mirror)).toEqual([2, 3, 4, 5, 6, 8, 9, 10]);
    await takenInTo(6);
    expect((await run(mirror, 500)).dropped).toEqual({ orders: 1, events: 1 });
    expect(mirror.orders.list({ limit: 9 }).map(({ orderId }) => orderId)).not.toContain(idOf(1));
  });

  it('lets the file stay as large as it was once the first orders are past their time', {
    tags: ['bulk'],
  }, async () => {
    const { mirror } = openTestMirror();
    const settings = { eventsMs: 9 * DAY_MS, payloadsMs: 3 * DAY_MS, ordersMs: 20 * DAY_MS };
    const sizes: number[] = [];
    for (let day = 0; day < 60; day++) {
      for (const status of ['pending', 'ready', 'dispatched']) {
        const sent = Array.from({ length: 20 }, (_, i) => sampleNotification(day * 20 + i, { status }));
        await mirror.save(
          sent.map((each) => ({
            kind: 'order',
            observation: observation('webhook', each, { observedAtMs: at(day) }),
          })),
        );
      }
      await run(mirror, day, { settings });
      sizes.push(mirror.read((db) => Number(db.pragma('page_count', { simple: true }))));
    }
    expect(mirror.orders.list({ limit: 2_000 })).toHaveLength(20 * 21);
    expect(sizes.at(-1)).toBeLessThanOrEqual((sizes[24] as number) * 1.02);
  });

  it('writes nothing and takes no lease where nothing may go', async () => {
    const { mirror } = openTestMirror();
    for (const number of [1, 2]) await keep(mirror, 0, number, 'pending');
    const before = writes(mirror);
    expect(await run(mirror, 5000)).toMatchObject({
      isComplete: true,
      taken: [],
      told: ['-mirror.too-large'],
    });
    expect(writes(mirror)).toEqual(before);
  });

  it('leaves it to the process that is at it, and waits while a reader holds the log', async () => {
    const { mirror } = openTestMirror();
    await keep(mirror, 0, 1, 'ready');
    await keep(mirror, 1, 1, 'dispatched');
    for (const options of [
      { leases: { acquire: () => undefined } },
      { mirror: { hasRoomInWal: () => false } },
    ]) {
      expect(await run(mirror, 200, options)).toMatchObject({ isComplete: false, dropped: {}, told: [] });
    }
    const { taken, isComplete } = await run(mirror, 200);
    expect({ taken, isComplete }).toEqual({
      taken: ['mirror.retention', 'end of mirror.retention'],
      isComplete: true,
    });
  });

  it('deletes nothing of an order that came to life between the look and the deletion', async () => {
    const { mirror } = openTestMirror();
    await keep(mirror, 0, 1, 'ready');
    await keep(mirror, 1, 1, 'dispatched');
    await keep(mirror, 1, 2, 'pending');
    const write: RetentionOptions['mirror']['write'] = async (action) => {
      await keep(mirror, 200, 1, 'ready');
      return await mirror.write(action);
    };
    expect((await run(mirror, 500, { mirror: { write } })).dropped).toEqual({});
    expect(mirror.orders.get(idOf(1))?.status).toBe('ready');
  });

  it('lets quarantine go by age, and more when there is no room: down to a floor, with an alarm', async () => {
    const { mirror } = openTestMirror();
    const reason = 'unreadable';
    for (const day of [0, 20, 99, 106]) {
      const payload = `${day}${'x'.repeat(100_000)}`;
      const unreadable = { source: 'webhook' as const, receivedAtMs: at(day), reason, payload };
      await mirror.save([{ kind: 'unreadable', unreadable }]);
      await keep(mirror, day, 1, day % 2 === 0 ? 'ready' : 'dispatched');
    }
    const left = () => mirror.quarantine.list(9).map(({ receivedAt }) => receivedAt.slice(0, 10));
    expect((await run(mirror, 95)).dropped).toMatchObject({ quarantine: 1 });
    const used = mirror.read(usedBytes);
    const roomy = await run(mirror, 107, { settings: { maxBytes: used - 50_000 } });
    expect(roomy).toMatchObject({ dropped: { quarantine: 1 }, told: ['-mirror.too-large'] });
    expect(left()).toEqual([isoUtc(at(106)).slice(0, 10), isoUtc(at(99)).slice(0, 10)]);
    expect(roomy.pressure).toBeGreaterThan(0);
    const full = await run(mirror, 108, { settings: { maxBytes: 1 } });
    expect(full.told).toEqual(['+mirror.too-large']);
    expect(left()).toEqual([isoUtc(at(106)).slice(0, 10)]);
  });

  const step = fc.record({
    number: fc.integer({ min: 1, max: 4 }),
    status: fc.constantFrom(...ORDER_STATUSES, 'unheard-of'),
    days: fc.oneof(fc.integer({ min: 0, max: 60 }), fc.constantFrom(100, 300)),
    action: fc.constantFrom('keep', 'keep', 'keep', 'ack', 'hold', 'run', 'tight'),
  });

  /** Steps in which the only acknowledged order is deleted before an order that was not acknowledged. */
  const LAST_ACK_GOES = [
    { number: 1, status: 'dispatched', days: 0, action: 'keep' },
    { number: 2, status: 'dispatched', days: 0, action: 'keep' },
    { number: 1, status: 'pending', days: 100, action: 'ack' },
    { number: 3, status: 'pending', days: 0, action: 'keep' },
    { number: 1, status: 'pending', days: 300, action: 'run' },
    { number: 1, status: 'pending', days: 1, action: 'run' },
    { number: 1, status: 'pending', days: 1, action: 'run' },
  ];

  it('never deletes what must stay, whatever came and whenever it runs', async () => {
    await fc.assert(
      fc.asyncProperty(fc.array(step, { minLength: 4, maxLength: 25 }), async (steps) => {
        const { mirror } = openTestMirror();
        let day = 0;
        const acked = new Set<string>();
        // An acknowledgement of an order that never arrived does not show which store's POS acknowledges.
        let isAcknowledging = false;
        for (const { number, status, days, action } of steps) {
          day += days;
          if (action === 'keep') {
            await keep(mirror, day, number, status, days % 2 === 0 ? 'poll' : 'webhook');
            isAcknowledging ||= acked.has(idOf(number));
          } else if (action === 'hold') {
            await mirror.write((db) => holdBack(db, idOf(number)));
          } else if (action === 'ack') {
            await ack(mirror, number);
            acked.add(idOf(number));
            isAcknowledging ||= snapshot(mirror).orders.some(({ id }) => id === idOf(number));
          } else {
            const before = snapshot(mirror);
            await run(mirror, day, { settings: action === 'tight' ? { maxBytes: 1 } : {} });
            judge(before, snapshot(mirror), {
              day,
              tight: action === 'tight',
              acked: isAcknowledging ? acked : new Set(),
            });
          }
        }
        await mirror.close();
      }),
      { numRuns: Number(process.env.TILLSYNC_RUNS ?? 6), examples: [[LAST_ACK_GOES]] },
    );
  });
});
