import { readdirSync, rmSync } from 'node:fs';
import path from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { type BranchPlace, ChainPlace, rowsOf } from '../support/chain-place.ts';
import { hasNatsServer } from '../support/nats-server.ts';
import { limitMs } from '../support/shared-config.ts';
import { type DaemonProcess, until } from '../support/workplace.ts';

/**
 * Changes of a chain over the years: a season shop, a shop that is split, a backup from before a rename, a hub that
 * dies.
 */
describe.skipIf(!hasNatsServer)('a chain that changes, with a real server', () => {
  let chain: ChainPlace;
  let hub: DaemonProcess;
  let b1: BranchPlace;
  let b2: BranchPlace;

  const DOUBLED = 'SELECT order_id, status FROM order_events GROUP BY 1, 2 HAVING count(*) > 1';
  const orderFor = (subsidiaryId: string) => chain.orderFor(subsidiaryId);
  const arrives = (place: { storage: string }, id: string) => chain.arrives(place, id);
  const restartHub = async (between: () => void | Promise<void> = () => {}) => {
    await hub.end('SIGTERM');
    await between();
    hub = await chain.startHub();
  };
  const renamed = async (from: string, to: string) => {
    // A hub that has just started is refused until it has read its branches.
    const isDone = async () => (await chain.hub.command('branch', 'rename', from, to)).code === 0;
    await until(`${from} is ${to}`, isDone, 60_000);
  };
  const linkOf = ({ storage }: BranchPlace) =>
    rowsOf<{ message: string }>(storage, "SELECT message FROM freshness WHERE subject = 'hub.link'")[0]
      ?.message ?? '';
  const alarm = () => chain.alarmOf('hub.branches') ?? '';

  beforeAll(async () => {
    ({ chain, hub, b1, b2 } = await ChainPlace.openRunning(37));
  }, limitMs(180_000));

  afterAll(() => chain.close());

  it(
    'a season shop is closed, and opened again months later: its mirror goes on, with what came meanwhile',
    async () => {
      const before = rowsOf(b2.storage, 'SELECT seq, order_id FROM order_events ORDER BY seq');
      expect(await chain.hub.command('branch', 'close', 'B2')).toMatchObject({ code: 0 });
      await chain.stop(b2);
      const late = orderFor('sub-2');
      await arrives(chain.hub, late);
      await restartHub(() => chain.letDaysPass(150));
      expect(await chain.joinAs({ ...b2, invitation: await chain.invite('B2') })).toMatchObject({ code: 0 });
      await chain.start(b2);
      const next = orderFor('sub-2');
      for (const id of [late, next]) await arrives(b2, id);
      const events = rowsOf(b2.storage, 'SELECT seq, order_id FROM order_events ORDER BY seq');
      expect(events.slice(0, before.length)).toEqual(before);
      expect(rowsOf(b2.storage, DOUBLED)).toEqual([]);
      expect(rowsOf(b2.storage, "SELECT 1 FROM orders WHERE store_external_id = 'B1'")).toEqual([]);
      await until('nothing is unassigned', () => chain.alarmOf('hub.unassigned') === undefined, 60_000);
    },
    limitMs(240_000),
  );

  it(
    'a shop is split in two: its machine goes on as one of them, and the other gets its own orders alone',
    async () => {
      const open = orderFor('sub-2');
      await arrives(b2, open);
      await restartHub(() =>
        chain.configure((text) =>
          text.replace(
            'external_id = "B2"\n',
            'external_id = "Norte"\n[[branches]]\nsubsidiary_id = "sub-3"\nexternal_id = "Sur"\n',
          ),
        ),
      );
      await until('it is told', () => alarm().includes('branch rename B2 Norte'), 60_000);
      await until(
        'so is the branch, with the command',
        () => linkOf(b2).includes('branch rename B2 Norte'),
        60_000,
      );
      expect(linkOf(b2)).toMatch(/waits for its new name.* are kept\./);
      expect(linkOf(b2)).not.toMatch(/B1|Sur|invite/);
      await renamed('B2', 'Norte');
      const south = await chain.join('Sur');
      await chain.start(south);
      const [north, own] = [orderFor('sub-2'), orderFor('sub-3')];
      chain.hub.sandbox.control.advanceOrder(open);
      await arrives(b2, north);
      await arrives(south, own);
      const steps = `SELECT 1 FROM order_events WHERE order_id = '${open}'`;
      await until('the next step is at the north', () => rowsOf(b2.storage, steps).length === 2, 60_000);
      const ids = ({ storage }: BranchPlace) =>
        rowsOf<{ id: string }>(storage, 'SELECT order_id AS id FROM orders').map(({ id }) => id);
      expect(ids(south)).toEqual([own]);
      expect(ids(b2)).not.toContain(own);
    },
    limitMs(240_000),
  );

  it(
    'the hub is restored from a backup of before a rename: on its machine nothing is to be said again',
    async () => {
      const file = path.join(chain.directory, 'before-rename.tar.gz');
      expect(await chain.hub.command('backup', file)).toMatchObject({ code: 0 });
      const configure = (from: string, to: string) =>
        chain.configure((text) => text.replace(`external_id = "${from}"`, `external_id = "${to}"`));
      await restartHub(() => configure('Norte', 'Centro'));
      await renamed('Norte', 'Centro');
      await arrives(b2, orderFor('sub-2'));
      await restartHub(async () => {
        const restored = await chain.hub.command('restore', file);
        expect(restored.code, restored.stderr).toBe(0);
        // The restored configuration has the earlier name, so the operator changes the name again.
        chain.configure((text) => text.replace('external_id = "Norte"', 'external_id = "Centro"'));
      });
      await arrives(b2, orderFor('sub-2'));
      expect(alarm()).not.toMatch(/rename/);
      expect(rowsOf(b2.storage, DOUBLED)).toEqual([]);
    },
    limitMs(240_000),
  );

  it(
    'the machine of the hub dies without a backup, and that of a branch becomes the hub: its POS goes on',
    async () => {
      const last = orderFor('sub-1');
      await arrives(b1, last);
      const before = rowsOf<{ seq: number; id: string }>(
        b1.storage,
        'SELECT seq, order_id AS id FROM order_events ORDER BY seq',
      );
      await hub.end('SIGKILL');
      await chain.server.kill();
      for (const name of readdirSync(chain.hub.storage)) {
        rmSync(path.join(chain.hub.storage, name), { recursive: true });
      }
      rmSync(path.dirname(chain.serverFile), { recursive: true });
      await chain.stop(b1);
      const since = orderFor('sub-1');
      chain.configure((text) => text.replace(chain.hub.storage, b1.storage));
      chain.hub.env.TILLSYNC_REFRESH_TOKEN = chain.hub.sandbox.issueTokens().refreshToken;
      const written = await chain.hub.command('hub', 'server-config', chain.serverFile);
      expect(written.code, written.stderr).toBe(0);
      await chain.startServer();
      hub = await chain.startHub();
      // As `branch add B1 --here` does where there is systemd.
      const own = chain.branchAt('B1-here', await chain.invite('B1'));
      const here = await chain.joinAs(own);
      expect(here.code, here.stderr).toBe(0);
      await chain.start(own);
      for (const id of [since, orderFor('sub-1')]) await arrives(own, id);
      const events = rowsOf<{ seq: number; id: string }>(
        own.storage,
        'SELECT seq, order_id AS id FROM order_events ORDER BY seq',
      );
      const read = Math.max(...before.map(({ seq }) => seq));
      expect(Math.min(...events.map(({ seq }) => seq))).toBeGreaterThan(read);
      expect(events.map(({ id }) => id)).toEqual(expect.arrayContaining(before.map(({ id }) => id)));
      expect(rowsOf(own.storage, "SELECT 1 FROM orders WHERE store_external_id <> 'B1'")).toEqual([]);
      await chain.stop(b2);
      // The branch's machine still has the name B2, under which it joined first and which the new hub does not know.
      const other = await chain.joinAs({ ...b2, invitation: await chain.invite('Centro') });
      expect(other.code).toBe(2);
      expect(other.stderr).toMatch(/Nothing was changed.*branch invite Centro --previous-name B2/s);
      const invitation = await chain.invite('Centro', '--previous-name', 'B2');
      const joined = await chain.joinAs({ ...b2, invitation });
      expect(joined.code, joined.stderr).toBe(0);
      await chain.start(b2);
      const { control } = chain.hub.sandbox;
      const { internalOrderId } = control.createOrder({ subsidiaryId: 'sub-2' }, { hidden: true });
      control.changeOrder(internalOrderId, { store: { externalId: 'Centro' } });
      await arrives(b2, internalOrderId);
      expect(rowsOf(b2.storage, DOUBLED)).toEqual([]);
      expect(rowsOf(own.storage, DOUBLED)).toEqual([]);
    },
    limitMs(300_000),
  );
});
