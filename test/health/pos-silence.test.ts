/** Tests src/health/pos-silence.ts, and in a whole store src/outbox/intake/pos-signs.ts and the ways in that give signs. */

import path from 'node:path';
import Database from 'better-sqlite3';
import { expect, it } from 'vitest';
import { zoneCalendar } from '../../src/core/time.ts';
import { PosWatch } from '../../src/health/pos-silence.ts';
import { posSigns } from '../../src/outbox/intake/pos-signs.ts';
import { tempMirror } from '../outbox/outbox-fixture.ts';
import { FakeClock } from '../support/fake-clock.ts';
import { sampleNotification } from '../support/order-samples.ts';
import { storeRig } from '../support/store-rig.ts';

const hourOf = (ms: number) => new Date(ms).toISOString().slice(0, 13);
const HOUR_MS = 3_600_000;
const DAY_MS = 24 * HOUR_MS;
const CALENDAR = zoneCalendar('America/Santiago');
/** Thursday, 2026-04-02 in Santiago; the clock goes back an hour on Sunday, 2026-04-05. */
const THURSDAY_MS = CALENDAR.firstInstantMs(Date.parse('2026-04-02T00:00:00Z'));

/** Makes the hours of a shop that is open from 10 to 20 o'clock except on Sundays, in the weeks before `untilMs`. */
function shopHours(untilMs: number, weeks: number): Set<string> {
  const hours = new Set<string>();
  for (let ms = untilMs - weeks * 7 * DAY_MS; ms < untilMs; ms += HOUR_MS) {
    const wall = new Date(CALENDAR.wallMs(ms));
    if (wall.getUTCDay() !== 0 && wall.getUTCHours() >= 10 && wall.getUTCHours() < 20) hours.add(hourOf(ms));
  }
  return hours;
}

const atWall = (text: string) => CALENDAR.firstInstantMs(Date.parse(`${text}:00Z`));

/** Returns whether a POS whose last sign was at `fromMs` is silent at `nowMs`. */
function silentBetween(fromMs: number, nowMs: number, hours: ReadonlySet<string>): boolean {
  let ms = fromMs;
  const clock = { nowMs: () => ms, monotonicMs: () => ms };
  const watch = new PosWatch(clock, { calendar: CALENDAR, after: 'auto' });
  const signs = [{ store: 'B1', lastAt: new Date(fromMs).toISOString(), hours }];
  expect(watch.look(signs)).toEqual([]);
  ms = nowMs;
  return watch.look(signs).length > 0;
}

it('is silent after two usual hours without a sign, and never at night, on a closed day or before it is known', () => {
  const hours = shopHours(THURSDAY_MS, 3);
  const silent = (from: string, now: string, known = hours) =>
    silentBetween(atWall(from), atWall(now), known);
  expect(silent('2026-04-02T10:00', '2026-04-02T11:59')).toBe(false);
  expect(silent('2026-04-02T10:00', '2026-04-02T12:00')).toBe(true);
  expect(silent('2026-04-01T19:30', '2026-04-02T11:59')).toBe(false);
  expect(silent('2026-04-01T19:30', '2026-04-02T12:00')).toBe(true);
  // From Saturday evening over Sunday, on which the clock is set back, to Monday.
  const later = shopHours(atWall('2026-04-04T20:00'), 3);
  expect(silent('2026-04-04T19:59', '2026-04-06T11:59', later)).toBe(false);
  expect(silent('2026-04-04T19:59', '2026-04-06T12:00', later)).toBe(true);
  expect(silent('2026-04-02T10:00', '2026-04-02T19:00', shopHours(THURSDAY_MS, 1))).toBe(false);
});

it('counts from the last sign or the start, by the time that passes and not by the clock', () => {
  const clock = new FakeClock(THURSDAY_MS + 10 * HOUR_MS);
  const hours = shopHours(THURSDAY_MS, 3);
  const watch = new PosWatch(clock, { calendar: CALENDAR, after: 'auto' });
  const look = (lastAt: string) => watch.look([{ store: 'B1', lastAt, hours }]).length;
  // Its last sign was yesterday, and tillsync starts only now.
  expect(look('2026-04-01T20:00:00.000Z')).toBe(0);
  clock.jumpWall(5 * HOUR_MS);
  expect(look('2026-04-01T20:00:00.000Z')).toBe(0);
  clock.jumpWall(-5 * HOUR_MS);
  return clock.advance(2 * HOUR_MS).then(() => {
    expect(look('2026-04-01T20:00:00.000Z')).toBe(1);
    expect(look('2026-04-02T15:00:00.000Z')).toBe(0);
  });
});

it('a fixed time holds at any hour, and 0 never', async () => {
  const clock = new FakeClock(THURSDAY_MS);
  const signs = [{ store: '', lastAt: '2026-04-02T03:00:00.000Z', hours: new Set<string>() }];
  const [fixed, never] = [1_800_000, 0].map((after) => new PosWatch(clock, { calendar: CALENDAR, after }));
  for (const watch of [fixed, never]) expect(watch?.look(signs)).toEqual([]);
  await clock.advance(1_800_000);
  expect(fixed?.look(signs)).toEqual([{ store: '', lastAt: '2026-04-02T03:00:00.000Z' }]);
  expect(never?.look(signs)).toEqual([]);
});

