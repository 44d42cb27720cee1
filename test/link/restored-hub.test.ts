import { rmSync } from 'node:fs';
import path from 'node:path';
import { describe, expect, it } from 'vitest';
import { isoUtc } from '../../src/core/time.ts';
import type { AuditAction } from '../../src/db/audit.ts';
import { assignStore } from '../../src/link/assign.ts';
import { noteStream } from '../../src/link/hub-feed.ts';
import { openBackup, writeBackup } from '../../src/support/backup.ts';
import { restoreBackup } from '../../src/support/restore.ts';
import { type Chain, type HubStore, openChain } from './chain-rig.ts';

const idOf = (number: number) => `65a1${String(number).padStart(20, '0')}`;
const OUTBOX = `SELECT json_extract(body, '$.externalId') AS id, json_extract(body, '$.qty') AS qty, state,
  held_guard AS held FROM outbox ORDER BY change_id`;

async function backUp(hub: HubStore, withTokens = false) {
  const file = path.join(hub.directory, `backup-${withTokens}.tar.gz`);
  await writeBackup({
    config: hub.services.config,
    env: {},
    configFile: '/nowhere/config.toml',
    path: file,
    force: true,
    withTokens,
    clock: hub.clock,
    who: 'cli ana',
  });
  return file;
}

/** Restores the hub from a backup. `lost` names the databases to delete first; on another machine both are missing. */
async function restore({ hub }: Chain, file: string, lost: readonly string[] = []) {
  const { config } = hub.services;
  await hub.stop();
  for (const name of lost) {
    for (const end of ['', '-wal', '-shm']) rmSync(path.join(hub.directory, name + end), { force: true });
  }
  const from = openBackup(file);
  const report = await restoreBackup({ path: file, file: from, config, clock: hub.clock, who: 'cli ana' });
  return report;
}

