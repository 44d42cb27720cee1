/** Tests src/outbox/intake/change.ts. */

import { describe, expect, it } from 'vitest';
import { isoUtc } from '../../src/core/time.ts';
import { readChange, withCountTime } from '../../src/outbox/intake/change.ts';
import { GUARDS_OFF } from '../../src/outbox/intake/guards.ts';
import { storeRig } from '../support/store-rig.ts';
import { order, outgoing, product, SEND_ALL } from './outbox-fixture.ts';
import { pos, tempInbox } from './temp-inbox.ts';

const HOLDING = { ...SEND_ALL, holdBack: true };
const SECOND = 1_000;
const HOUR = 3_600_000;

/** Makes a shop with 50 pieces of a product, of which the platform has been told, in a branch that holds back. */
function shop() {
  const out = outgoing();
  out.sweep([product('p1', 'Tea', [{ sku: '10', stocks: { s1: ['A', 50] } }])]);
  out.reservations.begin(true);
  /** Counts as of `agoMs` before now; as of the hand-over without it. */
  const count = (qty: number, agoMs?: number, extra: object = {}) => {
    const dated = agoMs === undefined ? {} : { counted_at: isoUtc(out.clock.nowMs() - agoMs) };
    const items = out.intake.dated([readChange('stock', { externalId: 'A', qty, ...dated, ...extra })]);
    const [taken] = out.intake.accept(items, { source: 'http', guards: GUARDS_OFF });
    if (!taken) throw new Error('nothing was taken');
    return taken;
  };
  const send = () => {
    const sent: unknown[] = [];
    for (;;) {
      const { callId, items } = out.dispatcher.claim('stock', 100, HOLDING);
      if (callId === null) return sent;
      sent.push(...items.map(({ body }) => ('qty' in body ? body.qty : null)));
      out.dispatcher.settle(
        callId,
        items.map(({ changeId }) => ({ changeId, state: 'done' })),
      );
    }
  };
  const hear = (id: string, qty: number) => {
    order(out, id, 'B1', [['A', qty]], 'payment-approved', { createdAt: isoUtc(out.clock.nowMs()) });
    out.dispatcher.catchUp({ holdBack: true });
  };
  const wanted = () => out.db.prepare('SELECT wanted_qty FROM _stock_ledger').pluck().get();
  return { out, count, send, hear, wanted, wait: (ms: number) => out.clock.jumpWall(ms) };
}

