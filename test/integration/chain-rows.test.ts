import { cpSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { NatsHubLink } from '../../src/link/nats.ts';
import { invitationText, readInvitation } from '../../src/link/server-config.ts';
import { type BranchPlace, ChainPlace, rowsOf } from '../support/chain-place.ts';
import { hasNatsServer } from '../support/nats-server.ts';
import { limitMs } from '../support/shared-config.ts';
import { type DaemonProcess, until } from '../support/workplace.ts';

const BRANCHES = `[[branches]]
subsidiary_id = "sub-1"
external_id = "B1"
[[branches]]
subsidiary_id = "sub-2"
external_id = "B2"
`;

/**
 * Rows of "What happens when" in docs/chain.md that need processes, files and a server; the others: test/link,
 * hub*.test.ts.
 */
describe.skipIf(!hasNatsServer)('what happens, with a real server, when', () => {
  let chain: ChainPlace;
  let hub: DaemonProcess;
  let b1: BranchPlace;
  let b2: BranchPlace;

  const orderFor = (subsidiaryId: string) =>
    chain.hub.sandbox.control.createOrder({ subsidiaryId }).internalOrderId;
  const has = ({ storage }: BranchPlace, id: string) =>
    rowsOf(storage, `SELECT 1 FROM orders WHERE order_id = '${id}'`).length === 1;
  const arrives = (place: BranchPlace, id: string) =>
    until(`order ${id} is there`, () => has(place, id), 60_000);
  const events = ({ storage }: BranchPlace) =>
    rowsOf<{ seq: number; id: string }>(storage, 'SELECT seq, order_id AS id FROM order_events ORDER BY seq');
  const configure = (change: (text: string) => string) =>
    writeFileSync(chain.hub.configFile, change(readFileSync(chain.hub.configFile, 'utf8')));
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
    chain = await ChainPlace.open(31, BRANCHES);
    hub = await chain.startHub();
    b1 = await chain.join('B1');
    b2 = await chain.join('B2');
    for (const place of [b1, b2]) await chain.start(place);
    await arrives(b1, orderFor('sub-1'));
    await arrives(b2, orderFor('sub-2'));
  }, limitMs(180_000));

  afterAll(() => chain.close());

  it(
    'a branch gets an older copy of its files: it gives no number twice, and no order is missing',
    async () => {
      const copy = path.join(chain.directory, 'copy');
      await chain.kill(b1);
      cpSync(b1.storage, copy, { recursive: true });
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
    'a branch is renamed: nothing goes to the new name before a person says so, and then all is as it was',
    async () => {
      const before = rowsOf<{ epoch: string }>(b2.storage, 'SELECT epoch FROM link')[0]?.epoch;
      const onto = await chain.hub.command('branch', 'rename', 'B2', 'B1');
      expect(onto).toMatchObject({ code: 2 });
      expect(onto.stderr).toMatch(/There is a branch B1 already; B2 keeps its name, and nothing was changed/);
      expect(onto.stderr).toMatch(/branch remove B1/);
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
      expect(rowsOf<{ epoch: string }>(b2.storage, 'SELECT epoch FROM link')[0]?.epoch).toBe(before);
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
    'the hub is older than its branch, and says less: the branch works with it',
    async () => {
      await hub.end('SIGTERM');
      const sql = "SELECT json_extract(keys, '$.hub') AS seed FROM hub";
      const [{ seed } = { seed: '' }] = rowsOf<{ seed: string }>(chain.hub.storage, sql, 'state.db');
      const old = new NatsHubLink({ url: `nats://127.0.0.1:${chain.port}`, seed, user: '@hub', tls: null });
      const asked: string[] = [];
      const [{ upTo } = { upTo: 0 }] = rowsOf<{ upTo: number }>(
        chain.hub.storage,
        "SELECT up_to AS upTo FROM feed_branches WHERE branch = 'B1'",
      );
      await old.answer(async (branch, question) => {
        asked.push(`${branch} ${question}`);
        return JSON.stringify({ upTo, isLineKnown: true, seq: 0, published: 0, freshness: [] });
      });
      await until('the branch says hello', () => asked.includes('B1 hello'), 60_000);
      await until('the link is well', () => link(b1)?.state === 'ok', 60_000);
      await old.close();
      hub = await chain.startHub();
      await arrives(b1, orderFor('sub-1'));
    },
    limitMs(180_000),
  );

  it(
    'the platform does not have the id of a branch any more: it is named, what was read is kept, and others go on',
    async () => {
      const gone = '[[branches]]\nsubsidiary_id = "sub-99"\nexternal_id = "B9"\n';
      const products = 'SELECT count(*) AS n FROM products';
      const [before] = rowsOf<{ n: number }>(b1.storage, products);
      await restartHub(() => configure((text) => text + gone));
      const told = () =>
        rowsOf<{ message: string }>(
          chain.hub.storage,
          "SELECT message FROM alarms WHERE key = 'catalog.incomplete'",
        )[0]?.message ?? '';
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
      expect(await chain.hub.command('branch', 'remove', name)).toMatchObject({ code: 0 });
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
      const keys = "SELECT public_key FROM hub_branches WHERE name = 'Norte' OR branch = 'B2'";
      expect(rowsOf(chain.hub.storage, keys, 'state.db')).toEqual([{ public_key: null }]);
    },
    limitMs(180_000),
  );
});
