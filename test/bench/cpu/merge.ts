import { readNotification } from '../../../src/orders/callback-route.ts';
import { sameRowsCommit } from '../bare-commits.ts';
import { openBenchKeeper } from '../bench-keeper.ts';
import { readSample, sampleOrder } from '../sample-order.ts';
import { type CpuMeasure, ownCpu } from './measure.ts';

const TOGETHER = 50;
const COMMITS = 4;

/** The part of a callback without HTTP: it shows the cost of one more index, trigger or statement. */
export const MERGE: CpuMeasure = {
  name: 'order merged into the mirror',
  beside: 'the same rows into tables without an index or a trigger, in the same commits',
  rounds: 80,
  async open(directory) {
    const { keeper, close } = openBenchKeeper(directory);
    const commit = await sameRowsCommit(directory, { isTablesAlone: true });
    let number = 0;
    const ids = () =>
      Array.from({ length: TOGETHER }, () => {
        number += 1;
        return `65a1${String(number).padStart(20, '0')}`;
      });
    return {
      ours: () =>
        ownCpu(COMMITS * TOGETHER, async () => {
          for (let i = 0; i < COMMITS; i++) {
            const bodies = ids().map((id) => Buffer.from(sampleOrder(id, 1234)));
            const how = { read: readSample, receivedAtMs: Date.now() };
            await keeper.keep(bodies.map((body) => readNotification(body, how).entry));
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
