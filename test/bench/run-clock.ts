/** Estimates a run's duration and its remaining time, from each part's time on an idle machine. */
export class RunClock {
  readonly #parts: readonly { name: string; expectedMs: number }[];
  readonly #startMs: number;
  #at = -1;
  #partStartMs: number;

  constructor(parts: readonly { name: string; expectedMs: number }[], nowMs: number) {
    this.#parts = parts;
    this.#startMs = nowMs;
    this.#partStartMs = nowMs;
  }

  /** Notes that the next part begins. */
  next(nowMs: number): void {
    this.#at += 1;
    this.#partStartMs = nowMs;
  }

  /** Returns the remaining time in ms, scaled by how much longer than expected the finished parts took. */
  leftMs(nowMs: number): number {
    const sum = (parts: readonly { expectedMs: number }[]) =>
      parts.reduce((total, { expectedMs }) => total + expectedMs, 0);
    const done = sum(this.#parts.slice(0, Math.max(0, this.#at)));
    const slower = done === 0 ? 1 : (this.#partStartMs - this.#startMs) / done;
    const current = sum(this.#parts.slice(this.#at, this.#at + 1)) * slower;
    const later = sum(this.#parts.slice(this.#at + 1)) * slower;
    return Math.max(0, current - (nowMs - this.#partStartMs)) + later;
  }

  /** Returns the elapsed and the remaining time, such as `[3:05, about 12 min left]`. */
  stamp(nowMs: number): string {
    const seconds = Math.round((nowMs - this.#startMs) / 1000);
    const elapsed = `${Math.floor(seconds / 60)}:${String(seconds % 60).padStart(2, '0')}`;
    const minutes = Math.ceil(this.leftMs(nowMs) / 60_000);
    return `[${elapsed}, ${minutes <= 1 ? 'about a minute' : `about ${minutes} min`} left]`;
  }
}
