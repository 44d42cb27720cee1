/** Tests src/orders/reading/mirror-file.ts. */

import { setImmediate } from 'node:timers/promises';
import { Worker } from 'node:worker_threads';
import { expect, it } from 'vitest';
import { WriteGate } from '../../src/orders/reading/mirror-file.ts';

/**
 * Starts a worker that enters and leaves the gate until it is aborted. `counts`: [0] times that the worker left, [1]
 * checks that found the main thread inside too, [2] 1 while the worker is inside, [3] 1 while the main thread is.
 */
function startWorker(gate: WriteGate, counts: Int32Array<SharedArrayBuffer>): Promise<void> {
  const url = new URL('../../src/orders/reading/mirror-file.ts', import.meta.url);
  const program = `
    const { workerData } = require('node:worker_threads');
    import(workerData.url).then(({ WriteGate }) => {
      const gate = new WriteGate(workerData.memory);
      const counts = new Int32Array(workerData.counts);
      while (!gate.aborted) {
        gate.beginWork();
        Atomics.add(counts, 2, 1);
        for (let i = 0; i < 2000 && !gate.wanted; i++) if (Atomics.load(counts, 3) > 0) Atomics.add(counts, 1, 1);
        Atomics.sub(counts, 2, 1);
        Atomics.add(counts, 0, 1);
        gate.endWork();
      }
    });`;
  const worker = new Worker(program, {
    eval: true,
    workerData: { url: url.href, memory: gate.memory, counts: counts.buffer },
  });
  return new Promise((resolve, reject) => worker.on('exit', () => resolve()).on('error', reject));
}

// Tried again, because on a busy machine the worker does not wait at the gate all the time.
it('never lets both sides in, and starves neither', { retry: 2 }, async () => {
  const gate = new WriteGate();
  const counts = new Int32Array(new SharedArrayBuffer(16));
  const ended = startWorker(gate, counts);
  while (Atomics.load(counts, 0) < 3) await setImmediate();
  const before = Atomics.load(counts, 0);
  for (let i = 0; i < 1_500; i++) {
    await gate.enter();
    Atomics.add(counts, 3, 1);
    expect(Atomics.load(counts, 2)).toBe(0);
    Atomics.sub(counts, 3, 1);
    gate.leave();
  }
  const turns = Atomics.load(counts, 0) - before;
  gate.abort();
  await ended;
  expect(Atomics.load(counts, 1)).toBe(0);
  // Without the gate's limit `PASSED_MAX`, the worker would rarely enter, because the main thread enters all the time.
  expect(turns).toBeGreaterThan(90);
});

it('lets the main thread go on when the worker died in the middle of its work', async () => {
  const gate = new WriteGate();
  const counts = new Int32Array(new SharedArrayBuffer(16));
  const ended = startWorker(gate, counts);
  while (Atomics.load(counts, 0) < 1) await setImmediate();
  gate.abort();
  await ended;
  gate.beginWork();
  const entered = gate.enter();
  gate.reset();
  await entered;
  expect(gate.wanted).toBe(true);
  gate.leave();
  expect(gate.wanted).toBe(false);
});

it('lets a worker sleep while the main thread has the lock, rather than ask all the time', async () => {
  const gate = new WriteGate();
  const counts = new Int32Array(new SharedArrayBuffer(16));
  await gate.enter();
  const ended = startWorker(gate, counts);
  // `notify` returns how many threads it woke, so 1 shows that the worker slept. A woken worker checks the gate and
  // sleeps again.
  await expect.poll(() => Atomics.notify(new Int32Array(gate.memory), 0)).toBe(1);
  expect(Atomics.load(counts, 0)).toBe(0);
  gate.abort();
  gate.leave();
  await ended;
});
