import { rmSync } from 'node:fs';
import path from 'node:path';
import { setTimeout } from 'node:timers/promises';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { type BranchPlace, ChainPlace, rowsOf } from '../support/chain-place.ts';
import { hasNatsServer } from '../support/nats-server.ts';
import { limitMs } from '../support/shared-config.ts';
import { until } from '../support/workplace.ts';

const ORDER_EVERY_MS = 100;
const BRANCHES = '[[branches]]\nsubsidiary_id = "sub-1"\nexternal_id = "B1"\n';

describe.skipIf(!hasNatsServer)('what happens, under load, when', () => {
  let chain: ChainPlace;
  let branch: BranchPlace;
  let isOver = false;
  let load: Promise<void>;
  let made: string[] = [];

  const rows = <T>(sql: string) => rowsOf<T>(branch.storage, sql);

  /** Waits until all orders so far are at the branch, and checks that none is doubled or in quarantine. */
  async function expectWhole(): Promise<void> {
    const wanted = [...made];
    const there = () =>
      new Set(rows<{ id: string }>('SELECT order_id AS id FROM orders').map(({ id }) => id));
    await until('all orders are at the branch', () => wanted.every((id) => there().has(id)), 90_000);
    const doubled = 'SELECT order_id, status FROM order_events GROUP BY 1, 2 HAVING count(*) > 1';
    expect(rows(doubled)).toEqual([]);
    expect(rows('SELECT * FROM quarantine')).toEqual([]);
  }

  beforeAll(async () => {
    chain = await ChainPlace.open(14, BRANCHES);
    await chain.startHub();
    branch = await chain.join('B1');
    await chain.start(branch);
    load = (async () => {
      while (!isOver) {
        const { internalOrderId } = chain.hub.sandbox.control.createOrder({ subsidiaryId: 'sub-1' });
        made = [...made, internalOrderId];
        await setTimeout(ORDER_EVERY_MS);
      }
    })();
    await until('the first order is at the branch', () => rows('SELECT 1 FROM orders').length > 0, 60_000);
  }, limitMs(180_000));

  afterAll(async () => {
    isOver = true;
    await load;
    await chain.close();
  });

  it(
    'nats-server is killed',
    async () => {
      await chain.server.kill();
      await setTimeout(1_000);
      await chain.startServer();
      await expectWhole();
    },
    limitMs(120_000),
  );

  it(
    "the server's files are lost",
    async () => {
      await chain.server.kill();
      rmSync(path.join(chain.directory, 'nats/jetstream'), { recursive: true });
      await chain.startServer();
      await expectWhole();
    },
    limitMs(120_000),
  );

  it(
    'the server is restarted in order',
    async () => {
      chain.server.signal('SIGTERM');
      await chain.server.ended;
      await chain.startServer();
      await expectWhole();
    },
    limitMs(120_000),
  );

  it(
    'the server reads its configuration again',
    async () => {
      for (let times = 0; times < 5; times++) {
        chain.server.signal('SIGHUP');
        await setTimeout(200);
      }
      await expectWhole();
      expect(chain.server.log()).toMatch(/Reloaded server configuration/);
    },
    limitMs(120_000),
  );

  it(
    'the clients are thrown out',
    async () => {
      // After this signal, nats-server takes two minutes to disconnect all clients. The test kills it sooner.
      chain.server.signal('SIGUSR2');
      await until('it throws them out', () => /lame duck/i.test(chain.server.log()), 30_000);
      await setTimeout(1_000);
      await chain.server.kill();
      await chain.startServer();
      await expectWhole();
    },
    limitMs(120_000),
  );
});
