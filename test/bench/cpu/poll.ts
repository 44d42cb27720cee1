import { hash } from 'node:crypto';
import path from 'node:path';
import { openMirror } from '../../../src/app/mirror.ts';
import { systemClock } from '../../../src/core/system-clock.ts';
import { benchAnswer } from '../mirror-samples.ts';
import { type CpuMeasure, ownCpu } from './measure.ts';

/**
 * Number of orders that a normal poll brings. A larger answer is read on its own thread, which doubles the
 * cost.
 */
const ORDERS = 500;
const POLLS = 2;
const OBSERVED_MS = Date.UTC(2026, 5, 1);

/** Measures the import of a poll's answer without a new order; the unit is one order of the answer. */
export const UNCHANGED_POLL: CpuMeasure = {
  name: 'unchanged poll',
  beside: 'parse the answer, write each order as JSON again and hash it',
  rounds: 60,
  async open(directory) {
    const mirror = openMirror({ path: path.join(directory, 'mirror.db'), clock: systemClock });
    const body = benchAnswer(ORDERS);
    // The bytes are copied, because the import takes over their memory.
    const poll = () =>
      mirror.importAnswer(body.slice(), {
        observedAtMs: OBSERVED_MS,
        asOfSeq: mirror.orders.newestSeq(),
        asOfHeldId: 0,
      });
    await poll();
    const text = Buffer.from(body).toString();
    return {
      ours: () =>
        ownCpu(POLLS * ORDERS, async () => {
          for (let i = 0; i < POLLS; i++) {
            const { confirmed } = await poll();
            if (confirmed !== ORDERS) throw new Error(`${confirmed} of ${ORDERS} orders were confirmed.`);
          }
        }),
      bare: () =>
        ownCpu(POLLS * ORDERS, () => {
          for (let i = 0; i < POLLS; i++) {
            const { data } = JSON.parse(text) as { data: object[] };
            for (const order of data) hash('sha256', JSON.stringify(order), 'hex');
          }
        }),
      close: () => mirror.close(),
    };
  },
};
