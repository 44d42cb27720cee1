import { cpSync, readFileSync, rmSync } from 'node:fs';
import path from 'node:path';
import { isDeepStrictEqual } from 'node:util';
import Database from 'better-sqlite3';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { invitationText, readInvitation } from '../../src/link/server-config.ts';
import { addToFeed } from '../../src/orders/merging/branch-feed.ts';
import { type BranchPlace, ChainPlace, rowsOf, TWO_BRANCHES } from '../support/chain-place.ts';
import { hasNatsServer } from '../support/nats-server.ts';
import { limitMs } from '../support/shared-config.ts';
import { type DaemonProcess, until } from '../support/workplace.ts';

/**
 * Rows of "What happens when" in docs/chain.md that need processes, files and a server. The other rows are tested in
 * test/link and hub*.test.ts.
 */
describe.skipIf(!hasNatsServer)('what happens, with a real server, when', () => {
  let chain: ChainPlace;
  let hub: DaemonProcess;
  let b1: BranchPlace;
  let b2: BranchPlace;

  const orderFor = (subsidiaryId: string) => chain.orderFor(subsidiaryId);
  const has = (place: BranchPlace, id: string) => chain.has(place, id);
  const arrives = (place: BranchPlace, id: string) => chain.arrives(place, id);
  const events = ({ storage }: BranchPlace) =>
    rowsOf<{ seq: number; id: string }>(storage, 'SELECT seq, order_id AS id FROM order_events ORDER BY seq');
  const configure = (change: (text: string) => string) => chain.configure(change);
  const restartHub = async (between: () => void | Promise<void> = () => {}) => {
    await hub.end('SIGTERM');
    await between();
    hub = await chain.startHub();
  };
  const link = ({ storage }: BranchPlace) =>
    rowsOf<{ state: string; message: string }>(
      storage,
      "SELECT state, message FROM freshness WHERE subject = 'hub.link'",
    )[0];

  beforeAll(async () => {
    ({ chain, hub, b1, b2 } = await ChainPlace.openRunning(31));
  }, limitMs(180_000));

  afterAll(() => chain.close());

  it(
    'a branch gets an older copy of its files: it gives no number twice, and no order is missing',
    async () => {
      const copy = path.join(chain.directory, 'copy');
      await chain.kill(b1);
      cpSync(b1.storage, copy, { recursive: true, filter: (file) => !file.endsWith('.sock') });
      await chain.start(b1);
      const since = [orderFor('sub-1'), orderFor('sub-1')];
      for (const id of since) await arrives(b1, id);
      const given = Math.max(...events(b1).map(({ seq }) => seq));
      await chain.kill(b1);
      rmSync(b1.storage, { recursive: true });
      cpSync(copy, b1.storage, { recursive: true });
      const old = events(b1).length;
      await chain.start(b1);
      since.push(orderFor('sub-1'));
      for (const id of since) await arrives(b1, id);
      expect(
        events(b1)
          .slice(old)
          .every(({ seq }) => seq > given),
      ).toBe(true);
      expect(rowsOf(b1.storage, "SELECT 1 FROM orders WHERE store_external_id = 'B2'")).toEqual([]);
    },
    limitMs(180_000),
  );

  it(
    'a branch acknowledges an order that the hub has not heard of: it waits, and counts once the order comes',
    async () => {
      const { control } = chain.hub.sandbox;
      const webhook = control.webhook();
      control.setWebhook(null);
      const id = control.createOrder({ subsidiaryId: 'sub-1' }, { hidden: true }).internalOrderId;
      chain.acknowledge(b1, id);
      const waiting = `SELECT branch FROM _waiting_acks WHERE order_id = '${id}'`;
      const isWaiting = () => rowsOf(chain.hub.storage, waiting).length === 1;
      const booked = () =>
        rowsOf(chain.hub.storage, `SELECT source FROM order_acks WHERE order_id = '${id}'`);
      await until('it waits or the poll was faster', () => isWaiting() || booked().length === 1, 30_000);
      control.setWebhook(webhook);
      await arrives(b1, id);
      await until('it counts', () => booked().length === 1, 30_000);
      expect(booked()).toEqual([{ source: 'branch' }]);
      expect(rowsOf(chain.hub.storage, waiting)).toEqual([]);
    },
    limitMs(120_000),
  );

  it(
    'two machines work with one key: the newer one is heard, and after its silence the older one, with an alarm',
    async () => {
      const twin = await chain.twinOf(b1);
      await chain.start(twin);
      await until(
        'the first is refused',
        () => /Another machine works as/.test(link(b1)?.message ?? ''),
        90_000,
      );
      const during = orderFor('sub-1');
      await arrives(twin, during);
      expect(link(b1)?.message).not.toMatch(/B2/);
      await chain.kill(twin);
      // Sets the times as if the newer machine had sent nothing for five minutes.
      await restartHub(() => {
        const at = new Date(Date.now() - 301_000).toISOString();
        chain.edit(
          chain.hub.storage,
          'state.db',
          `UPDATE hub_branches SET seen_at = '${at}', joined_at = '${at}' WHERE branch = 'B1'`,
        );
      });
      await until('it is heard again', () => link(b1)?.state === 'ok', 60_000);
      await until(
        'it is told',
        () => /Branch B1 was two machines with one key/.test(chain.alarmOf('hub.misuse') ?? ''),
        60_000,
      );
      for (const id of [during, orderFor('sub-1')]) await arrives(b1, id);
    },
    limitMs(240_000),
  );

  it(
    'a branch is away beyond seven days: a snapshot brings each order, and nothing is doubled',
    async () => {
      const { control } = chain.hub.sandbox;
      await chain.stop(b2);
      const [one, two] = [orderFor('sub-2'), orderFor('sub-2')];
      await chain.arrives(chain.hub, two);
      control.advanceOrder(one);
      const unpublished = "SELECT 1 FROM _feed WHERE branch = 'B2' AND published = 0";
      const steps = `SELECT 1 FROM order_events WHERE order_id = '${one}'`;
      await until('the hub has its steps', () => rowsOf(chain.hub.storage, steps).length === 2, 60_000);
      await until('the server has all', () => rowsOf(chain.hub.storage, unpublished).length === 0, 60_000);
      await restartHub(() => chain.letDaysPass(8));
      expect(rowsOf(chain.hub.storage, "SELECT 1 FROM _feed WHERE branch = 'B2'")).toEqual([]);
      await chain.start(b2);
      const three = orderFor('sub-2');
      for (const id of [one, two, three]) await arrives(b2, id);
      const snapshots = "SELECT 1 FROM _feed WHERE branch = 'B2' AND kind = 'snapshot-begin'";
      expect(rowsOf(chain.hub.storage, snapshots)).toHaveLength(1);
      const doubled = 'SELECT order_id, status FROM order_events GROUP BY 1, 2 HAVING count(*) > 1';
      expect(rowsOf(b2.storage, doubled)).toEqual([]);
      expect(rowsOf(b2.storage, "SELECT 1 FROM orders WHERE store_external_id = 'B1'")).toEqual([]);
    },
    limitMs(240_000),
  );

  it(
    'an order goes to another branch: the one that had it sees where, and the other has it',
    async () => {
      const { control } = chain.hub.sandbox;
      const id = orderFor('sub-1');
      await arrives(b1, id);
      control.changeOrder(id, { store: { externalId: 'B2' } });
      control.advanceOrder(id);
      await arrives(b2, id);
      const sql = `SELECT store_external_id AS store, status FROM orders WHERE order_id = '${id}'`;
      const shown = ({ storage }: BranchPlace) => rowsOf(storage, sql)[0];
      await until('both show the same', () => isDeepStrictEqual(shown(b1), shown(b2)), 60_000);
      expect(shown(b1)).toMatchObject({ store: 'B2' });
    },
    limitMs(120_000),
  );

  it(
    'something that came down cannot be applied, or is longer than the server takes: what follows goes on',
    async () => {
      const db = new Database(path.join(chain.hub.storage, 'mirror.db'));
      const at = new Date().toISOString();
      for (const body of [{ reading: 7 }, { reading: 'ñ'.repeat(4_100_000) }])
        addToFeed(db, 'B1', 'order', body, { at });
      db.close();
      await arrives(b1, orderFor('sub-1'));
      const payloads = 'SELECT payload FROM quarantine ORDER BY length(payload) DESC';
      expect(rowsOf(b1.storage, payloads)).toEqual([{ payload: '{"reading":7}' }, { payload: '{}' }]);
      expect(rowsOf(b2.storage, payloads)).toEqual([]);
      await until('the hub names it', () => /B1 \(2\)/.test(chain.alarmOf('hub.unapplied') ?? ''), 90_000);
    },
    limitMs(180_000),
  );

  it(
    "a branch is taken out of the configuration: its orders are nobody's, and come once it is there again",
    async () => {
      const [one, two] = TWO_BRANCHES.split(/(?=\[\[branches\]\]\nsubsidiary_id = "sub-2")/) as [
        string,
        string,
      ];
      expect(one + two).toBe(TWO_BRANCHES);
      await restartHub(() => configure((text) => text.replace(two, '')));
      const waiting = orderFor('sub-2');
      await until('it is told', () => /They name: B2/.test(chain.alarmOf('hub.unassigned') ?? ''), 60_000);
      await arrives(b1, orderFor('sub-1'));
      expect(has(b2, waiting)).toBe(false);
      await restartHub(() => configure((text) => text + two));
      await arrives(b2, waiting);
      await until('it is over', () => chain.alarmOf('hub.unassigned') === undefined, 60_000);
    },
    limitMs(180_000),
  );

  it(
    "a branch is closed: its orders are nobody's, nothing else is said of it, and an invitation opens it again",
    async () => {
      const before = rowsOf(b2.storage, 'SELECT epoch FROM _link');
      expect(await chain.hub.command('branch', 'close', 'B2')).toMatchObject({ code: 0 });
      await until('it is refused', () => link(b2)?.state === 'failing', 60_000);
      const waiting = orderFor('sub-2');
      await until('it is told', () => /They name: B2/.test(chain.alarmOf('hub.unassigned') ?? ''), 60_000);
      expect(chain.alarmOf('hub.branches') ?? '').not.toMatch(/B2/);
      expect(has(b2, waiting)).toBe(false);
      await chain.stop(b2);
      expect(await chain.joinAs({ ...b2, invitation: await chain.invite('B2') })).toMatchObject({ code: 0 });
      await chain.start(b2);
      await arrives(b2, waiting);
      expect(rowsOf(b2.storage, 'SELECT epoch FROM _link')).toEqual(before);
    },
    limitMs(180_000),
  );

  it(
    'two branches swap their names: no machine gets an order of the other, until both commands were typed',
    async () => {
      const swap = () =>
        configure((text) =>
          text
            .replace('external_id = "B1"', 'external_id = "B0"')
            .replace('external_id = "B2"', 'external_id = "B1"')
            .replace('external_id = "B0"', 'external_id = "B2"'),
        );
      await restartHub(swap);
      // The platform's order names B1, which is now the name of the shop whose machine joined as B2.
      const waiting = orderFor('sub-1');
      await chain.arrives(chain.hub, waiting);
      const alarm = () => chain.alarmOf('hub.branches') ?? '';
      await until('it is told', () => alarm().includes('branch rename B2 B1'), 60_000);
      expect(alarm()).toMatch(/no order goes to it until you say which shop it is/);
      expect([has(b1, waiting), has(b2, waiting)]).toEqual([false, false]);
      const rename = async (from: string, to: string) => {
        const renamed = await chain.hub.command('branch', 'rename', from, to);
        expect(renamed, renamed.stderr).toMatchObject({ code: 0 });
      };
      await rename('B2', 'B1');
      await rename('B1', 'B2');
      await arrives(b2, waiting);
      await restartHub(swap);
      await rename('B2', 'B1');
      await rename('B1', 'B2');
      await arrives(b1, orderFor('sub-1'));
      await arrives(b2, orderFor('sub-2'));
    },
    limitMs(240_000),
  );

  it(
    'a branch is renamed: nothing goes to the new name before a person says so, and then all is as it was',
    async () => {
      const before = rowsOf<{ epoch: string }>(b2.storage, 'SELECT epoch FROM _link')[0]?.epoch;
      const onto = await chain.hub.command('branch', 'rename', 'B2', 'B1');
      expect(onto).toMatchObject({ code: 2 });
      expect(onto.stderr).toMatch(/There is a branch B1 already; B2 keeps its name, and nothing was changed/);
      expect(onto.stderr).toMatch(/branch revoke B1/);
      await restartHub(() =>
        configure((text) => text.replace('external_id = "B2"', 'external_id = "Norte"')),
      );
      const waiting = orderFor('sub-2');
      const inMirror = `SELECT 1 FROM orders WHERE order_id = '${waiting}'`;
      await until('the hub has it', () => rowsOf(chain.hub.storage, inMirror).length === 1, 30_000);
      expect(has(b2, waiting)).toBe(false);
      const renamed = await chain.hub.command('branch', 'rename', 'B2', 'Norte');
      expect(renamed, renamed.stderr).toMatchObject({ code: 0 });
      await arrives(b2, waiting);
      await arrives(b2, orderFor('sub-2'));
      expect(rowsOf<{ epoch: string }>(b2.storage, 'SELECT epoch FROM _link')[0]?.epoch).toBe(before);
    },
    limitMs(180_000),
  );

  it(
    'an invitation comes too late: it says so, what the machine had stays, and which command helps',
    async () => {
      const late = readInvitation(await chain.invite('B1'));
      const withdrawn = await chain.hub.command('branch', 'invite', 'B1');
      expect(withdrawn.code).toBe(0);
      const invitation = invitationText({ ...late, expiresAt: new Date(Date.now() - 1_000).toISOString() });
      const refused = await chain.joinAs({ ...b1, invitation });
      expect(refused.code).toBe(1);
      expect(refused.stderr).toMatch(
        /does not take this invitation of branch B1: it has expired\. Nothing was changed/,
      );
      expect(refused.stderr).toMatch(/branch invite B1/);
      expect(refused.stderr).not.toMatch(/B2|Norte/);
      await arrives(b1, orderFor('sub-1'));
    },
    limitMs(120_000),
  );

  it(
    'the platform does not have the id of a branch any more: it is named, what was read is kept, and others go on',
    async () => {
      const gone = '[[branches]]\nsubsidiary_id = "sub-99"\nexternal_id = "B9"\n';
      const products = 'SELECT count(*) AS n FROM products';
      const [before] = rowsOf<{ n: number }>(b1.storage, products);
      await restartHub(() => configure((text) => text + gone));
      const words =
        "SELECT message FROM freshness WHERE subject = 'catalog.sweep' AND failure_code IS NOT NULL";
      const told = () => rowsOf<{ message: string }>(chain.hub.storage, words)[0]?.message ?? '';
      await until('it is named', () => told().includes('B9 / sub-99'), 60_000);
      expect(told()).toMatch(/kept, and the others are read\. .*branch close NAME/);
      expect(rowsOf<{ n: number }>(b1.storage, products)).toEqual([before]);
      await arrives(b1, orderFor('sub-1'));
      await restartHub(() => configure((text) => text.replace(gone, '')));
    },
    limitMs(180_000),
  );

  it(
    'a branch was removed since the backup: its key does not come back with it',
    async () => {
      const name = readFileSync(chain.hub.configFile, 'utf8').includes('"Norte"') ? 'Norte' : 'B2';
      const file = path.join(chain.directory, 'backup.tar.gz');
      expect(await chain.hub.command('backup', file)).toMatchObject({ code: 0 });
      expect(await chain.hub.command('branch', 'revoke', name)).toMatchObject({ code: 0 });
      await restartHub(async () => {
        const restored = await chain.hub.command('restore', file);
        expect(restored.code, restored.stderr).toBe(0);
      });
      await arrives(b1, orderFor('sub-1'));
      await until(
        'the removed one is refused',
        () => /does not know the key/.test(link(b2)?.message ?? ''),
        60_000,
      );
      expect(link(b2)?.message).not.toMatch(/B1/);
      const why = /Its key has ended, .* A machine that calls itself so is refused since/;
      const list = async () => (await chain.hub.command('branch', 'list')).stdout;
      await until('the hub says why', async () => why.test(await list()), 90_000);
      const keys = "SELECT public_key FROM hub_branches WHERE name = 'Norte' OR branch = 'B2'";
      expect(rowsOf(chain.hub.storage, keys, 'state.db')).toEqual([{ public_key: null }]);
    },
    limitMs(180_000),
  );
});
