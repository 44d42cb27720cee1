import { mkdirSync } from 'node:fs';
import path from 'node:path';
import { ordersStaleAfterMs } from '../../../src/app/read-only-services.ts';
import { openServices, type Services } from '../../../src/app/services.ts';
import { readConfig } from '../../../src/config/config.ts';
import type { Config } from '../../../src/config/config-type.ts';
import { configError } from '../../../src/config/source.ts';
import { silentLog } from '../../../src/core/log.ts';
import { systemClock } from '../../../src/core/system-clock.ts';
import { feedBranches } from '../../../src/daemon/feed-branches.ts';
import { BranchFollower } from '../../../src/link/branch.ts';
import { Hub } from '../../../src/link/hub.ts';
import { noteStream } from '../../../src/link/hub-feed.ts';
import { compileSpellings } from '../../../src/orders/merging/field-aliases.ts';
import { InProcessServer } from '../../link/in-process.ts';
import { seededRandom } from '../../support/fake-clock.ts';
import { sameRowsCommit } from '../bare-commits.ts';
import { readSample, sampleOrder } from '../sample-order.ts';
import { type CpuMeasure, ownCpu } from './measure.ts';

/** Number of orders per round, and number of orders that arrive together. */
const ORDERS = 100;
const TOGETHER = 50;
const BRANCH = 'B1';

/**
 * Measures the CPU time of an order from the hub's merge through the hub's feed to the branch's mirror, in one process
 * without nats-server.
 */
export const BRANCH_ORDER: CpuMeasure = {
  name: 'order from hub to branch',
  beside: 'a commit of the same rows for each, once',
  rounds: 40,
  async open(directory) {
    const server = new InProcessServer();
    const { hub, services } = await openHub(path.join(directory, 'hub'), server);
    const branch = await openBranch(path.join(directory, 'branch'), server);
    const commit = await sameRowsCommit(directory);
    const link = server.branch(BRANCH);
    let number = 0;
    let committed = 0;
    const arrive = (count: number) => {
      const entries = Array.from({ length: count }, () => {
        number += 1;
        const raw = sampleOrder(`65a1${String(number).padStart(20, '0')}`, number);
        const reading = readSample(JSON.parse(raw));
        if ('unreadable' in reading) throw new Error(reading.unreadable);
        const observation = { source: 'webhook', observedAtMs: systemClock.nowMs(), raw, reading } as const;
        return { kind: 'order', observation } as const;
      });
      return services.mirror.save(entries);
    };
    const follow = async () => {
      const over = new AbortController();
      await link.follow(async (messages) => {
        const isTaken = await branch.follower.take(messages);
        if (messages.length >= server.pending(BRANCH)) over.abort();
        return isTaken;
      }, over.signal);
    };
    await hub.catchUp();
    while (await hub.publish());
    if (server.pending(BRANCH) > 0) await follow();
    return {
      ours: () =>
        ownCpu(ORDERS, async () => {
          for (let done = 0; done < ORDERS; done += TOGETHER) {
            await arrive(TOGETHER);
            while (await hub.publish());
            await follow();
          }
          const there = branch.services.mirror.read((db) =>
            db.prepare<[], number>('SELECT count(*) FROM orders').pluck().get(),
          );
          if (there !== number) throw new Error(`${there} of ${number} orders are at the branch.`);
          // Lets the server delete the messages that the branch has received.
          server.expire(BRANCH, 0);
        }),
      bare: () =>
        ownCpu(ORDERS, () => {
          for (let done = 0; done < ORDERS; done++) commit.run(`bare-${++committed}`);
        }),
      async close() {
        commit.close();
        await services.close();
        await branch.services.close();
      },
    };
  },
};

async function openStore(directory: string, text: string): Promise<{ config: Config; services: Services }> {
  mkdirSync(directory);
  const storage = `[storage]\ndirectory = ${JSON.stringify(directory)}\n`;
  const read = readConfig({ file: 'bench.toml', env: {}, text: `${storage}${text}` });
  if ('faults' in read) throw configError(read.faults);
  const services = await openServices({
    config: read.config,
    secrets: { webhookSecrets: [] },
    clock: systemClock,
    random: seededRandom(3),
    log: silentLog,
    transport: { send: () => Promise.reject(new Error('nobody is called')), close: async () => {} },
  });
  return { config: read.config, services };
}

async function openHub(
  directory: string,
  server: InProcessServer,
): Promise<{ hub: Hub; services: Services }> {
  const { config, services } = await openStore(
    directory,
    `[platform]
base_url = "http://platform.test"
[hub]
nats = "nats://127.0.0.1:4222"
[[branches]]
subsidiary_id = "sub-1"
external_id = "${BRANCH}"
`,
  );
  const { mirror, stores, state } = services;
  const link = server.hub();
  const branches = feedBranches(config, state.hub);
  const hub = new Hub({
    link,
    branches: () => branches,
    mirror,
    stores,
    rows: state.hub,
    guards: config.guard,
    holdBack: false,
    onQueued: () => {},
    clock: systemClock,
    log: silentLog,
    ordersStaleAfterMs: () => ordersStaleAfterMs(config, mirror),

    areOrdersStale: () => false,
  });
  await hub.begin();
  const key = `U${BRANCH.padEnd(55, 'A')}`;
  state.hub.invite(BRANCH, key, systemClock.nowMs() + 60_000);
  state.hub.join(BRANCH, key, systemClock.nowMs());
  await link.answer((branch, question, body) => hub.answer(branch, question, body));
  const place = (await link.prepare([])) ?? '';
  await mirror.write((db) => noteStream(db, place, state.hub.branches(), systemClock.nowMs()));
  return { hub, services };
}

async function openBranch(
  directory: string,
  server: InProcessServer,
): Promise<{ follower: BranchFollower; services: Services }> {
  const { services } = await openStore(
    directory,
    `[link]\nhub = "nats://127.0.0.1:4222"\nbranch = "${BRANCH}"\n`,
  );
  const { mirror, stores, platform } = services;
  const follower = new BranchFollower({
    link: server.branch(BRANCH),
    mirror,
    stores,
    spellings: compileSpellings({}),
    version: '0',
    verdict: () => ({ level: 'green', findings: [] }) as const,
    outboxKeptMs: 0,
    onOrders: () => {},
    onHubClock: (nowMs: number) => platform.clock.observe(nowMs),
    clock: systemClock,
    log: silentLog,
  });
  await follower.begin();
  await follower.hello();
  return { follower, services };
}
