import { mkdirSync } from 'node:fs';
import path from 'node:path';
import { expect, it, onTestFinished } from 'vitest';
import { ChainPlace, rowsOf } from '../support/chain-place.ts';
import { hasNatsServer } from '../support/nats-server.ts';
import { until } from '../support/workplace.ts';
import { mountSmallDisk } from './support/small-disk.ts';

it.skipIf(!hasNatsServer)(
  'the disk of the nats-server is full: a hub says so after a minute, and goes on by itself',
  async () => {
    const chain = await ChainPlace.prepare(12, '[[branches]]\nsubsidiary_id = "sub-1"\nexternal_id = "B1"\n');
    const storage = path.dirname(chain.serverFile);
    mkdirSync(storage);
    const mounted = { storage, close: () => chain.close() };
    const disk = mountSmallDisk(mounted, 24);
    onTestFinished(() => mounted.close());
    expect(await chain.hub.command('hub', 'server-config', chain.serverFile)).toMatchObject({ code: 0 });
    await chain.startServer();
    await chain.startHub();
    const link = () =>
      rowsOf<{ state: string }>(
        chain.hub.storage,
        "SELECT state FROM freshness WHERE subject = 'hub.link'",
      )[0]?.state;
    await until('the link is up', () => link() === 'ok');
    disk.fill();
    chain.hub.sandbox.control.createOrder({ subsidiaryId: 'sub-1' });
    await until('it is told', () => link() === 'failing', 120_000);
    disk.free();
    await until('the link is up again', () => link() === 'ok', 60_000);
    const unpublished = 'SELECT n FROM _feed WHERE published = 0';
    await until('all is there', () => rowsOf(chain.hub.storage, unpublished).length === 0);
  },
  240_000,
);
