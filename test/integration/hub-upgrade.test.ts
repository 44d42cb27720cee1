import { once } from 'node:events';
import { readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { jetstream } from '@nats-io/jetstream';
import { connect, type NatsConnection, nkeyAuthenticator } from '@nats-io/transport-node';
import Database from 'better-sqlite3';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { type BranchPlace, ChainPlace, rowsOf, TWO_BRANCHES } from '../support/chain-place.ts';
import { hasNatsServer, startNatsServer } from '../support/nats-server.ts';
import { limitMs } from '../support/shared-config.ts';
import { type DaemonProcess, until } from '../support/workplace.ts';

/** Returns the configuration of nats-server as tillsync 0.1 wrote it, with hub and branches in one account. */
function inOneAccount(text: string): string {
  const head = text.slice(0, text.indexOf('  TILLSYNC {'));
  const [, hubKey] = /TILLSYNC \{\s+jetstream: enabled\s+users: \[\s+\{ nkey: (\w+)/.exec(text) ?? [];
  const users = [...text.matchAll(/"branch-(\w+)" \{\s+users: \[\s+\{ nkey: (\w+)/g)].map(
    ([, branch, key]) => {
      const publish = `"$JS.API.CONSUMER.INFO.DOWN.${branch}", "$JS.API.CONSUMER.MSG.NEXT.DOWN.${branch}", "$JS.ACK.DOWN.${branch}.>", "up.${branch}.>"`;
      const subscribe = `"_INBOX.${branch}.>", "ctl.${branch}.>"`;
      return `{ nkey: ${key}, permissions: { publish: { allow: [${publish}] }, subscribe: { allow: [${subscribe}] } } }`;
    },
  );
  return `${head}  TILLSYNC {\n    jetstream: enabled\n    users: [ { nkey: ${hubKey} }\n${users.join('\n')} ]\n  }\n}\nsystem_account: SYS\n`;
}

/** Returns the `hello` question as a branch with tillsync 0.1 sends it. */
const oldHello = (more: object) =>
  JSON.stringify({
    instance: 'old',
    isStart: true,
    wantsSnapshot: false,
    version: '0.1.0',
    epoch: null,
    mark: 0,
    line: 'old-line',
    isOwnLine: true,
    waiting: 0,
    oldestWaitingAt: null,
    left: [],
    seq: 0,
    rejected: 0,
    quarantined: 0,
    verdict: { level: 'green', finding: null },
    ...more,
  });

describe.skipIf(!hasNatsServer)('a chain of an older tillsync', () => {
  let chain: ChainPlace;
  let daemon: DaemonProcess;
  let b1: BranchPlace;
  let old: NatsConnection;

  const orderFor = (subsidiaryId: string) =>
    chain.hub.sandbox.control.createOrder({ subsidiaryId }).internalOrderId;
  const arrives = (id: string) =>
    until(
      `order ${id} is at B1`,
      () => rowsOf(b1.storage, `SELECT 1 FROM orders WHERE order_id = '${id}'`).length === 1,
      30_000,
    );
  const alarm = () =>
    rowsOf<{ message: string }>(chain.hub.storage, "SELECT message FROM alarms WHERE key = 'hub.server'")[0]
      ?.message;
  const hasAccounts = () => readFileSync(chain.serverFile, 'utf8').includes('"branch-B1"');

  /** Fetches like the client of tillsync 0.1: requests by their plain names, one acknowledgement per batch. */
  async function fetchAsOld(): Promise<string[]> {
    const consumer = await jetstream(old, { checkAPI: false } as object).consumers.get('DOWN', 'B2');
    const messages = await consumer.fetch({ max_messages: 50, expires: 2_000, idle_heartbeat: 500 });
    const kinds: string[] = [];
    for await (const message of messages) {
      kinds.push(message.headers?.get('k') ?? '');
      message.ack();
    }
    return kinds;
  }

  beforeEach(async () => {
    chain = await ChainPlace.open(17, TWO_BRANCHES);
    daemon = await chain.startHub();
    b1 = await chain.join('B1');
    const b2 = await chain.join('B2');
    const keys = rowsOf<{ key: string }>(
      chain.hub.storage,
      'SELECT public_key AS key FROM hub_branches',
      'state.db',
    );
    await until('the server knows both', () => {
      const text = readFileSync(chain.serverFile, 'utf8');
      return keys.length === 2 && keys.every(({ key }) => text.includes(key));
    });
    const ended = once(daemon.child, 'exit');
    daemon.child.kill('SIGTERM');
    await ended;
    await chain.server.kill();
    const [{ seed } = { seed: '' }] = rowsOf<{ seed: string }>(
      b2.storage,
      'SELECT seed FROM link_key',
      'state.db',
    );
    // Writes the server's file as the older version did. When the hub is upgraded, the server runs with this file and
    // the branches are connected.
    writeFileSync(chain.serverFile, inOneAccount(readFileSync(chain.serverFile, 'utf8')));
    await chain.startServer();
    await chain.start(b1);
    old = await connect({
      servers: `nats://127.0.0.1:${chain.port}`,
      authenticator: nkeyAuthenticator(new TextEncoder().encode(seed)),
      inboxPrefix: '_INBOX.B2',
      ignoreAuthErrorAbort: true,
      maxReconnectAttempts: -1,
      reconnectTimeWait: 500,
    });
  }, limitMs(120_000));

  afterEach(async () => {
    await old?.close();
    await chain.close();
  });

  it(
    'is upgraded at the hub first: its server gets an account for each branch without a restart, and all goes on',
    async () => {
      const { pid } = chain.server;
      await chain.startHub();
      await until('the server has another configuration', hasAccounts, 30_000);
      await arrives(orderFor('sub-1'));
      const db = new Database(path.join(b1.storage, 'inbox/inbox.db'));
      db.prepare(
        "INSERT INTO stock_changes (external_id, qty, reference) VALUES ('E-1001', 7, 'upgrade')",
      ).run();
      db.close();
      const isDone = "SELECT 1 FROM outbox WHERE reference = 'upgrade' AND state IN ('done', 'rejected')";
      await until('the count has its final word', () => rowsOf(b1.storage, isDone).length === 1, 30_000);
      // B2 is the branch that is not upgraded yet.
      let answer = '';
      await until(
        'the hub hears it',
        async () => {
          answer =
            (
              await old.request('up.B2.hello', oldHello({}), { timeout: 2_000 }).catch(() => undefined)
            )?.string() ?? '';
          return answer.includes('"upTo"');
        },
        30_000,
      );
      const kinds: string[] = [];
      const orderId = orderFor('sub-2');
      await until(
        'it has its snapshot',
        async () => {
          kinds.push(...(await fetchAsOld()));
          return kinds.includes('snapshot-end') && kinds.includes('order');
        },
        30_000,
      );
      expect(orderId).toBeTruthy();
      const up = {
        u: 1,
        kind: 'stock',
        changeId: 1,
        reference: 'old',
        value: { externalId: 'E-1002', qty: 4 },
      };
      const changes = JSON.stringify({ instance: 'old', line: 'old-line', items: [up] });
      const taken = await old.request('up.B2.changes', changes, { timeout: 5_000 });
      expect(JSON.parse(taken.string())).toMatchObject({ upTo: 1 });
      expect(chain.server.pid).toBe(pid);
      // A client that has not sent its key when the server reloads its file is disconnected, and connects again.
      expect(chain.server.log()).not.toMatch(/\[ERR\](?!.* Nkey "")/);
      expect(alarm()).toBeUndefined();
    },
    limitMs(120_000),
  );

  it(
    'whose server was started with another file is told, with the command that helps',
    async () => {
      const elsewhere = path.join(chain.directory, 'old.conf');
      writeFileSync(elsewhere, readFileSync(chain.serverFile, 'utf8'));
      await chain.server.kill();
      chain.server = await startNatsServer(elsewhere, chain.port);
      await chain.startHub();
      await until('it is told', () => alarm() !== undefined, 30_000);
      expect(alarm()).toMatch(
        /another configuration.* hub server-config; sudo systemctl restart tillsync-nats/,
      );
      // Orders still reach the branch while the alarm is raised.
      await arrives(orderFor('sub-1'));
      await chain.server.kill();
      await chain.startServer();
      await until('it is over', () => alarm() === undefined, 60_000);
      await arrives(orderFor('sub-1'));
    },
    limitMs(120_000),
  );
});
