import { existsSync, readdirSync, readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import Database from 'better-sqlite3';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { type BranchPlace, ChainPlace, rowsOf, TWO_BRANCHES } from '../support/chain-place.ts';
import { hasNatsServer } from '../support/nats-server.ts';
import { limitMs } from '../support/shared-config.ts';
import { type DaemonProcess, runCommand, until } from '../support/workplace.ts';

describe.skipIf(!hasNatsServer)('a hub whose machine is lost', () => {
  let chain: ChainPlace;
  let hubDaemon: DaemonProcess;
  const branches: BranchPlace[] = [];
  const daemons: DaemonProcess[] = [];

  const ordersOf = (storage: string) =>
    rowsOf<{ order_id: string }>(storage, 'SELECT order_id FROM orders ORDER BY order_id').map(
      ({ order_id }) => order_id,
    );
  const productOf = (subsidiaryId: string) =>
    rowsOf<{ id: string }>(
      chain.hub.storage,
      `SELECT ext_id AS id FROM integrations JOIN stocks USING (sku, subsidiary_id)
       WHERE subsidiary_id = '${subsidiaryId}' AND ext_id IS NOT NULL ORDER BY sku LIMIT 1`,
    )[0]?.id as string;
  /** Inserts rows into a branch's inbox, as its POS does. */
  const insert = ({ storage }: BranchPlace, sql: string, ...values: unknown[]) => {
    const db = new Database(path.join(storage, 'inbox/inbox.db'));
    try {
      db.prepare(sql).run(...values);
    } finally {
      db.close();
    }
  };
  const count = (place: BranchPlace, externalId: string, qty: number, reference: string) =>
    insert(
      place,
      'INSERT INTO stock_changes (external_id, qty, reference) VALUES (?, ?, ?)',
      ...[externalId, qty, reference],
    );
  const acknowledge = (place: BranchPlace, orderId: string) =>
    insert(place, 'INSERT INTO order_acks (order_id) VALUES (?)', orderId);
  const stateOf = ({ storage }: BranchPlace, reference: string) =>
    rowsOf<{ state: string }>(storage, `SELECT state FROM outbox WHERE reference = '${reference}'`)[0]?.state;

  /**
   * Kills the hub and its server, and deletes the hub's storage. With `withServer`, the server's files are deleted too.
   */
  async function lose({ withServer }: { withServer: boolean }): Promise<void> {
    await hubDaemon.end('SIGKILL');
    await chain.server.kill();
    for (const name of readdirSync(chain.hub.storage)) {
      rmSync(path.join(chain.hub.storage, name), { recursive: true });
    }
    if (withServer) rmSync(path.dirname(chain.serverFile), { recursive: true });
  }

  /**
   * Restores the hub from `file` on a machine that has the program and the configuration, and new tokens if the backup
   * has none.
   */
  async function restore(file: string): Promise<{ branches: string[]; tokens: string; advice: string[] }> {
    const { hub } = chain;
    const restored = await hub.command('restore', file, '--json');
    expect(restored.code, restored.stderr).toBe(0);
    const report = JSON.parse(restored.stdout) as { branches: string[]; tokens: string; advice: string[] };
    if (report.tokens !== 'taken') hub.env.TILLSYNC_REFRESH_TOKEN = hub.sandbox.issueTokens().refreshToken;
    const written = await hub.command('hub', 'server-config', chain.serverFile);
    expect(written.code, written.stderr).toBe(0);
    await chain.startServer();
    hubDaemon = await chain.startHub();
    return report;
  }

  beforeAll(async () => {
    chain = await ChainPlace.open(31, TWO_BRANCHES);
    hubDaemon = await chain.startHub();
    for (const name of ['B1', 'B2']) branches.push(await chain.join(name));
    for (const branch of branches) daemons.push(await chain.start(branch));
    const isSwept = () =>
      rowsOf<{ n: number }>(chain.hub.storage, 'SELECT count(*) AS n FROM _sweeps')[0]?.n === 2;
    await until('the catalogue is there', isSwept, 60_000);
  }, limitMs(180_000));

  afterAll(() => chain.close());

  it.each([
    { title: 'a backup without secrets, and the server is lost too', words: [], withServer: true },
    { title: 'a backup without secrets, and the old files of the server', words: [], withServer: false },
    { title: 'a backup with the tokens', words: ['--with-tokens'], withServer: true },
  ])(
    'comes back with its branches, none of which joins again: $title',
    async ({ words, withServer }) => {
      const { hub, directory } = chain;
      const [one, two] = branches as [BranchPlace, BranchPlace];
      const product = productOf('sub-1');
      const first = hub.sandbox.control.createOrder({ subsidiaryId: 'sub-1' }).internalOrderId;
      await until('the first order is there', () => ordersOf(one.storage).includes(first), 30_000);
      const file = path.join(directory, 'hub.tar.gz');
      const backedUp = await hub.command('backup', file, '--force', '--json', ...words);
      expect(backedUp.code, backedUp.stderr).toBe(0);
      expect(JSON.parse(backedUp.stdout)).toMatchObject({ branches: 2, hasTokens: words.length > 0 });
      const since = hub.sandbox.control.createOrder({ subsidiaryId: 'sub-2' }).internalOrderId;
      await until('an order since is there', () => ordersOf(two.storage).includes(since), 30_000);
      const epoch = () => rowsOf<{ epoch: string }>(one.storage, 'SELECT epoch FROM _link')[0]?.epoch;
      const before = epoch();
      await lose({ withServer });
      const reference = `while-lost-${words.length}-${withServer}`;
      count(one, product, 11, reference);
      const report = await restore(file);
      expect(report.branches).toEqual(['B1', 'B2']);
      expect(report.advice.join(' ')).toContain("Branches that don't have to join again: B1, B2.");
      await until('the branch heard of the new numbering', () => epoch() !== before, 90_000);
      const later = hub.sandbox.control.createOrder({ subsidiaryId: 'sub-1' }).internalOrderId;
      await until('a new order is there', () => ordersOf(one.storage).includes(later), 60_000);
      await until('the count has its final word', () => stateOf(one, reference) === 'done', 60_000);
      await until('the hub has the order since, too', () => ordersOf(hub.storage).includes(since), 60_000);
      const doubled = 'SELECT order_id, status, count(*) AS n FROM order_events GROUP BY 1, 2 HAVING n > 1';
      for (const branch of branches) expect(rowsOf(branch.storage, doubled)).toEqual([]);
      const all = (...storages: string[]) =>
        storages
          .flatMap((storage) =>
            rowsOf<{ order: string }>(storage, `SELECT order_id || ' ' || status AS "order" FROM orders`),
          )
          .map(({ order }) => order)
          .sort()
          .join('\n');
      await until(
        'the branches together have what the hub has',
        () => all(one.storage, two.storage) === all(hub.storage),
        60_000,
      );
    },
    300_000,
  );

  it(
    'comes back without a backup, from the platform and its branches, which join again',
    async () => {
      const { hub } = chain;
      const [one, two] = branches as [BranchPlace, BranchPlace];
      const booked = hub.sandbox.control.createOrder({ subsidiaryId: 'sub-1' }).internalOrderId;
      await until('the order is there', () => ordersOf(one.storage).includes(booked), 30_000);
      acknowledge(one, booked);
      const isBooked = ({ storage }: { storage: string }) =>
        rowsOf(storage, `SELECT 1 FROM order_acks WHERE order_id = '${booked}'`).length === 1;
      await until('the hub has the acknowledgement', () => isBooked(hub), 30_000);
      const stepsOf = ({ storage }: BranchPlace) =>
        rowsOf(storage, 'SELECT order_id, status FROM order_events ORDER BY seq');
      const before = branches.map(stepsOf);
      const product = productOf('sub-1');
      await lose({ withServer: true });
      count(one, product, 12, 'no-backup');
      hub.env.TILLSYNC_REFRESH_TOKEN = hub.sandbox.issueTokens().refreshToken;
      const written = await hub.command('hub', 'server-config', chain.serverFile);
      expect(written.code, written.stderr).toBe(0);
      await chain.startServer();
      hubDaemon = await chain.startHub();
      const since = hub.sandbox.control.createOrder({ subsidiaryId: 'sub-2' }).internalOrderId;
      for (const [i, name] of ['B1', 'B2'].entries()) {
        await daemons[i]?.end('SIGTERM');
        const joined = await chain.joinAs({
          ...branches[i],
          invitation: await chain.invite(name),
        } as BranchPlace);
        expect(joined.code, joined.stderr).toBe(0);
        daemons[i] = await chain.start(branches[i] as BranchPlace);
      }
      await until('an order since is there', () => ordersOf(two.storage).includes(since), 60_000);
      await until('the hub has the acknowledgement again', () => isBooked(hub), 60_000);
      await until('the count has its final word', () => stateOf(one, 'no-backup') === 'done', 60_000);
      await until('both have caught up', () =>
        ['B1', 'B2'].every((name, i) => chain.hasCaughtUp(name, branches[i] as BranchPlace)),
      );
      // No earlier event is sent to a POS again.
      expect(branches.map((each, i) => stepsOf(each).slice(0, before[i]?.length))).toEqual(before);
      const doubled = 'SELECT order_id, status, count(*) AS n FROM order_events GROUP BY 1, 2 HAVING n > 1';
      for (const branch of branches) expect(rowsOf(branch.storage, doubled)).toEqual([]);
      expect(ordersOf(hub.storage)).toEqual([...ordersOf(one.storage), ...ordersOf(two.storage)].sort());
    },
    limitMs(300_000),
  );

  it(
    'whose state.db is damaged has its branches again as doctor says, and so has a branch its place',
    async () => {
      const { hub, directory } = chain;
      const [one] = branches as [BranchPlace];
      const damage = (storage: string) => {
        for (const end of ['-wal', '-shm']) rmSync(path.join(storage, `state.db${end}`), { force: true });
        writeFileSync(path.join(storage, 'state.db'), 'no database at all '.repeat(1_000));
      };
      const moveAway = (storage: string) => {
        for (const end of ['', '-wal', '-shm']) {
          const state = path.join(storage, `state.db${end}`);
          if (existsSync(state)) renameSync(state, path.join(directory, `away${end}`));
        }
      };
      const remedy = async (env: Record<string, string>) => {
        const { stdout } = await runCommand(env, [
          'doctor',
          '--offline',
          '--only',
          'storage.state',
          '--json',
        ]);
        const { checks } = JSON.parse(stdout) as { checks: { level: string; remedy: string }[] };
        expect(checks).toMatchObject([{ level: 'fail' }]);
        return checks[0]?.remedy;
      };
      const file = path.join(directory, 'last.tar.gz');
      expect((await hub.command('backup', file)).code).toBe(0);

      await hubDaemon.end('SIGTERM');
      damage(hub.storage);
      const refused = await hub.command('restore', file);
      expect(refused).toMatchObject({
        code: 1,
        stderr: expect.stringMatching(/To see what to do, run: .* doctor/),
      });
      expect(await remedy(hub.env)).toMatch(
        /move state\.db .* away, .* restore FILE\. .* hub server-config\), restart the nats-server/,
      );
      moveAway(hub.storage);
      await chain.server.kill();
      expect((await restore(file)).branches).toEqual(['B1', 'B2']);
      const since = hub.sandbox.control.createOrder({ subsidiaryId: 'sub-1' }).internalOrderId;
      await until('an order since is there', () => ordersOf(one.storage).includes(since), 90_000);

      await daemons[0]?.end('SIGTERM');
      damage(one.storage);
      expect(await remedy(one.env)).toMatch(
        /move state\.db .* away, .* branch invite B1\), .* init --join -\)/,
      );
      moveAway(one.storage);
      const joined = await chain.joinAs({ ...one, invitation: await chain.invite('B1') });
      expect(joined.code, joined.stderr).toBe(0);
      daemons[0] = await chain.start(one);
      const later = hub.sandbox.control.createOrder({ subsidiaryId: 'sub-1' }).internalOrderId;
      await until('a later order is there', () => ordersOf(one.storage).includes(later), 90_000);
      const doubled = 'SELECT order_id, status, count(*) AS n FROM order_events GROUP BY 1, 2 HAVING n > 1';
      for (const branch of branches) expect(rowsOf(branch.storage, doubled)).toEqual([]);
    },
    limitMs(300_000),
  );

  it(
    'has nothing secret in a backup, and its own keys in one with the tokens',
    async () => {
      const { hub, directory } = chain;
      const file = path.join(directory, 'look.tar.gz');
      const { execFileSync } = await import('node:child_process');
      const textOf = async (...words: string[]) => {
        expect((await hub.command('backup', file, '--force', ...words)).code).toBe(0);
        return execFileSync('tar', ['-xzOf', file, '--exclude=mirror.db'], {
          encoding: 'utf8',
          maxBuffer: 2 ** 28,
        });
      };
      const plain = await textOf();
      expect(plain).toContain('"publicKey"');
      expect(plain).not.toMatch(/SU[A-Z2-7]{56}/);
      expect(await textOf('--with-tokens')).toMatch(/"hub": "SU[A-Z2-7]{56}"/);
      const { audit } = JSON.parse((await hub.command('audit', '--json')).stdout) as {
        audit: { action: string; detail: string }[];
      };
      expect(audit.filter(({ action }) => action === 'backup').map(({ detail }) => detail)).toContain(
        'with tokens',
      );
      expect(readFileSync(chain.serverFile, 'utf8')).not.toMatch(/SU[A-Z2-7]{56}/);
    },
    limitMs(60_000),
  );
});
