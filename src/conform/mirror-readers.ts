/** Measures how long each program has kept a read of the mirror open. */
export class Readers {
  longestMs = 0;
  longest = '';
  /** Number of checks so far. */
  looks = 0;
  /** Why the last failed check failed. */
  fault = '';
  readonly #heldMs = new Map<number, number>();

  look(found: readonly { pid: number; program: string }[], everyMs: number): void {
    this.looks += 1;
    const pids = new Set(found.map(({ pid }) => pid));
    for (const pid of this.#heldMs.keys()) if (!pids.has(pid)) this.#heldMs.delete(pid);
    for (const { pid, program } of found) {
      const heldMs = this.#heldMs.has(pid) ? (this.#heldMs.get(pid) ?? 0) + everyMs : 0;
      this.#heldMs.set(pid, heldMs);
      if (heldMs <= this.longestMs) continue;
      this.longestMs = heldMs;
      this.longest = `${program || 'a program'} (process ${pid})`;
    }
  }
}
