import { mkdirSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { ChangeDesk } from '../../src/daemon/changes/change-desk.ts';
import { inboxWiring } from '../../src/daemon/changes/inbox-wiring.ts';
import { pushLine } from '../../src/daemon/changes/outbox-wiring.ts';
import { demoConfig } from '../../src/daemon/demo/demo-config.ts';
import { MirrorStores } from '../../src/daemon/storage/mirror-stores.ts';
import { GUARDS_OFF } from '../../src/domain/change/guard-rails.ts';
import { silentLog } from '../../src/domain/log.ts';
import { type Mirror, openMirror } from '../../src/store/mirror/mirror.ts';
import { pos } from '../store/inbox/temp-inbox.ts';
import { receive, sampleNotification } from '../store/mirror/open-test-mirror.ts';
import { BRANCHES, product } from '../store/outbox/outbox-fixture.ts';
import { FakeClock } from '../support/fake-clock.ts';

const PIZZA = product('p1', 'Pizza', [{ sku: '1', stocks: { s1: ['P1', 50] } }]);

let directory: string;
let clock: FakeClock;
let mirror: Mirror;
let stores: MirrorStores;
let desk: ChangeDesk;

beforeEach(async () => {
  directory = mkdtempSync(path.join(tmpdir(), 'tillsync-first-count-'));
  clock = new FakeClock();
  mirror = openMirror({ path: path.join(directory, 'mirror.db'), clock });
  stores = new MirrorStores({ mirror, branches: BRANCHES, clock });
  await stores.write(({ catalog }) => catalog.applyPage(BRANCHES[0]!, [PIZZA], catalog.readMark()));
  desk = new ChangeDesk({ stores, guards: GUARDS_OFF, holdBack: true, onTaken: () => {} });
});
afterEach(async () => {
  await mirror.close();
  rmSync(directory, { recursive: true, force: true });
});

/** An order of two pizzas comes and leaves the house before any count could be sent; what is sent then. */
async function sentAfterAnOrder(): Promise<unknown[]> {
  await receive(mirror, sampleNotification(1, { status: 'pending' }));
  await receive(mirror, sampleNotification(1, { status: 'dispatched' }));
  const settings = { skipUnchanged: false, hasBranches: true, lastPollOkMs: () => clock.nowMs(), clock };
  const line = pushLine(stores, desk, { holdBack: true, ...settings });
  const { items } = await line.claim('stock', 100);
  return items.map(({ body }) => 'qty' in body && body.qty);
}

describe('the first count of all', () => {
  it('is sent without what was sold since it was handed over', async () => {
    await desk.take([{ kind: 'stock', change: { sku: '1', qty: 10, subsidiaryId: 's1' } }], 'http');
    expect(await sentAfterAnOrder()).toEqual([8]);
  });

  it('is so by way of the inbox too', async () => {
    mkdirSync(path.join(directory, 'inbox'));
    const config = demoConfig({ baseUrl: 'http://platform.test', directory, webhookPort: 0 });
    const inbox = inboxWiring({ config, stores, clock, log: silentLog });
    await inbox.takeIn();
    const till = pos(path.join(directory, 'inbox', 'inbox.db'));
    till.exec("INSERT INTO stock_changes (sku, qty, subsidiary_id) VALUES (1, 10, 's1')");
    till.close();
    expect(await inbox.takeIn()).toMatchObject({ taken: 1 });
    inbox.close();
    expect(await sentAfterAnOrder()).toEqual([8]);
  });
});
