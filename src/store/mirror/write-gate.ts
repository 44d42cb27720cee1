/**
 * Who may take the mirror's write lock, between the main thread and the import's worker thread, in shared
 * memory. The main thread never queues behind more than the transaction under way: it says that it wants the
 * lock, the worker ends its transaction early and stays away until nobody wants it. So that callbacks without
 * end cannot starve the import, the worker gets a turn after a number of them.
 *
 * Both sides first say what they do and then look at the other, so that they cannot both go ahead.
 */

/** How many of the main thread want the lock or have it. */
const WANTED = 0;
/** 1 while the worker is in a transaction. */
const WORKING = 1;
const ABORTED = 2;
/** 1 while the worker waits for its turn. */
const WAITING = 3;
/** How often the main thread went first since then. */
const PASSED = 4;
const CELLS = 5;

const PASSED_MAX = 8;
/** Only for the case that a wake-up is missed. */
const LOOK_AGAIN_MS = 50;

export class WriteGate {
  /** Given to the worker thread; it builds its side from it. */
  readonly memory: SharedArrayBuffer;
  readonly #cells: Int32Array;

  constructor(memory = new SharedArrayBuffer(CELLS * Int32Array.BYTES_PER_ELEMENT)) {
    this.memory = memory;
    this.#cells = new Int32Array(memory);
  }

  /** Main thread: comes back when the worker is in no transaction and will start none until `leave`. */
  async enter(): Promise<void> {
    while (this.#is(WAITING) && Atomics.load(this.#cells, PASSED) >= PASSED_MAX) await this.#changed(WAITING);
    if (this.#is(WAITING)) Atomics.add(this.#cells, PASSED, 1);
    Atomics.add(this.#cells, WANTED, 1);
    while (this.#is(WORKING)) await this.#changed(WORKING);
  }

  leave(): void {
    if (Atomics.sub(this.#cells, WANTED, 1) === 1) Atomics.notify(this.#cells, WANTED);
  }

  /** Main thread, after the worker is gone, in whatever state it died. */
  reset(): void {
    Atomics.store(this.#cells, ABORTED, 0);
    this.#endWaiting();
    this.endWork();
  }

  abort(): void {
    Atomics.store(this.#cells, ABORTED, 1);
    Atomics.notify(this.#cells, ABORTED);
  }

  get aborted(): boolean {
    return this.#is(ABORTED);
  }

  /** Worker thread: blocks until nobody wants the lock, then has it until `endWork`. */
  beginWork(): void {
    Atomics.store(this.#cells, PASSED, 0);
    Atomics.store(this.#cells, WAITING, 1);
    for (;;) {
      const wanted = Atomics.load(this.#cells, WANTED);
      if (wanted > 0) {
        Atomics.wait(this.#cells, WANTED, wanted, LOOK_AGAIN_MS);
        continue;
      }
      Atomics.store(this.#cells, WORKING, 1);
      if (Atomics.load(this.#cells, WANTED) === 0) break;
      this.endWork();
    }
    this.#endWaiting();
  }

  endWork(): void {
    Atomics.store(this.#cells, WORKING, 0);
    Atomics.notify(this.#cells, WORKING);
  }

  /** Worker thread, within its transaction: whether it should end it now. */
  get wanted(): boolean {
    return Atomics.load(this.#cells, WANTED) > 0;
  }

  /** Worker thread: rests, for when another process has the lock. */
  pause(ms: number): void {
    Atomics.wait(this.#cells, ABORTED, 0, ms);
  }

  #endWaiting(): void {
    Atomics.store(this.#cells, WAITING, 0);
    Atomics.notify(this.#cells, WAITING);
  }

  #is(cell: number): boolean {
    return Atomics.load(this.#cells, cell) === 1;
  }

  async #changed(cell: number): Promise<void> {
    const wait = Atomics.waitAsync(this.#cells, cell, 1, LOOK_AGAIN_MS);
    if (wait.async) await wait.value;
  }
}