describe('a count that says when it was made', () => {
  it.each(['before', 'after'])('is superseded by one that was made later, %s that one was sent', (when) => {
    const { out, count, send, wait } = shop();
    wait(HOUR);
    const sold = count(0);
    if (when === 'after') expect(send()).toEqual([0]);
    wait(2 * SECOND);
    const late = count(43, 60 * SECOND);
    expect(late).toMatchObject({
      state: 'superseded',
      message: expect.stringMatching(
        new RegExp(`^Not sent: counted at .*, and change ${sold.changeId} was counted at .*\\.$`),
      ),
    });
    expect(out.queries.get(late.changeId)).toMatchObject({
      state: 'superseded',
      supersededBy: sold.changeId,
      body: { qty: 43 },
    });
    expect(send()).toEqual(when === 'after' ? [] : [0]);
  });

  it('wins over one that was made earlier and came later', () => {
    const { count, send, wait } = shop();
    wait(HOUR);
    count(7, 10 * SECOND);
    expect(count(43, 60 * SECOND).state).toBe('superseded');
    expect(count(8, 5 * SECOND).state).toBe('pending');
    expect(send()).toEqual([8]);
    expect(count(9).state).toBe('pending');
    expect(send()).toEqual([9]);
  });

  it('keeps its visibility, which is of the hand-over, with the later quantity', () => {
    const { out, count, wait } = shop();
    wait(HOUR);
    count(5);
    const late = count(43, 60 * SECOND, { show: false });
    expect(late.state).toBe('pending');
    expect(out.queries.get(late.changeId)?.body).toMatchObject({ qty: 5, show: false });
  });

  it('does not contain an order that came after it', () => {
    const { out, count, send, hear, wanted, wait } = shop();
    wait(HOUR);
    hear('o1', 2);
    out.reservations.acknowledge(['o1'], 'http');
    count(10, 60 * SECOND);
    expect(send()).toEqual([8]);
    wait(SECOND);
    count(8);
    expect(send()).toEqual([]);
    expect(wanted()).toBe(8);
  });

  it('does not contain an order that was acknowledged after it and before it was sent', () => {
    const { out, count, send, hear, wait } = shop();
    wait(HOUR);
    hear('o1', 2);
    wait(60 * SECOND);
    out.reservations.acknowledge(['o1'], 'http');
    wait(SECOND);
    count(10, 30 * SECOND);
    expect(send()).toEqual([8]);
    wait(SECOND);
    count(8, 0);
    expect(send()).toEqual([]);
  });

  it('contains an order that was acknowledged before it was made, or after it was sent', () => {
    const { out, count, send, hear, wait } = shop();
    wait(HOUR);
    hear('o1', 2);
    out.reservations.acknowledge(['o1'], 'http');
    wait(60 * SECOND);
    hear('o2', 3);
    wait(60 * SECOND);
    count(40, 30 * SECOND);
    out.reservations.acknowledge(['o2'], 'http');
    expect(send()).toEqual([40]);
  });

  it('is compared when its product becomes known', () => {
    const { out, count, send, wait } = shop();
    wait(HOUR);
    const [unknown] = out.intake.accept(
      [
        {
          kind: 'stock',
          change: { externalId: 'Z', subsidiaryId: 's1', qty: 43 },
          countedAt: isoUtc(out.clock.nowMs() - 60 * SECOND),
        },
      ],
      { source: 'http', guards: GUARDS_OFF },
    );
    count(5, 10 * SECOND);
    out.sweep([product('p1', 'Tea', [{ sku: '10', stocks: { s1: ['A', 50] } }])]);
    out.db.exec("UPDATE integrations SET product_code_pos_b = 'Z'");
    for (const change of out.admin.unresolved('needs-read', { limit: 9 })) {
      out.admin.retarget(change, out.resolve(change, true));
    }
    expect(out.queries.get(unknown?.changeId ?? 0)).toMatchObject({ state: 'superseded' });
    expect(send()).toEqual([5]);
  });
});

it('a count whose product becomes known wins by its time, and its visibility by its hand-over', () => {
  const { out, count, wait } = shop();
  wait(HOUR);
  const unknown = { externalId: 'Z', subsidiaryId: 's1', qty: 10, show: false };
  out.accept('stock', [unknown]);
  wait(SECOND);
  count(9, 20 * SECOND, { show: true });
  out.db.exec("UPDATE integrations SET product_code_pos_b = 'Z'");
  for (const change of out.admin.unresolved('needs-read', { limit: 9 })) {
    out.admin.retarget(change, out.resolve(change, true));
  }
  const waiting = out.db
    .prepare<[], { body: string }>("SELECT body FROM outbox WHERE state = 'pending'")
    .all();
  expect(waiting.map(({ body }) => JSON.parse(body))).toMatchObject([{ qty: 10, show: true }]);
});

describe('a count whose time cannot be used', () => {
  const AHEAD_MS = 5 * HOUR;

  it.each([
    ['no time', () => 'gestern'],
    ['ahead', (nowMs: number) => isoUtc(nowMs + AHEAD_MS)],
  ])('in the inbox is one rejected change (%s), and its neighbours are taken', (_, said) => {
    const { out, send } = shop();
    const { path, inbox } = tempInbox();
    const db = pos(path);
    const row = db.prepare('INSERT INTO stock_changes (external_id, qty, counted_at) VALUES (?, ?, ?)');
    const countedAt = said(out.clock.nowMs());
    row.run('A', 7, countedAt);
    row.run('A', 8, null);
    const report = out.inbox.ingest(inbox.read(), GUARDS_OFF);
    expect(report.accepted).toMatchObject([
      { state: 'rejected', message: expect.stringContaining('counted_at') },
      { state: 'pending' },
    ]);
    expect(report.taken.changes).toHaveLength(2);
    expect(send()).toEqual([8]);
    // Neither this time nor the time of the retry is when it was counted.
    expect(out.queries.get(report.accepted[0]?.changeId ?? 0)).toMatchObject({
      countedAt: null,
      body: { externalId: 'A', qty: 7, counted_at: countedAt },
    });
    expect(() => out.admin.retry(report.accepted[0]?.changeId ?? 0)).toThrow('cannot be read');
  });

  it('by HTTP is one rejected item, and its neighbours are taken', async () => {
    const rig = storeRig();
    const { localUrl } = await rig.daemon();
    await rig.clock.advance(60_000);
    const stocks = rig.rows<object>('SELECT sku, subsidiary_id AS subsidiaryId FROM stocks LIMIT 3');
    const times = [{ counted_at: 'gestern' }, { counted_at: isoUtc(rig.clock.nowMs() + AHEAD_MS) }, {}];
    const items = stocks.map((stock, i) => ({ ...stock, qty: 7, ...times[i] }));
    const answer = await fetch(`${localUrl}/v1/stock`, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify(items),
    });
    expect(answer.status).toBe(207);
    expect(await answer.json()).toMatchObject({
      results: [
        { state: 'rejected', code: 'bad-value', column: 'counted_at' },
        { state: 'rejected', code: 'bad-value', column: 'counted_at' },
        { state: 'pending' },
      ],
    });
  });
});

