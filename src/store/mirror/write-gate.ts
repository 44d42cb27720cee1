/**
 * Who may take the mirror's write lock, between the main thread and the import's worker thread, in shared
 * memory. The main thread never queues behind more than the transaction under way: it says that it wants the
 * lock, the worker ends its transaction early and stays away until nobody wants it any more.
 *
 * Both sides first say what they do and then look at the other, so that they cannot both go ahead.
 */
const WANTED = 0;
const WORKING = 1;
const ABORTED = 2;

export class WriteGate {
  /** Given to the worker thread; it builds its side from it. */
  readonly memory: SharedArrayBuffer;
  readonly #cells: Int32Array;

  constructor(memory = new SharedArrayBuffer(3 * Int32Array.BYTES_PER_ELEMENT)) {
    this.memory = memory;
    this.#cells = new Int32Array(memory);
  }

  /** Main thread: comes back when the worker is in no transaction and will start none until `leave`. */
  async enter(): Promise<void> {
    Atomics.add(this.#cells, WANTED, 1);
    while (Atomics.load(this.#cells, WORKING) === 1) {
      const wait = Atomics.waitAsync(this.#cells, WORKING, 1);
      if (wait.async) await wait.value;
    }
  }

  leave(): void {
    if (Atomics.sub(this.#cells, WANTED, 1) === 1) Atomics.notify(this.#cells, WANTED);
  }

  /** Main thread, after the worker is gone, in whatever state it died. */
  reset(): void {
    Atomics.store(this.#cells, ABORTED, 0);
    this.endWork();
  }

  abort(): void {
    Atomics.store(this.#cells, ABORTED, 1);
  }

  get aborted(): boolean {
    return Atomics.load(this.#cells, ABORTED) === 1;
  }

  /** Worker thread: blocks until nobody wants the lock, then has it until `endWork`. */
  beginWork(): void {
    for (;;) {
      const wanted = Atomics.load(this.#cells, WANTED);
      if (wanted > 0) {
        Atomics.wait(this.#cells, WANTED, wanted, 50);
        continue;
      }
      Atomics.store(this.#cells, WORKING, 1);
      if (Atomics.load(this.#cells, WANTED) === 0) return;
      this.endWork();
    }
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
}