describe('a hub that is restored from a backup', () => {
  it('begins anew with each branch: no order is missing, nothing is doubled, and acknowledgements are there again', async () => {
    const chain = await openChain();
    const { hub, branches, settle } = chain;
    await settle();
    for (const number of [1, 2]) await hub.order(number, number === 1 ? 'B1' : 'B2');
    await settle();
    const file = await backUp(hub);
    const before = hub.rows('SELECT epoch FROM _hub');
    for (const number of [3, 4]) await hub.order(number, number === 3 ? 'B1' : 'B2');
    await settle();
    await branches[0].services.stores.write(({ reservations }) =>
      reservations.acknowledge([idOf(3)], 'inbox'),
    );
    await settle();
    await restore(chain, file);
    expect(hub.rows('SELECT order_id FROM orders')).toHaveLength(2);
    await hub.start();
    expect(hub.rows('SELECT epoch FROM _hub')).not.toEqual(before);
    // The platform's poll brings orders 3 and 4 again, and order 5 is new.
    for (const number of [3, 4, 5]) await hub.order(number, number === 4 ? 'B2' : 'B1');
    await settle();
    await settle();
    const events = 'SELECT order_id, count(*) AS n FROM order_events GROUP BY order_id ORDER BY order_id';
    expect(branches[0].rows(events)).toEqual([1, 3, 5].map((number) => ({ order_id: idOf(number), n: 1 })));
    expect(branches[1].rows(events)).toEqual([2, 4].map((number) => ({ order_id: idOf(number), n: 1 })));
    expect(hub.rows('SELECT order_id, source FROM order_acks')).toEqual([
      { order_id: idOf(3), source: 'branch' },
    ]);
    const snapshots = "SELECT branch FROM _feed WHERE kind = 'snapshot-begin' ORDER BY branch";
    expect(new Set(hub.rows<{ branch: string }>(snapshots).map(({ branch }) => branch))).toEqual(
      new Set(['B1', 'B2']),
    );
  });

  it('says nothing again of what it said before the backup: no order goes back', async () => {
    const chain = await openChain();
    const { hub, branches, server, settle } = chain;
    const [branch] = branches;
    await settle();
    await hub.order(1, 'B1');
    await hub.order(1, 'B1', 'payment-approved');
    await settle();
    // The server has lost its files when the backup is made, so every entry must be published again.
    server.lose();
    server.isDown = true;
    await hub.services.mirror.write((db) => noteStream(db, 'another place', [], hub.clock.nowMs()));
    const file = await backUp(hub);
    await settle();
    await restore(chain, file);
    await hub.start();
    // The branch must not mistake a snapshot of an earlier epoch for a snapshot of the new epoch.
    const place = () => branch.rows<{ epoch: string; mark: number }>('SELECT epoch, mark FROM _link')[0];
    const before = place();
    await hub.publish();
    await branch.follow();
    expect(place()).toEqual(before);
    await settle();
    expect(place()?.epoch).not.toBe(before?.epoch);
    expect(branch.rows('SELECT status FROM order_events ORDER BY seq')).toEqual([
      { status: 'pending' },
      { status: 'payment-approved' },
    ]);
  });

  it('hears from its branches whose customers were forgotten since the backup, and from no branch else', async () => {
    const chain = await openChain();
    const { hub, branches, settle } = chain;
    await settle();
    for (const number of [1, 2]) await hub.order(number, number === 1 ? 'B1' : 'B2', 'delivered');
    await settle();
    const file = await backUp(hub);
    await hub.services.mirror.customers.forget(idOf(1), () => {});
    await settle();
    const known = 'SELECT order_id FROM orders WHERE customer_email IS NOT NULL ORDER BY 1';
    expect(branches[0].rows(known)).toEqual([]);
    await restore(chain, file, ['mirror.db']);
    await hub.start();
    expect(hub.rows(known)).toHaveLength(2);
    // A branch's report about an order that it never had is ignored.
    await branches[1].services.mirror.write((db) =>
      db.prepare('INSERT INTO _forgotten_up (order_id) VALUES (?)').run(idOf(1)),
    );
    await settle([branches[1]]);
    expect(hub.rows(known)).toHaveLength(2);
    await settle();
    expect(hub.rows(known)).toEqual([{ order_id: idOf(2) }]);
    expect(hub.rows("SELECT subject, detail FROM _audit WHERE action = 'order.forget'")).toEqual([
      { subject: `order ${idOf(1)}`, detail: 'Forgotten before the restore, as branch B1 knows.' },
    ]);
    for (const branch of branches) expect(branch.rows('SELECT * FROM _forgotten_up')).toEqual([]);
    expect(branches[0].rows(known)).toEqual([]);
  });

  it('takes no word of that where it was never restored: a key may be stolen', async () => {
    const { hub, branches, settle } = await openChain();
    await settle();
    await hub.order(1, 'B1', 'delivered');
    await settle();
    await branches[0].services.mirror.write((db) =>
      db.prepare('INSERT INTO _forgotten_up (order_id) VALUES (?)').run(idOf(1)),
    );
    await settle();
    expect(hub.rows('SELECT 1 FROM orders WHERE customer_email IS NOT NULL')).toHaveLength(1);
  });

  it('sends nothing by itself that is older than the restore, and gets again what had no answer', async () => {
    const chain = await openChain();
    const { hub, branches, settle } = chain;
    const [branch] = branches;
    await settle();
    await branch.count('P1', 5, 'old');
    await settle();
    const file = await backUp(hub);
    // After the backup, the platform got a newer value of P1, and P2 was uploaded but not answered.
    await branch.count('P1', 7, 'newer');
    await settle();
    await hub.services.mirror.write((db) =>
      db.prepare("UPDATE _outbox SET state = 'done', settled_at = '2026-01-01'").run(),
    );
    await settle();
    await branch.count('P2', 9, 'unanswered');
    await settle();
    expect(branch.rows('SELECT reference, state FROM outbox ORDER BY change_id')).toEqual([
      { reference: 'old', state: 'superseded' },
      { reference: 'newer', state: 'done' },
      { reference: 'unanswered', state: 'sending' },
    ]);
    const report = await restore(chain, file);
    expect(report.held).toBe(1);
    await hub.start();
    await settle();
    await settle();
    expect(hub.rows(OUTBOX)).toEqual([
      { id: 'P1', qty: 5, state: 'pending', held: 'restored' },
      { id: 'P2', qty: 9, state: 'pending', held: null },
    ]);
    await hub.services.mirror.write((db) =>
      db
        .prepare("UPDATE _outbox SET state = 'done', settled_at = '2026-01-01' WHERE held_guard IS NULL")
        .run(),
    );
    await settle();
    expect(branch.rows("SELECT state FROM outbox WHERE reference = 'unanswered'")).toEqual([
      { state: 'done' },
    ]);
  });

  it('knows its branches again on another machine, by what every backup has: nothing secret', async () => {
    const chain = await openChain();
    const { hub, branches, settle } = chain;
    await settle();
    const keys = { hub: 'SUHUB', system: 'SUSYS', storage: 'f00d' };
    hub.services.state.hub.keepKeys(keys);
    const place = { file: '/srv/nats/server.conf', storeDirectory: '/srv/nats/jetstream', tls: null };
    hub.services.state.hub.noteServerConfig(place);
    hub.services.state.hub.invite('B2', `U${'C'.repeat(55)}`, hub.clock.nowMs() + 3_600_000);
    const known = hub.services.state.hub.branches();
    await hub.order(1, 'B1');
    const file = await backUp(hub);
    const report = await restore(chain, file, ['mirror.db', 'state.db']);
    expect(report).toMatchObject({ branches: ['B1', 'B2'], manifest: { branches: 2, hasTokens: false } });
    await hub.start();
    // The backup has B2's key but not its invitation. `seenLateMs` is a minute if this process got no report itself.
    const none = { seenAt: null, seenLateMs: 60_000, report: null, invitedKey: null, expiresAt: null };
    expect(hub.services.state.hub.branches()).toEqual(known.map((each) => ({ ...each, ...none })));
    expect(hub.services.state.hub.serverConfig()).toEqual(place);
    expect(hub.services.state.hub.keys()).not.toMatchObject({ hub: keys.hub });
    await settle();
    await settle();
    expect(branches[0].orders()).toHaveLength(1);
  });

  it('has its own keys again with --with-tokens, which the audit tells', async () => {
    const chain = await openChain();
    const { hub, settle } = chain;
    await settle();
    const keys = { hub: 'SUHUB', system: 'SUSYS', storage: 'f00d' };
    hub.services.state.hub.keepKeys(keys);
    const file = await backUp(hub, true);
    expect(hub.rows("SELECT who, action, subject, detail FROM _audit WHERE action = 'backup'")).toEqual([
      { who: 'cli ana', action: 'backup', subject: 'backup-true.tar.gz', detail: 'with tokens' },
    ]);
    await restore(chain, file, ['mirror.db', 'state.db']);
    await hub.start();
    expect(hub.services.state.hub.keys()).toEqual(keys);
  });

  it('lets no branch in again that was removed or invited anew since the backup', async () => {
    const chain = await openChain();
    const { hub, settle } = chain;
    await settle();
    const file = await backUp(hub);
    await hub.services.stores.write(({ audit }) =>
      audit.note({ who: 'cli ana', action: 'branch.revoke', subject: 'branch B1' }),
    );
    hub.services.state.hub.remove('B1');
    // This hub still has branches of its own, so no branch is restored from the backup.
    expect(await restore(chain, file)).toMatchObject({ branches: [] });
    await hub.start();
    expect(await restore(chain, file, ['state.db'])).toMatchObject({ branches: ['B2'] });
    await hub.start();
  });

  it('keeps a closed branch closed on another machine, and its orders go where a person sent them', async () => {
    const chain = await openChain();
    const { hub, branches, settle } = chain;
    const [branch] = branches;
    await settle();
    await hub.order(1, 'B2');
    hub.services.state.hub.close({ branch: 'B2', name: 'B2' }, hub.clock.nowMs());
    await hub.hub.begin();
    await hub.services.mirror.write((db) => assignStore(db, 'B2', 'B1', isoUtc(hub.clock.nowMs())));
    await settle([branch]);
    const closed = hub.services.state.hub.branches().find(({ name }) => name === 'B2');
    const file = await backUp(hub);
    const report = await restore(chain, file, ['mirror.db', 'state.db']);
    expect(report).toMatchObject({ branches: ['B1'], manifest: { branches: 1 } });
    await hub.start();
    expect(hub.services.state.hub.branches().find(({ name }) => name === 'B2')).toEqual({
      ...closed,
      seenLateMs: 60_000,
    });
    await hub.order(2, 'B2');
    await settle([branch]);
    await settle([branch]);
    const ids = 'SELECT order_id AS id FROM orders ORDER BY 1';
    expect(branch.rows(ids)).toEqual([{ id: idOf(1) }, { id: idOf(2) }]);
  });

  const swapped = ['rename B1 B2', 'rename B2 B1'];
  it.each([
    { before: [], since: ['close B2'], keyed: ['B1'], closed: ['B2'] },
    { before: [], since: ['close B2', 'invite B2'], keyed: ['B1'], closed: [] },
    { before: [], since: ['close B2', 'invite B2', 'close B2'], keyed: ['B1'], closed: ['B2'] },
    { before: [], since: ['close B3'], keyed: ['B1', 'B2'], closed: ['B3'] },
    { before: [], since: ['rename B2 Norte'], keyed: ['B1', 'B2'], closed: [] },
    { before: [], since: ['rename B2 Norte', 'revoke Norte'], keyed: ['B1'], closed: [] },
    { before: [], since: ['rename B2 Norte', 'close Norte'], keyed: ['B1'], closed: ['B2'] },
    { before: [], since: ['rename B2 Norte', 'close B2'], keyed: ['B1', 'B2'], closed: [] },
    { before: [], since: [...swapped, 'revoke B1'], keyed: ['B1'], closed: [] },
    { before: ['B9'], since: [], keyed: ['B1', 'B2'], closed: ['B9'] },
    { before: ['B9'], since: ['invite B9'], keyed: ['B1', 'B2'], closed: [] },
    { before: ['B9'], since: ['rename B2 B9'], keyed: ['B1', 'B2'], closed: [] },
  ])(
    'takes over what people did since the backup: $before closed, then $since',
    { tags: ['bulk'] },
    async (given) => {
      const chain = await openChain();
      const { hub, clock } = chain;
      for (const name of given.before) hub.services.state.hub.close({ branch: name, name }, clock.nowMs());
      const file = await backUp(hub);
      for (const [action, of, to] of given.since.map((each) => each.split(' '))) {
        await clock.advance(1_000);
        await hub.services.stores.write(({ audit }) =>
          audit.note({
            who: 'cli ana',
            action: `branch.${action}` as AuditAction,
            subject: `branch ${of}`,
            detail: to === undefined ? null : `now ${to}`,
          }),
        );
      }
      expect(await restore(chain, file, ['state.db'])).toMatchObject({ branches: given.keyed });
      await hub.start();
      const closed = hub.services.state.hub.branches().filter(({ closedAt }) => closedAt !== null);
      expect(closed.map(({ branch }) => branch)).toEqual(given.closed);
      if ((given.since as string[]).includes('close Norte')) expect(closed[0]?.name).toBe('Norte');
    },
  );
});
