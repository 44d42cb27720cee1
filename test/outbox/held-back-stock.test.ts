/** Tests src/outbox/ledger/reservations.ts. */

import { mkdirSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { openMirror } from '../../src/app/mirror.ts';
import { silentLog } from '../../src/core/log.ts';
import type { Mirror } from '../../src/orders/reading/mirror.ts';
import { GUARDS_OFF } from '../../src/outbox/intake/guards.ts';
import { InboxLoop } from '../../src/outbox/intake/inbox-loop.ts';
import { OutboxService } from '../../src/outbox/sending/outbox.ts';
import type { PushLoop } from '../../src/outbox/sending/push-loop.ts';
import { MirrorStores } from '../../src/outbox/sending/repositories.ts';
import { receive, sampleNotification } from '../orders/open-test-mirror.ts';
import { FakeClock } from '../support/fake-clock.ts';
import { freshMirror } from '../support/fresh-mirror.ts';
import { BRANCHES, product, pushLoop } from './outbox-fixture.ts';
import { pos } from './temp-inbox.ts';

type InboxLoopOptions = ConstructorParameters<typeof InboxLoop>[0];

const PIZZA = product('p1', 'Pizza', [{ sku: '1', stocks: { s1: ['P1', 50] } }]);

let directory: string;
let clock: FakeClock;
let mirror: Mirror;
let stores: MirrorStores;
let outbox: OutboxService;
let sender: PushLoop;

beforeEach(async () => {
  directory = mkdtempSync(path.join(tmpdir(), 'tillsync-held-back-'));
  clock = new FakeClock();
  mirror = openMirror({ path: freshMirror(directory), clock });
  stores = new MirrorStores({ mirror, branches: BRANCHES, clock });
  await stores.write(({ catalog }) => catalog.applyPage(BRANCHES[0]!, [PIZZA], catalog.readMark()));
  outbox = new OutboxService({ stores, guards: GUARDS_OFF, holdBack: true });
  sender = pushLoop('stock', stores, clock, { holdBack: true, skipUnchanged: false });
});
afterEach(async () => {
  await mirror.close();
  rmSync(directory, { recursive: true, force: true });
});

/**
 * Receives an order of two pizzas as pending and then as dispatched; only then claims a call, and returns its
 * quantities.
 */
async function sentAfterAnOrder(): Promise<unknown[]> {
  await receive(mirror, sampleNotification(1, { status: 'pending' }));
  await receive(mirror, sampleNotification(1, { status: 'dispatched' }));
  const { items } = await sender.claim(100);
  return items.map(({ body }) => 'qty' in body && body.qty);
}

describe('the first count of all', () => {
  it('is sent without what was sold since it was handed over', async () => {
    await outbox.submit([{ kind: 'stock', change: { sku: '1', qty: 10, subsidiaryId: 's1' } }], 'http');
    expect(await sentAfterAnOrder()).toEqual([8]);
  });

  it('is so by way of the inbox too', async () => {
    mkdirSync(path.join(directory, 'inbox'));
    const inbox = new InboxLoop({
      path: path.join(directory, 'inbox', 'inbox.db'),
      stores,
      clock,
      guards: GUARDS_OFF,
      holdBack: true,
      onWaiting: () => {},
      log: silentLog,
    } as unknown as InboxLoopOptions);
    await inbox.ingest();
    const till = pos(path.join(directory, 'inbox', 'inbox.db'));
    till.exec("INSERT INTO stock_changes (sku, qty, subsidiary_id) VALUES (1, 10, 's1')");
    till.close();
    expect(await inbox.ingest()).toMatchObject({ taken: 1 });
    await inbox.close();
    expect(await sentAfterAnOrder()).toEqual([8]);
  });
});

describe('a count that was given up', () => {
  it('is not insisted on, and gives way to what orders have moved', async () => {
    const count = (qty: number) => [
      { kind: 'stock' as const, change: { sku: '1', qty, subsidiaryId: 's1' } },
    ];
    await outbox.submit(count(10), 'http');
    const first = await sender.claim(100);
    await sender.settle(first.callId ?? 0, [{ changeId: first.items[0]?.changeId ?? 0, state: 'done' }]);
    const [waiting] = await outbox.submit(count(20), 'http');
    const createdAt = new Date(clock.nowMs() - 60_000).toISOString();
    await receive(mirror, sampleNotification(1, { status: 'pending', createdAt }));
    await outbox.discard(waiting?.changeId ?? 0, 'cli ana');
    const { items } = await sender.claim(100);
    expect(items.map(({ body }) => 'qty' in body && body.qty)).toEqual([8]);
  });
});

describe('what is kept of counts', () => {
  const moved = () => stores.read(({ dispatcher }) => dispatcher.movedCount);

  it('is not sent again once the hold-back is switched off', async () => {
    await outbox.submit([{ kind: 'stock', change: { sku: '1', qty: 10, subsidiaryId: 's1' } }], 'http');
    const { callId, items } = await sender.claim(100);
    await sender.settle(callId ?? 0, [{ changeId: items[0]?.changeId ?? 0, state: 'done' }]);
    await receive(mirror, sampleNotification(1, { status: 'cancel' }));
    await stores.write(({ dispatcher }) => dispatcher.catchUp({ holdBack: true }));
    expect(moved()).toBe(1);
    await stores.write(({ dispatcher }) => dispatcher.catchUp({ holdBack: false }));
    expect(moved()).toBe(0);
  });
});
