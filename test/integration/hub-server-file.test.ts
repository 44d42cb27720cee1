import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { openState } from '../../src/app/state.ts';
import { systemClock } from '../../src/core/system-clock.ts';
import { hubKeys } from '../../src/link/server-file.ts';
import { type BranchPlace, ChainPlace, rowsOf, TWO_BRANCHES } from '../support/chain-place.ts';
import { hasNatsServer, startNatsServer } from '../support/nats-server.ts';
import { limitMs } from '../support/shared-config.ts';
import { until } from '../support/workplace.ts';

describe.skipIf(!hasNatsServer)('a hub whose server was started with another file', () => {
  let chain: ChainPlace;
  let b1: BranchPlace;

  const arrives = async () => {
    const id = chain.hub.sandbox.control.createOrder({ subsidiaryId: 'sub-1' }).internalOrderId;
    const there = `SELECT 1 FROM orders WHERE order_id = '${id}'`;
    await until(`order ${id} is at B1`, () => rowsOf(b1.storage, there).length === 1, 30_000);
  };
  const alarm = () =>
    rowsOf<{ message: string }>(chain.hub.storage, "SELECT message FROM alarms WHERE key = 'hub.server'")[0]
      ?.message;

  beforeEach(async () => {
    chain = await ChainPlace.open(17, TWO_BRANCHES);
    await chain.startHub();
    b1 = await chain.join('B1');
    await until('the file has its account', () =>
      readFileSync(chain.serverFile, 'utf8').includes('"branch-B1"'),
    );
    await chain.start(b1);
    await arrives();
  }, limitMs(120_000));
  afterEach(() => chain.close());

  it(
    'is told once a branch comes, with the command that helps, and serves the others meanwhile',
    async () => {
      const elsewhere = path.join(chain.directory, 'elsewhere.conf');
      writeFileSync(elsewhere, readFileSync(chain.serverFile, 'utf8'));
      await chain.server.kill();
      chain.server = await startNatsServer(elsewhere, chain.port);
      await arrives();
      expect(alarm()).toBeUndefined();
      await chain.invite('B2');
      await until('it is told', () => alarm() !== undefined, 30_000);
      expect(alarm()).toMatch(
        /another configuration.* hub server-config; sudo systemctl restart tillsync-nats/,
      );
      await arrives();
      await chain.server.kill();
      await chain.startServer();
      await until('it is over', () => alarm() === undefined, 60_000);
      await arrives();
    },
    limitMs(120_000),
  );
});

describe('a hub that lacks the file of its authority, which the link to nats-server needs', () => {
  let chain: ChainPlace;

  beforeEach(async () => {
    chain = await ChainPlace.prepare(17, TWO_BRANCHES);
  }, limitMs(60_000));
  afterEach(() => chain.close());

  it(
    'gets its orders meanwhile, and names the file',
    async () => {
      const { storage } = chain.hub;
      mkdirSync(storage);
      const state = openState({ path: path.join(storage, 'state.db'), clock: systemClock, role: 'hub' });
      await hubKeys(state.hub);
      const file = (name: string) => path.join(storage, 'nats', name);
      const tls = { certFile: file('hub.pem'), keyFile: file('hub.key'), caFile: file('ca.pem') };
      state.hub.noteServerConfig({ file: file('server.conf'), storeDirectory: file('jetstream'), tls });
      state.close();
      await chain.startHub();
      await chain.arrives(chain.hub, chain.orderFor('sub-1'));
      const told = "SELECT state, message FROM freshness WHERE subject = 'hub.link' AND state <> 'unknown'";
      await until('the reason is told', () => rowsOf(storage, told).length === 1, 30_000);
      expect(rowsOf(storage, told)).toEqual([
        { state: 'failing', message: expect.stringContaining(tls.caFile) },
      ]);
    },
    limitMs(120_000),
  );
});
