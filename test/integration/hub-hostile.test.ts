/** Tests src/link/server-config.ts. */

import { execFileSync } from 'node:child_process';
import { mkdirSync, readdirSync, readFileSync, statSync } from 'node:fs';
import path from 'node:path';
import { setTimeout } from 'node:timers/promises';
import { jetstreamManager } from '@nats-io/jetstream';
import { connect, type NatsConnection, nkeyAuthenticator } from '@nats-io/transport-node';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { type BranchPlace, ChainPlace, rowsOf } from '../support/chain-place.ts';
import { helloOf } from '../support/hello.ts';
import { hasNatsServer } from '../support/nats-server.ts';
import { limitMs } from '../support/shared-config.ts';
import { type DaemonProcess, runCommand, until, type Workplace } from '../support/workplace.ts';

const BRANCHES = `[[branches]]
subsidiary_id = "sub-1"
external_id = "B1"
[[branches]]
subsidiary_id = "sub-2"
external_id = "B2"
`;
const LIAR_SECONDS = 4;
const HONEST_MS_MAX = limitMs(5_000);
const GROWN_MIB_MAX = 150;
/** The hub's maximum of waiting changes of one branch. */
const WAITING_MAX = 20_000;

describe.skipIf(!hasNatsServer)('a branch that wishes the others ill', () => {
  let chain: ChainPlace;
  let hub: Workplace;
  let daemon: DaemonProcess;
  let honest: BranchPlace;
  /** The branch whose key the liar uses. */
  let liarsPlace: BranchPlace;
  let liar: NatsConnection;
  let refusals: string[] = [];

  /** Sends a question with the liar's own key, and returns the answer. */
  const ask = async (subject: string, body: string, timeout = 5_000) =>
    (await liar.request(subject, body, { timeout })).string();

  /** Returns how long an order for B1 takes to reach B1's mirror, in milliseconds. */
  async function honestMs(): Promise<number> {
    const beganMs = performance.now();
    const { internalOrderId } = hub.sandbox.control.createOrder({ subsidiaryId: 'sub-1' });
    const sql = `SELECT 1 FROM orders WHERE order_id = '${internalOrderId}'`;
    await until('the order is at B1', () => rowsOf(honest.storage, sql).length === 1, 30_000);
    return performance.now() - beganMs;
  }

  const hubMib = () => {
    const status = readFileSync(`/proc/${daemon.child.pid}/status`, 'utf8');
    return Number(/VmRSS:\s+(\d+)/.exec(status)?.[1]) / 1_024;
  };

  /** Connects with a branch's or the hub's key, as soon as the server knows it. */
  async function connectAs(name: string, seed: string): Promise<NatsConnection> {
    const authenticator = nkeyAuthenticator(new TextEncoder().encode(seed));
    const servers = `nats://127.0.0.1:${chain.port}`;
    let made: NatsConnection | undefined;
    await until(
      'the server knows the key',
      async () => {
        made = await connect({ servers, authenticator, inboxPrefix: `_INBOX.${name}` }).catch(
          () => undefined,
        );
        return made !== undefined;
      },
      60_000,
    );
    return made as NatsConnection;
  }

  async function connectAsHub(): Promise<NatsConnection> {
    const sql = 'SELECT keys FROM hub';
    const [{ keys } = { keys: '{}' }] = rowsOf<{ keys: string }>(hub.storage, sql, 'state.db');
    return connectAs('hub', (JSON.parse(keys) as { hub: string }).hub);
  }

  beforeAll(async () => {
    chain = await ChainPlace.open(13, BRANCHES);
    ({ hub } = chain);
    daemon = await chain.startHub();
    honest = await chain.join('B1');
    liarsPlace = await chain.join('B2');
    await chain.start(honest);
    const [{ seed } = { seed: '' }] = rowsOf<{ seed: string }>(
      liarsPlace.storage,
      'SELECT seed FROM link_key',
      'state.db',
    );
    liar = await connectAs('B2', seed);
    void (async () => {
      for await (const { error, type } of liar.status() as AsyncIterable<{ type: string; error?: Error }>) {
        if (type === 'error' && error) refusals.push(error.message);
      }
    })();
    await honestMs();
  }, limitMs(180_000));

  afterAll(async () => {
    await liar?.close();
    await chain.close();
  });

  it.each([
    ['takes messages of another', '$JS.API.CONSUMER.MSG.NEXT.DOWN.B1', '1'],
    ['reads how another stands', '$JS.API.CONSUMER.INFO.DOWN.B1', ''],
    ['makes a consumer', '$JS.API.CONSUMER.CREATE.DOWN.mine', '{"stream_name":"DOWN","config":{}}'],
    ['makes a durable consumer', '$JS.API.CONSUMER.DURABLE.CREATE.DOWN.B1', '{}'],
    ['ends the consumer of another', '$JS.API.CONSUMER.DELETE.DOWN.B1', ''],
    ['gets a message by its sequence', '$JS.API.STREAM.MSG.GET.DOWN', '{"seq":1}'],
    ['gets a message directly', '$JS.API.DIRECT.GET.DOWN', '{"seq":1}'],
    ['gets the last one of another directly', '$JS.API.DIRECT.GET.DOWN.d.B1', ''],
    ['purges', '$JS.API.STREAM.PURGE.DOWN', '{}'],
    ['deletes a message', '$JS.API.STREAM.MSG.DELETE.DOWN', '{"seq":1}'],
    ['deletes the stream', '$JS.API.STREAM.DELETE.DOWN', ''],
    ['changes the stream', '$JS.API.STREAM.UPDATE.DOWN', '{"name":"DOWN","subjects":["d.*"],"max_age":1000}'],
    ['makes a stream', '$JS.API.STREAM.CREATE.MINE', '{"name":"MINE","subjects":["up.>"]}'],
    ['lists streams', '$JS.API.STREAM.NAMES', ''],
    ['acknowledges for another', '$JS.ACK.DOWN.B1.1.1.1.1.1', '+ACK'],
    ['writes into the feed of another', 'd.B1', '{}'],
    ['writes into its own feed', 'd.B2', '{}'],
    ['asks in the name of another', 'up.B1.hello', '{}'],
    ['hands up in the name of another', 'up.B1.changes', '{}'],
    ['hands a file to the hub', 'up.B2.copy', '{"do":"put"}'],
    ['asks another branch', 'ctl.B1.status', '{}'],
    ['answers another', '_INBOX.B1.x', '{}'],
    ['answers the hub', '_INBOX.@hub.x', '{}'],
    ['asks the server', '$SYS.REQ.SERVER.PING', ''],
    ['has the server reload', '$SYS.REQ.SERVER.X.RELOAD', ''],
  ])('%s: refused', async (_what, subject, body) => {
    await expect(liar.request(subject, body, { timeout: 2_000 })).rejects.toThrow(/permissions violation/i);
  });

  it.each([
    'd.B1',
    'd.*',
    '>',
    '*.>',
    '_INBOX.>',
    '_INBOX.B1.>',
    '_INBOX.@hub.>',
    'up.>',
    'up.B1.>',
    'ctl.>',
    'ctl.B1.>',
    '$SYS.>',
    '$JS.>',
  ])('hears nothing at %s', async (subject) => {
    const heard = (async () => {
      for await (const _ of liar.subscribe(subject, { timeout: 2_000 })) return;
    })();
    await expect(heard).rejects.toThrow(/permissions violation/i);
  });

  it('has nothing of the other left behind: the stream and its consumers are as they were', async () => {
    const own = await connectAsHub();
    try {
      const { streams, consumers } = await jetstreamManager(own);
      const names: string[] = [];
      for await (const { name } of consumers.list('DOWN')) names.push(name);
      expect(names.sort()).toEqual(['B1', 'B2']);
      const { config, state } = await streams.info('DOWN');
      expect(config.max_age).toBe(7 * 86_400 * 1_000_000_000);
      expect(state.messages).toBeGreaterThan(0);
    } finally {
      await own.close();
    }
  });

  it(
    'has no answer, and nothing of its own, put where it may not write',
    async () => {
      const own = await connectAsHub();
      try {
        const { streams } = await jetstreamManager(own);
        const { state: before } = await streams.info('DOWN');
        for (const reply of ['d.B1', '$JS.API.STREAM.PURGE.DOWN', '$JS.API.STREAM.DELETE.DOWN']) {
          liar.publish('up.B2.hello', hello(), { reply });
        }
        await liar.flush();
        await ask('up.B2.hello', hello());
        const { state: after } = await streams.info('DOWN');
        expect(after.first_seq).toBe(before.first_seq);
        // Every message for B1 since then was written by the hub.
        for (let seq = before.last_seq + 1; seq <= after.last_seq; seq++) {
          const message = await streams.getMessage('DOWN', { seq });
          if (message?.subject === 'd.B1') expect(message.header.get('Nats-Msg-Id')).toContain(':B1:');
        }
        const { internalOrderId } = hub.sandbox.control.createOrder({ subsidiaryId: 'sub-2' });
        const published = "SELECT 1 FROM _feed WHERE branch = 'B2' AND published = 0";
        const isFed = `SELECT 1 FROM _feed WHERE order_id = '${internalOrderId}'`;
        await until('it is on the server', () => {
          return rowsOf(hub.storage, isFed).length === 1 && rowsOf(hub.storage, published).length === 0;
        });
        for (let times = 0; times < 20; times++) {
          liar.publish('$JS.API.CONSUMER.MSG.NEXT.DOWN.B2', '{"batch":10,"expires":1000000000}', {
            reply: 'd.B1',
          });
        }
        await liar.flush();
        expect(await honestMs()).toBeLessThan(HONEST_MS_MAX);
        const foreign = "SELECT order_id FROM orders WHERE store_external_id <> 'B1'";
        expect(rowsOf(honest.storage, foreign)).toEqual([]);
        expect(rowsOf(honest.storage, 'SELECT * FROM quarantine')).toEqual([]);
      } finally {
        await own.close();
      }
    },
    limitMs(60_000),
  );

  it(
    'names every subject of others as the reply to all that it may publish: the stream and the others are as they were',
    async () => {
      const own = await connectAsHub();
      // Subscribes in the hub's account, to see which messages of the lying branch arrive there.
      const answered: string[] = [];
      own.subscribe('ctl.B1.>', { callback: (_error, { subject }) => void answered.push(subject) });
      try {
        const { streams, consumers } = await jetstreamManager(own);
        const feed = () => streams.info('DOWN', { subjects_filter: '>' });
        await until('B1 has taken all', async () => {
          const { num_pending, num_ack_pending } = await consumers.info('DOWN', 'B1');
          return num_pending + num_ack_pending === 0;
        });
        const before = await feed();
        const asked = ['$JS.API.CONSUMER.INFO.DOWN.B2', '$JS.API.CONSUMER.MSG.NEXT.DOWN.B2'];
        const publish = [
          ...asked,
          ...asked.map((subject) => subject.replace('$JS.', 'hub.')),
          '$JS.ACK.DOWN.B2.1.1.1.1.1',
          ...['hello', 'changes', 'join', 'answer.x'].map((what) => `up.B2.${what}`),
        ];
        const replies = [
          ...['STREAM.DELETE.DOWN', 'STREAM.PURGE.DOWN', 'STREAM.UPDATE.DOWN', 'STREAM.CREATE.MINE'],
          ...['STREAM.MSG.DELETE.DOWN', 'CONSUMER.DELETE.DOWN.B1', 'CONSUMER.DELETE.DOWN.B2'],
          ...[
            'CONSUMER.MSG.NEXT.DOWN.B1',
            'CONSUMER.CREATE.DOWN.mine',
            'STREAM.SNAPSHOT.DOWN',
            'ACCOUNT.PURGE.TILLSYNC',
          ],
        ]
          .flatMap((api) => [`$JS.API.${api}`, `hub.API.${api}`])
          .concat(
            '$JS.ACK.DOWN.B1.1.1.99.1.0',
            'd.B1',
            'd.B2',
            'up.B1.hello',
            'up.B1.changes',
            'up.B1.copy',
            'up.B2.changes',
          )
          .concat('ctl.B1.status', '_INBOX.B1.x', '_INBOX.@hub.x', '_R_.x', '$SYS.REQ.SERVER.PING', '>');
        // The server may write an answer, a message of the feed, or nothing to the reply subject.
        for (const body of ['', '{}', '{"batch":10,"expires":300000000}', hello()]) {
          for (const subject of publish) for (const reply of replies) liar.publish(subject, body, { reply });
          await liar.flush();
        }
        await setTimeout(1_500);
        const after = await feed();
        expect(after.created).toBe(before.created);
        expect(after.config).toEqual(before.config);
        expect(after.state.first_seq).toBe(before.state.first_seq);
        expect(after.state.num_deleted ?? 0).toBe(before.state.num_deleted ?? 0);
        expect(Object.keys(after.state.subjects ?? {}).sort()).toEqual(['d.B1', 'd.B2']);
        for (let seq = before.state.last_seq + 1; seq <= after.state.last_seq; seq++) {
          const message = await streams.getMessage('DOWN', { seq });
          expect(message?.header.get('Nats-Msg-Id')).toMatch(message?.subject === 'd.B1' ? /:B1:/ : /:B2:/);
        }
        const names: string[] = [];
        for await (const { name } of consumers.list('DOWN')) names.push(name);
        expect(names.sort()).toEqual(['B1', 'B2']);
        expect(answered).toEqual([]);
        expect(await honestMs()).toBeLessThan(HONEST_MS_MAX);
        expect(rowsOf(honest.storage, "SELECT order_id FROM orders WHERE store_external_id <> 'B1'")).toEqual(
          [],
        );
      } finally {
        await own.close();
      }
    },
    limitMs(60_000),
  );

  const hello = (more: object = {}) => JSON.stringify(helloOf({ instance: 'liar', line: 'lie', ...more }));
  const changes = (items: object[], more: object = {}) =>
    JSON.stringify({ instance: 'liar', line: 'lie', items, ...more });
  const stock = (u: number, value: unknown) => ({ u, kind: 'stock', changeId: u, reference: null, value });
  const liarsRows = () =>
    rowsOf<{ body: string; reference: string | null }>(
      hub.storage,
      "SELECT body, reference FROM _outbox WHERE source = 'branch'",
    );

  it('names another in what it says, and is taken for itself', async () => {
    await ask('up.B2.hello', hello({ branch: 'B1' }));
    const before = rowsOf<{ report: string }>(
      hub.storage,
      "SELECT report FROM hub_branches WHERE branch = 'B1' AND report LIKE '%liar%'",
      'state.db',
    );
    expect(before).toEqual([]);
    const forged = changes(
      [
        stock(1, { externalId: 'E-1002', qty: 1, subsidiaryId: 'sub-1', branch: 'B1' }),
        stock(2, { externalId: 'E-1002', qty: 1, subsidiaryExternalId: 'B1' }),
      ],
      { branch: 'B1' },
    );
    expect(JSON.parse(await ask('up.B2.changes', forged))).toMatchObject({ upTo: 2 });
    expect(liarsRows()).toEqual([]);
  });

  it('hands up absurd quantities: none reaches the queue', async () => {
    const absurd = [
      '1e308',
      '-1e308',
      '1e999',
      '-9007199254740993',
      '"NaN"',
      'null',
      '{}',
      '[1]',
      '"9"'.repeat(1),
      '9007199254740993',
    ];
    const items = absurd.map((qty, i) =>
      JSON.stringify(stock(3 + i, { externalId: 'E-1002' })).replace('"E-1002"', `"E-1002","qty":${qty}`),
    );
    const body = `{"instance":"liar","line":"lie","items":[${items.join(',')}]}`;
    expect(JSON.parse(await ask('up.B2.changes', body))).toMatchObject({ upTo: 12 });
    const taken = rowsOf<{ qty: number }>(
      hub.storage,
      "SELECT json_extract(body, '$.qty') AS qty FROM _outbox WHERE source = 'branch' AND state <> 'rejected'",
    );
    expect(taken.filter(({ qty }) => !(qty >= 0 && qty <= 1_000_000))).toEqual([]);
  });

  it.each([
    ['no JSON', '{"instance":'],
    ['no text', '\u0000\uffff'],
    ['another shape', '[[[[]]]]'],
    ['deep nesting', '['.repeat(100_000)],
    ['an epoch of nobody, and a mark beyond all', hello({ epoch: 'x'.repeat(20_000), mark: 1e15 })],
    ['a prototype', '{"__proto__":{"instance":"x"},"constructor":1}'],
    ['one below the largest question', JSON.stringify({ filling: 'x'.repeat(1_900_000) })],
    ['more than a question may have', 'x'.repeat(3_000_000)],
    ['as much as the server lets through', 'x'.repeat(4_000_000 - 100)],
  ])(
    'says %s: it gets a refusal, and the others are heard',
    async (_what, body) => {
      const answer = JSON.parse(await ask('up.B2.hello', body, 10_000)) as { refused?: { code: string } };
      expect(answer.refused?.code).toMatch(/^(unreadable|busy)$/);
      expect(await honestMs()).toBeLessThan(HONEST_MS_MAX);
    },
    60_000,
  );

  it(
    'sends more than the server lets through: the server ends it, and it alone',
    async () => {
      await expect(ask('up.B2.hello', 'x'.repeat(5_000_000))).rejects.toThrow(/payload|closed|timeout/i);
      expect(await honestMs()).toBeLessThan(HONEST_MS_MAX);
    },
    limitMs(60_000),
  );

  it(
    `asks thousands of times a second for ${LIAR_SECONDS} s: an honest branch waits no longer, and memory stays bounded`,
    async () => {
      const calmMs = Math.max(await honestMs(), await honestMs());
      const beforeMib = hubMib();
      const feedBefore = rowsOf<{ n: number }>(hub.storage, 'SELECT count(*) AS n FROM _feed')[0]?.n ?? 0;
      const endMs = performance.now() + LIAR_SECONDS * 1_000;
      let sent = 0;
      let u = 12;
      const questions = [
        () => hello(),
        () => changes(Array.from({ length: 500 }, () => stock(++u, { externalId: 'E-1002', qty: u % 50 }))),
        () => changes([]),
        () => '{',
      ];
      const lying = (async () => {
        while (performance.now() < endMs) {
          for (let i = 0; i < 100; i++) {
            liar.publish(
              i % 2 ? 'up.B2.hello' : 'up.B2.changes',
              (questions[i === 0 ? 1 : i % 4 === 1 ? 0 : 3] as () => string)(),
              {
                reply: '_INBOX.B2.nobody',
              },
            );
            sent += 1;
          }
          await liar.flush().catch(() => {});
          await setTimeout(1);
        }
      })();
      const waits: number[] = [];
      while (performance.now() < endMs - 500) waits.push(await honestMs());
      await lying;
      const afterMib = hubMib();
      const feedAfter = rowsOf<{ n: number }>(hub.storage, 'SELECT count(*) AS n FROM _feed')[0]?.n ?? 0;
      console.log(
        `liar: ${sent} questions in ${LIAR_SECONDS} s; an order at the honest branch ${Math.round(Math.max(...waits))} ms at worst of ${waits.length}, ${Math.round(calmMs)} ms in calm; hub ${Math.round(beforeMib)} MiB, then ${Math.round(afterMib)}; ${feedAfter - feedBefore} entries of the feed`,
      );
      expect(sent).toBeGreaterThan(LIAR_SECONDS * 1_000);
      expect(Math.max(...waits)).toBeLessThan(HONEST_MS_MAX);
      expect(afterMib - beforeMib).toBeLessThan(GROWN_MIB_MAX);
      const waiting = "SELECT count(*) AS n FROM _outbox WHERE source = 'branch' AND state = 'pending'";
      expect(rowsOf<{ n: number }>(hub.storage, waiting)[0]?.n).toBeLessThanOrEqual(WAITING_MAX);
      expect(feedAfter - feedBefore).toBeLessThan(5_000 + 330 * (LIAR_SECONDS + 5) + 1_000);
      const told = "SELECT message FROM alarms WHERE key = 'hub.misuse'";
      await until(
        'a person is told who it is',
        () => rowsOf<{ message: string }>(hub.storage, told).length === 1,
        30_000,
      );
      expect(rowsOf<{ message: string }>(hub.storage, told)[0]?.message).toMatch(/^Branch B2 asks far more/);
      expect(rowsOf<{ message: string }>(hub.storage, told)[0]?.message).not.toContain('B1');
      // The hub logs misuse at most once a minute.
      expect(daemon.log().split('asks more than it may').length - 1).toBeLessThan(4);
      await until('the liar itself is heard again', async () => {
        const answer = await ask('up.B2.hello', hello()).catch(() => '{"refused":{}}');
        return !('refused' in (JSON.parse(answer) as object));
      });
    },
    limitMs(120_000),
  );

  it(
    'finds no other branch in its own bundle and log',
    async () => {
      const own = await chain.start(liarsPlace);
      const { internalOrderId } = hub.sandbox.control.createOrder({ subsidiaryId: 'sub-2' });
      const orders = () =>
        rowsOf(liarsPlace.storage, `SELECT 1 FROM orders WHERE order_id = '${internalOrderId}'`);
      await until('its order is there', () => orders().length === 1, 30_000);
      await until('it has caught up', () => chain.hasCaughtUp('B2', liarsPlace), 30_000);
      const file = path.join(chain.directory, 'bundle.tar.gz');
      const made = await runCommand(liarsPlace.env, ['bundle', file]);
      expect(made.code, made.stderr).toBe(0);
      const unpacked = path.join(chain.directory, 'bundle');
      mkdirSync(unpacked);
      execFileSync('tar', ['-xzf', file, '-C', unpacked]);
      const names = readdirSync(unpacked, { recursive: true, encoding: 'utf8' });
      const files = names.filter((name) => statSync(path.join(unpacked, name)).isFile());
      expect(files.length).toBeGreaterThan(5);
      const told = new Map(files.map((name) => [name, readFileSync(path.join(unpacked, name), 'latin1')]));
      told.set('the log', own.log());
      told.set('what was printed', made.stdout + made.stderr);
      // The bundle and the log name the branch itself.
      expect([...told.values()].join('')).toMatch(/\bB2\b/);
      const others = hub.sandbox.control.orders().filter(({ store }) => store.externalId !== 'B2');
      expect(others.length).toBeGreaterThan(0);
      const secret = others.flatMap(({ internalOrderId: id, user }) => [id, user.email, user.phoneNumber]);
      for (const [name, text] of told) {
        expect(
          secret.filter((word) => text.includes(word)),
          name,
        ).toEqual([]);
        expect(text, name).not.toMatch(/\bB1\b|\bsub-1\b/);
      }
    },
    limitMs(60_000),
  );

  it('was told at each attempt that it may not', () => {
    refusals = refusals.filter((why) => !/permissions violation/i.test(why));
    expect(refusals.filter((why) => !/payload/i.test(why))).toEqual([]);
  });
});