it('an acknowledgement is a sign of which no hour is learned', async () => {
  const rig = storeRig({ lookEveryMs: 20_000 });
  const daemon = await rig.daemon();
  await rig.clock.advance(60_000);
  const signs = () => {
    const db = new Database(path.join(rig.directory, 'mirror.db'));
    const found = posSigns(db, [], rig.clock.nowMs());
    db.close();
    return found.map(({ lastAt, hours }) => ({ at: lastAt, hours: hours.size }));
  };
  const acknowledge = async (number: number) => {
    const order = sampleNotification(number, { status: 'payment-approved' });
    expect(await rig.announce(daemon, order)).toBe(200);
    const answer = await fetch(`${daemon.localUrl}/v1/orders/ack`, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify([{ orderId: order.internalOrderId }]),
    });
    expect(answer.status).toBe(200);
    return new Date(rig.clock.nowMs()).toISOString();
  };
  const first = await acknowledge(1);
  await rig.clock.advance(60_000);
  expect(signs()).toEqual([{ at: first, hours: 0 }]);
  // Of an hour with another sign, it moves the last sign and nothing else.
  const db = new Database(path.join(rig.directory, 'mirror.db'));
  const [store = ''] = db
    .prepare<[], string>("SELECT name FROM _seen WHERE kind = 'acknowledging-store'")
    .pluck()
    .all();
  db.prepare("INSERT INTO _seen (kind, name, first_at, last_at) VALUES ('pos-hour', ?, ?, ?)").run(
    `${first.slice(0, 13)} ${store}`,
    first,
    first,
  );
  db.close();
  const second = await acknowledge(2);
  expect(signs()).toEqual([{ at: second, hours: 1 }]);
  expect(second > first).toBe(true);
  // So does an acknowledgement of an order that was edited since.
  const again = new Date(rig.clock.nowMs() + 60_000).toISOString();
  const edited = new Database(path.join(rig.directory, 'mirror.db'));
  edited.prepare('UPDATE _order_acks SET acked_at = ? WHERE acked_at = ?').run(again, second);
  edited.close();
  expect(signs()).toEqual([{ at: again, hours: 1 }]);
});

it('a POS that only acknowledges has no usual hours, and is forgotten after four weeks', () => {
  const db = tempMirror();
  const lastAt = '2026-04-01T22:10:00.000Z';
  db.prepare(
    "INSERT INTO _seen (kind, name, first_at, last_at) VALUES ('acknowledging-store', 'B1', '2026-03-01T15:00:00.000Z', ?)",
  ).run(lastAt);
  expect(posSigns(db, [], THURSDAY_MS)).toEqual([{ store: 'B1', lastAt, hours: new Set() }]);
  expect(posSigns(db, [], THURSDAY_MS + 29 * DAY_MS)).toEqual([]);
});

it('a branch that was renamed or is configured no more is no store', () => {
  const db = tempMirror();
  const insert = db.prepare('INSERT INTO _seen (kind, name, first_at, last_at) VALUES (?, ?, ?, ?)');
  const at = '2026-04-01T22:10:00.000Z';
  for (const store of ['B1', 's1', 'B2', 'B9', ''])
    insert.run('pos-hour', `${at.slice(0, 13)} ${store}`, at, at);
  insert.run('acknowledging-store', 'B8', at, at);
  const branches = ['B1', 'B2'].map((externalId, i) => ({ subsidiaryId: `s${i + 1}`, externalId }));
  const stores = (of: typeof branches) => posSigns(db, of, THURSDAY_MS).map(({ store }) => store);
  expect(stores(branches).sort()).toEqual(['', 'B1', 'B2']);
  expect(stores(branches.slice(1))).toEqual(['B2']);
  expect(stores([]).sort()).toEqual(['', 'B1', 'B2', 'B8', 'B9', 's1']);
});

it('a row in pos_alive and a request of a POS are signs, a look at the status is none; silence is a finding', async () => {
  const rig = storeRig({
    lookEveryMs: 20_000,
    config: (config) => ({ ...config, alarms: { ...config.alarms, posSilentAfterMs: HOUR_MS } }),
  });
  const daemon = await rig.daemon();
  await rig.clock.advance(60_000);
  const signs = () =>
    rig
      .rows<{ store: string }>(
        "SELECT substr(name, 15) AS store FROM _seen WHERE kind = 'pos-hour' ORDER BY 1",
      )
      .map((row) => row.store);
  const silent = async () => {
    const { verdict } = (await (await fetch(`${daemon.localUrl}/v1/status`)).json()) as {
      verdict: { findings: { code: string }[] };
    };
    return verdict.findings.some(({ code }) => code === 'pos.silent');
  };
  await fetch(`${daemon.localUrl}/v1/status`);
  await fetch(`${daemon.localUrl}/v1/orders?after=0`, { headers: { 'sec-fetch-site': 'same-origin' } });
  await rig.clock.advance(60_000);
  expect(signs()).toEqual([]);
  const insert = (sql: string) => {
    const inbox = new Database(path.join(rig.directory, 'inbox', 'inbox.db'));
    inbox.exec(sql);
    inbox.close();
  };
  insert("INSERT INTO pos_alive DEFAULT VALUES; INSERT INTO pos_alive (store_external_id) VALUES ('B1')");
  expect(() => insert("INSERT INTO pos_alive (store_external_id) VALUES (' ')")).toThrow(/must be a text/);
  await rig.clock.advance(60_000);
  expect(signs()).toEqual(['', 'B1']);
  await fetch(`${daemon.localUrl}/v1/orders?after=0&store=B2`);
  await rig.clock.advance(20_000);
  expect(signs()).toContain('B2');
  expect(await silent()).toBe(false);
  await rig.clock.advance(HOUR_MS + 120_000);
  expect(await silent()).toBe(true);
  await fetch(`${daemon.localUrl}/v1/orders?after=0&store=B2`);
  insert("INSERT INTO pos_alive DEFAULT VALUES; INSERT INTO pos_alive (store_external_id) VALUES ('B1')");
  await rig.clock.advance(120_000);
  expect(await silent()).toBe(false);
});