it('a count whose id is found late contains no order that was acknowledged after a newer hand-over', () => {
  const { out, count, send, hear, wait } = shop();
  wait(HOUR);
  hear('o1', 2);
  wait(60 * SECOND);
  // Ten are on the shelf, and the two of the order are among them.
  out.accept('stock', [{ externalId: 'late', subsidiaryId: 's1', qty: 10 }]);
  wait(10 * SECOND);
  count(12, 30 * SECOND);
  wait(10 * SECOND);
  out.reservations.acknowledge(['o1'], 'http');
  const tea = product('p1', 'Tea', [{ sku: '10', stocks: { s1: ['A', 50] } }]);
  const children = tea.children.map((sku) => ({
    ...sku,
    integrations: sku.integrations.map((each) => ({ ...each, productIdPosA: 'late' })),
  }));
  out.sweep([{ ...tea, children, raw: JSON.stringify(children) }]);
  for (const each of out.admin.unresolved('needs-read', { limit: 9 })) {
    out.admin.retarget(each, out.resolve(each, true));
  }
  expect(send()).toEqual([8]);
});

describe('the time of a count', () => {
  const NOW = Date.parse('2026-11-28T12:55:00.000Z');
  const read = (counted_at: unknown, handedAt?: string) => {
    const reading = readChange('stock', { externalId: 'A', qty: 1, counted_at });
    const item = { ...reading, ...(handedAt !== undefined && { handedAt }) };
    const dated = withCountTime(item, { nowMs: NOW, timezone: 'America/Santiago' });
    return 'fault' in dated ? dated.fault : dated.countedAt;
  };

  it.each([
    ['2026-11-28T09:50:00-03:00', '2026-11-28T12:50:00.000Z'],
    ['2026-11-28T12:50:00Z', '2026-11-28T12:50:00.000Z'],
    ['2026-11-28 09:50', '2026-11-28T12:50:00.000Z'],
    // A clock that is a minute ahead counts as of the hand-over.
    ['2026-11-28T12:56:00Z', '2026-11-28T12:55:00.000Z'],
  ])('%s is %s', (said, is) => {
    expect(read(said)).toBe(is);
  });

  it.each([
    ['soon', 'is no time'],
    ['2026-02-31T10:00:00Z', 'is no time'],
    ['2026-11-28', 'is no time'],
    [' ', 'is empty'],
    [7, 'is not a text'],
    ['2026-11-28T12:58:00Z', 'ahead'],
    ['2026-11-28 12:50', 'America/Santiago'],
    ['2026-11-27T12:54:00Z', 'more than 1d old'],
  ])('%s is refused by name', (said, why) => {
    expect(read(said)).toMatchObject({
      code: 'bad-value',
      column: 'counted_at',
      message: expect.stringContaining(why),
    });
  });

  it('is judged by when the row was inserted, so that a day without tillsync loses no count', () => {
    expect(read('2026-11-26T12:50:00Z', '2026-11-26T12:51:00.000Z')).toBe('2026-11-26T12:50:00.000Z');
  });

  it('is taken as counted_at and as countedAt', () => {
    for (const name of ['counted_at', 'countedAt']) {
      const reading = readChange('stock', { externalId: 'A', qty: 1, [name]: '2026-11-28T12:50:00Z' });
      expect(reading).toMatchObject({
        countedAt: '2026-11-28T12:50:00Z',
        change: { externalId: 'A', qty: 1 },
      });
    }
  });
});
