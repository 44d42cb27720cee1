import { readFileSync, rmSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { jetstream } from '@nats-io/jetstream';
import { connect, nkeyAuthenticator } from '@nats-io/transport-node';
import Database from 'better-sqlite3';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { type BranchPlace, ChainPlace, rowsOf } from '../support/chain-place.ts';
import { hasNatsServer } from '../support/nats-server.ts';
import { limitMs } from '../support/shared-config.ts';
import { type DaemonProcess, runCommand, until, type Workplace } from '../support/workplace.ts';

const BRANCHES = `[[branches]]
subsidiary_id = "sub-1"
external_id = "B1"
[[branches]]
subsidiary_id = "sub-2"
external_id = "B2"
may_price = true
`;

describe.skipIf(!hasNatsServer)('a hub and its branches over nats-server', () => {
  let chain: ChainPlace;
  let hub: Workplace;
  let daemon: DaemonProcess;
  const places: Record<string, BranchPlace> = {};
  const daemons: Record<string, DaemonProcess> = {};

  const ordersOf = (storage: string) =>
    rowsOf<{ order_id: string; status: string; items: number }>(
      storage,
      `SELECT order_id, status, (SELECT count(*) FROM order_items i WHERE i.order_id = o.order_id) AS items
       FROM orders o ORDER BY order_id`,
    );
  const outboxOf = (storage: string, reference: string) =>
    rowsOf<{ state: string; message: string | null }>(
      storage,
      `SELECT state, message FROM outbox WHERE reference = '${reference}'`,
    )[0];
  const branch = (name: string) => places[name] as BranchPlace;
  /** Inserts rows into a branch's inbox, as its POS does. */
  const insert = (name: string, sql: string, ...values: unknown[]) => {
    const db = new Database(path.join(branch(name).storage, 'inbox/inbox.db'));
    try {
      db.prepare(sql).run(...values);
    } finally {
      db.close();
    }
  };
  const product = (subsidiaryId: string) => {
    const { sku, ext_id: externalId } = rowsOf<{ sku: string; ext_id: string }>(
      hub.storage,
      `SELECT sku, ext_id FROM integrations JOIN stocks USING (sku, subsidiary_id)
       WHERE subsidiary_id = '${subsidiaryId}' AND ext_id IS NOT NULL
       ORDER BY sku LIMIT 1`,
    )[0] as { sku: string; ext_id: string };
    return { sku: Number(sku), externalId };
  };

  /** Connects to the server with the branch's own key. */
  const connectAs = (name: string) => {
    const sql = 'SELECT seed FROM link_key';
    const seed = rowsOf<{ seed: string }>(branch(name).storage, sql, 'state.db')[0]?.seed as string;
    return connect({
      servers: `nats://127.0.0.1:${chain.port}`,
      authenticator: nkeyAuthenticator(new TextEncoder().encode(seed)),
      inboxPrefix: `_INBOX.${name}`,
    });
  };

  beforeAll(async () => {
    chain = await ChainPlace.open(11, BRANCHES);
    ({ hub } = chain);
    daemon = await chain.startHub();
    for (const name of ['B1', 'B2']) {
      const place = await chain.join(name);
      places[name] = place;
      daemons[name] = await chain.start(place);
    }
    const isSwept = () => rowsOf<{ n: number }>(hub.storage, 'SELECT count(*) AS n FROM _sweeps')[0]?.n === 2;
    await until('the catalogue is there', isSwept, 60_000);
    // The tests begin after the first snapshot, because a snapshot, unlike callbacks, brings only each order's present
    // state.
    for (const [name, place] of Object.entries(places)) {
      await until(`${name} has caught up`, () => chain.hasCaughtUp(name, place), 60_000);
    }
  }, limitMs(180_000));

  afterAll(() => chain.close());

  it('brings an order to the branch that it is for, and to no other', async () => {
    const one = hub.sandbox.control.createOrder({ subsidiaryId: 'sub-1' });
    const two = hub.sandbox.control.createOrder({ subsidiaryId: 'sub-2' });
    await until('both orders are there', () =>
      [branch('B1'), branch('B2')].every(({ storage }) => ordersOf(storage).length > 0),
    );
    expect(ordersOf(branch('B1').storage).map(({ order_id }) => order_id)).toEqual([one.internalOrderId]);
    expect(ordersOf(branch('B2').storage).map(({ order_id }) => order_id)).toEqual([two.internalOrderId]);
    hub.sandbox.control.advanceOrder(one.internalOrderId);
    const stepsOf = (storage: string) =>
      rowsOf(
        storage,
        `SELECT status, previous_status, source, observed_at FROM order_events
         WHERE order_id = '${one.internalOrderId}' ORDER BY seq`,
      );
    await until('the step is there', () => stepsOf(branch('B1').storage).length === 2);
    expect(stepsOf(branch('B1').storage)).toEqual(stepsOf(hub.storage));
    const whole = `SELECT payload, amount, customer_email, store_external_id FROM orders WHERE order_id = '${one.internalOrderId}'`;
    expect(rowsOf(branch('B1').storage, whole)).toEqual(rowsOf(hub.storage, whole));
  });

  it(
    'gives a branch again what it did not take, in its order, and needs no snapshot for it',
    async () => {
      const place = branch('B1');
      await daemons.B1?.end('SIGTERM');
      const connection = await connectAs('B1');
      const { internalOrderId: first } = hub.sandbox.control.createOrder({ subsidiaryId: 'sub-1' });
      const consumer = await jetstream(connection, { checkAPI: false } as object).consumers.get('DOWN', 'B1');
      // The connection breaks after the message was sent and before it is acknowledged.
      expect(await consumer.next({ expires: 10_000 })).not.toBeNull();
      await connection.close();
      const snapshots = () =>
        rowsOf(
          hub.storage,
          "SELECT count(*) AS n FROM _feed WHERE branch = 'B1' AND kind = 'snapshot-begin'",
        );
      const before = snapshots();
      const { internalOrderId: second } = hub.sandbox.control.createOrder({ subsidiaryId: 'sub-1' });
      daemons.B1 = await chain.start(place);
      const ids = () => ordersOf(place.storage).map(({ order_id }) => order_id);
      await until('both are there', () => ids().includes(first) && ids().includes(second), 60_000);
      const orders = `SELECT order_id AS id FROM order_events WHERE order_id IN ('${first}', '${second}') ORDER BY seq`;
      expect(rowsOf(place.storage, orders)).toEqual([{ id: first }, { id: second }]);
      expect(snapshots()).toEqual(before);
    },
    limitMs(90_000),
  );

  it('brings a count from the inbox of a branch to the platform, and its final word back', async () => {
    const { sku, externalId } = product('sub-1');
    insert(
      'B1',
      'INSERT INTO stock_changes (external_id, qty, reference) VALUES (?, 37, ?)',
      externalId,
      'count-1',
    );
    await until(
      'the count has its final word',
      () => outboxOf(branch('B1').storage, 'count-1')?.state === 'done',
    );
    expect(hub.sandbox.control.stockOf(sku, 'sub-1')).toBe(37);
    insert(
      'B1',
      'INSERT INTO stock_changes (external_id, qty, reference) VALUES (?, 5, ?)',
      'nobody-knows',
      'count-2',
    );
    await until(
      'the refusal is there',
      () => outboxOf(branch('B1').storage, 'count-2')?.state === 'rejected',
    );
    expect(outboxOf(branch('B1').storage, 'count-2')?.message).toMatch(/nobody-knows/);
  });

  it(
    'brings a branch the catalogue of its own, and what changes of it',
    async () => {
      const seen = (storage: string, subsidiaryId: string) => [
        rowsOf(
          storage,
          `SELECT p.product_id, name, category, p.show, sku, price, barcode, s.show FROM products p JOIN skus s USING (product_id)
         WHERE sku IN (SELECT sku FROM stocks WHERE subsidiary_id = '${subsidiaryId}') ORDER BY sku`,
        ),
        rowsOf(
          storage,
          `SELECT sku, qty, show FROM stocks WHERE subsidiary_id = '${subsidiaryId}' ORDER BY sku`,
        ),
        rowsOf(
          storage,
          `SELECT sku, ext_id, product_id_pos_a, product_code_pos_b FROM integrations
         WHERE subsidiary_id = '${subsidiaryId}' ORDER BY sku`,
        ),
      ];
      for (const [name, id] of [
        ['B1', 'sub-1'],
        ['B2', 'sub-2'],
      ] as const) {
        const { storage } = branch(name);
        await until(
          `${name} has its catalogue`,
          () => JSON.stringify(seen(storage, id)) === JSON.stringify(seen(hub.storage, id)),
          30_000,
        );
        expect(seen(storage, id)[0]).not.toHaveLength(0);
        const others = `SELECT subsidiary_id FROM stocks WHERE subsidiary_id <> '${id}' UNION ALL
        SELECT subsidiary_id FROM integrations WHERE subsidiary_id <> '${id}'`;
        expect(rowsOf(storage, others)).toEqual([]);
      }
      // The count of the previous test is now the branch's stock.
      const { sku } = product('sub-1');
      expect(rowsOf(branch('B1').storage, `SELECT qty FROM stocks WHERE sku = '${sku}'`)).toEqual([
        { qty: 37 },
      ]);
      insert(
        'B1',
        'INSERT INTO stock_changes (sku, qty, reference) VALUES (?, 38, ?)',
        String(sku),
        'by-sku',
      );
      await until(
        'the count by sku is done',
        () => outboxOf(branch('B1').storage, 'by-sku')?.state === 'done',
      );
      expect(hub.sandbox.control.stockOf(sku, 'sub-1')).toBe(38);
      const listed = await runCommand(branch('B1').env, ['product', 'list', '--unmapped', '--json']);
      expect(JSON.parse(listed.stdout)).toHaveProperty('products');
      const shown = await runCommand(branch('B1').env, ['product', 'show', '--sku', String(sku), '--json']);
      expect(shown.stdout).toContain('sub-1');
      expect(shown.stdout).not.toContain('sub-2');
    },
    limitMs(60_000),
  );

  it('takes prices only from a branch that may set them', async () => {
    const price = 'INSERT INTO product_changes (sku, price, reference) VALUES (?, ?, ?)';
    insert('B1', price, product('sub-1').sku, 1990, 'price-1');
    await until('B1 is refused', () => outboxOf(branch('B1').storage, 'price-1')?.state === 'rejected');
    expect(outboxOf(branch('B1').storage, 'price-1')?.message).toMatch(/may_price/);
    const own = product('sub-2');
    const [{ price: before } = { price: 1000 }] = rowsOf<{ price: number }>(
      hub.storage,
      `SELECT price FROM skus WHERE sku = '${own.sku}'`,
    );
    insert('B2', price, own.sku, Number(before) + 10, 'price-2');
    await until('B2 is heard', () => outboxOf(branch('B2').storage, 'price-2')?.state === 'done');
  });

  it(
    'takes a whole inventory of a branch, and a count by sku that names the branch, for the same stock',
    async () => {
      const { storage, env } = branch('B1');
      const isWhole = () => rowsOf(storage, 'SELECT 1 FROM _sweeps').length === 1;
      await until('the branch knows that it has the catalogue', isWhole, 60_000);
      const { sku, externalId } = product('sub-1');
      const file = path.join(chain.directory, 'whole.csv');
      writeFileSync(file, `external_id;qty\n${externalId};17\n`);
      const words = ['push', 'stock', file, '--full', '--branch', 'B1', '--wait'];
      const pushed = await runCommand(env, words);
      expect(pushed, pushed.stderr).toMatchObject({ code: 0 });
      expect(hub.sandbox.control.stockOf(sku, 'sub-1')).toBe(17);
      const bySku =
        "INSERT INTO stock_changes (sku, subsidiary_external_id, qty, reference) VALUES (?, 'B1', 18, ?)";
      insert('B1', bySku, sku, 'by-sku-b1');
      await until('it is settled', () => outboxOf(storage, 'by-sku-b1')?.state === 'done');
      expect(hub.sandbox.control.stockOf(sku, 'sub-1')).toBe(18);
      const targets = "SELECT DISTINCT target FROM _outbox WHERE reference = 'by-sku-b1' OR source = 'cli'";
      expect(rowsOf(storage, targets)).toEqual([{ target: `sku:${sku}@sub-1` }]);
      const safety = await runCommand(env, ['stock', 'safety', String(sku), '5']);
      expect(safety).toMatchObject({ code: 2, stdout: '' });
      expect(safety.stderr).toContain('Run the command at the hub.');
    },
    limitMs(120_000),
  );

  it(
    'takes an invitation once',
    async () => {
      const env = { ...branch('B2').env, TILLSYNC_CONFIG: path.join(chain.directory, 'again.toml') };
      const words = ['init', '--join', '-', '--directory', path.join(chain.directory, 'again')];
      const again = await runCommand(env, words, `${branch('B2').invitation}\n`);
      expect(again.code).toBe(1);
      expect(again.stderr).toMatch(/does not take this invitation of branch B2/);
    },
    limitMs(60_000),
  );

  it('hands acknowledgements up', async () => {
    const [{ order_id: orderId } = { order_id: '' }] = ordersOf(branch('B1').storage);
    insert('B1', 'INSERT INTO order_acks (order_id) VALUES (?)', orderId);
    const acks = "SELECT order_id FROM order_acks WHERE source = 'branch'";
    await until('the hub has it', () => rowsOf(hub.storage, acks).length === 1);
    expect(rowsOf(hub.storage, acks)).toEqual([{ order_id: orderId }]);
  });

  it('tells at the hub and at the branch how the link fares', async () => {
    const listed = await hub.command('branch', 'list', '--json');
    // The branches are sorted, because their order depends on their last reports.
    const { branches } = JSON.parse(listed.stdout) as { branches: { branch: string; status: string }[] };
    const all = branches.map(({ branch: name, status }) => `${name} ${status}`).sort();
    expect(all).toEqual(['B1 joined', 'B2 joined']);
    const status = JSON.parse((await runCommand(branch('B1').env, ['status', '--json'])).stdout);
    const flow = (subject: string) =>
      status.freshness.find((each: { subject: string }) => each.subject === subject);
    expect(flow('hub.link')).toMatchObject({ state: 'ok' });
    expect(flow('orders.poll')).toMatchObject({ state: 'ok' });
    expect(status.verdict.findings.map(({ code }: { code: string }) => code)).toEqual(['outbox.rejected']);
  });

  it('lets no branch read, answer or write what is of another', async () => {
    const connection = await connectAs('B2');
    const refused: string[] = [];
    const attempt = (what: string, act: () => Promise<unknown>) =>
      act().then(
        () => undefined,
        (error: Error) => refused.push(`${what}: ${error.message}`),
      );
    await attempt('consumer', () => jetstream(connection).consumers.get('DOWN', 'B1'));
    await attempt('question', () => connection.request('up.B1.hello', '{}', { timeout: 2_000 }));
    await attempt('stream', () => connection.request('$JS.API.STREAM.INFO.DOWN', '', { timeout: 2_000 }));
    await attempt('order', () => connection.request('d.B1', '{}', { timeout: 2_000 }));
    for (const subject of ['d.B1', '_INBOX.B1.>', 'up.*.changes', '>']) {
      await attempt(subject, async () => {
        const found = connection.subscribe(subject, { timeout: 2_000 });
        for await (const _ of found) break;
      });
    }
    await connection.close();
    expect(refused).toHaveLength(8);
    expect(refused.filter((why) => !/permissions violation/i.test(why))).toEqual([]);
  });

  it(
    'loses nothing when the server is killed and its files are deleted',
    async () => {
      await chain.server.kill();
      rmSync(path.join(chain.directory, 'nats/jetstream'), { recursive: true });
      const before = ordersOf(branch('B1').storage).length;
      for (let i = 0; i < 5; i++) hub.sandbox.control.createOrder({ subsidiaryId: 'sub-1' });
      const { sku, externalId } = product('sub-1');
      insert(
        'B1',
        'INSERT INTO stock_changes (external_id, qty, reference) VALUES (?, 41, ?)',
        externalId,
        'while-down',
      );
      await until('the hub has the orders', () => ordersOf(hub.storage).length >= before + 6);
      await chain.startServer();
      await until('the branch has them', () => ordersOf(branch('B1').storage).length === before + 5, 60_000);
      await until(
        'the count arrived',
        () => outboxOf(branch('B1').storage, 'while-down')?.state === 'done',
        60_000,
      );
      expect(hub.sandbox.control.stockOf(sku, 'sub-1')).toBe(41);
      const doubled = 'SELECT order_id, status, count(*) AS n FROM order_events GROUP BY 1, 2 HAVING n > 1';
      expect(rowsOf(branch('B1').storage, doubled)).toEqual([]);
    },
    limitMs(120_000),
  );

  it(
    'gives a branch that lost its mirror all of its orders, under new numbers',
    async () => {
      const { storage } = branch('B1');
      const before = ordersOf(storage);
      await daemons.B1?.end('SIGTERM');
      for (const end of ['', '-wal', '-shm']) rmSync(path.join(storage, `mirror.db${end}`), { force: true });
      await chain.start(branch('B1'));
      await until('they are there again', () => ordersOf(storage).length === before.length, 60_000);
      expect(ordersOf(storage)).toEqual(before);
      const [{ seq } = { seq: 0 }] = rowsOf<{ seq: number }>(
        storage,
        'SELECT min(seq) AS seq FROM order_events',
      );
      expect(seq).toBeGreaterThan(1_000_000);
    },
    limitMs(120_000),
  );

  it(
    'disconnects a branch whose key is revoked, and nobody else',
    async () => {
      const removed = await hub.command('branch', 'revoke', 'B2', '--json');
      expect(JSON.parse(removed.stdout)).toEqual({ branch: 'B2', revoked: true });
      await until(
        'the server does not know it any more',
        () => !readFileSync(chain.serverFile, 'utf8').includes('DOWN.B2'),
      );
      await until('its connection is refused', () => /authentication error/i.test(chain.server.log()));
      hub.sandbox.control.createOrder({ subsidiaryId: 'sub-2' });
      const one = hub.sandbox.control.createOrder({ subsidiaryId: 'sub-1' });
      await until('B1 goes on', () =>
        ordersOf(branch('B1').storage).some(({ order_id }) => order_id === one.internalOrderId),
      );
      expect(ordersOf(branch('B2').storage)).toHaveLength(1);
      expect(daemon.child.exitCode).toBeNull();
    },
    limitMs(60_000),
  );

  it(
    "does not make a machine in use another branch, with that one's line",
    async () => {
      const [one, two] = [branch('B1'), branch('B2')];
      const invitation = await chain.invite('B2');
      const state = () => [
        readFileSync(one.configFile, 'utf8'),
        ...rowsOf(one.storage, 'SELECT seed FROM link_key', 'state.db'),
      ];
      const before = state();
      const wrong = await chain.joinAs({ ...one, invitation });
      expect(wrong.code).toBe(2);
      expect(wrong.stderr).toMatch(/This machine is branch B1 of the hub at nats:/);
      expect(state()).toEqual(before);
      // The invitation is valid for its own branch, which may join again.
      expect(await chain.joinAs({ ...two, invitation })).toMatchObject({ code: 0 });
      const orders = ordersOf(one.storage);
      expect(await chain.joinAs({ ...one, invitation: await chain.invite('B1') })).toMatchObject({ code: 0 });
      expect(ordersOf(one.storage)).toEqual(orders);
    },
    limitMs(60_000),
  );
});
