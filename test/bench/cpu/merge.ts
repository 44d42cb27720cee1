import path from 'node:path';
import { readNotification } from '../../../src/orders/receiving/callback-route.ts';
import { sameRowsCommit } from '../bare-commits.ts';
import { openBenchSink } from '../bench-sink.ts';
import { openBenchStores } from '../bench-stores.ts';
import { externalIdOf } from '../catalog-samples.ts';
import { readSample, sampleOrder } from '../sample-order.ts';
import { type CpuMeasure, ownCpu } from './measure.ts';

const TOGETHER = 50;
const COMMITS = 4;

/** Returns a function that makes the ids of one commit's orders. */
function orderIds(): () => string[] {
  let number = 0;
  return () =>
    Array.from({ length: TOGETHER }, () => {
      number += 1;
      return `65a1${String(number).padStart(20, '0')}`;
    });
}

const entryOf = (text: string) =>
  readNotification(Buffer.from(text), { read: readSample, receivedAtMs: Date.now() }).entry;

/** Measures the work of a callback without HTTP. This shows what one more index, trigger or statement costs. */
export const MERGE: CpuMeasure = {
  name: 'order merged into the mirror',
  beside: 'the same rows into tables without an index or a trigger, in the same commits',
  rounds: 80,
  async open(directory) {
    const { sink, close } = openBenchSink(directory);
    const commit = await sameRowsCommit(directory, { isTablesAlone: true });
    const ids = orderIds();
    return {
      ours: () =>
        ownCpu(COMMITS * TOGETHER, async () => {
          for (let i = 0; i < COMMITS; i++) {
            await sink.save(ids().map((id) => entryOf(sampleOrder(id, 1234))));
          }
        }),
      bare: () =>
        ownCpu(COMMITS * TOGETHER, () => {
          for (let i = 0; i < COMMITS; i++) commit.runTogether(ids());
        }),
      async close() {
        commit.close();
        await close();
      },
    };
  },
};

/**
 * Measures the CPU time of entering new orders into the stock ledger, which happens after a callback is answered. The
 * time rises if SQLite plans a statement of the ledger again for each order.
 */
export const LEDGER: CpuMeasure = {
  name: 'order in the stock ledger',
  beside: 'the rows of the order into tables without an index or a trigger, in commits of fifty',
  rounds: 80,
  async open(directory) {
    const { mirror, stores } = await openBenchStores(path.join(directory, 'ours'), 100);
    const commit = await sameRowsCommit(directory, { isTablesAlone: true });
    const ids = orderIds();
    const catchUp = async () => {
      while (await stores.write(({ dispatcher }) => dispatcher.catchUp({ holdBack: true })));
    };
    await catchUp();
    return {
      async ours() {
        for (let i = 0; i < COMMITS; i++) {
          const texts = ids().map((id) => sampleOrder(id, 1234).replace('PROD-001', externalIdOf(1)));
          await mirror.save(texts.map(entryOf));
        }
        const us = await ownCpu(COMMITS * TOGETHER, catchUp);
        const steps = stores.read(({ db }) => db.prepare('SELECT count(*) FROM _stock_steps').pluck().get());
        if (steps === 0) throw new Error('The ledger has followed no order.');
        return us;
      },
      bare: () =>
        ownCpu(COMMITS * TOGETHER, () => {
          for (let i = 0; i < COMMITS; i++) commit.runTogether(ids());
        }),
      async close() {
        commit.close();
        await mirror.close();
      },
    };
  },
};
