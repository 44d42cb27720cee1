import type { Log } from '../domain/log.ts';

/** What was opened, to be closed in reverse; each once, whatever the others do. */
export class Releasers {
  readonly #log: Log;
  readonly #undo: { name: string; release: () => Promise<void> | void }[] = [];

  constructor(log: Log) {
    this.#log = log;
  }

  push(name: string, release: () => Promise<void> | void): void {
    this.#undo.push({ name, release });
  }

  /** Closes all in reverse. A failure is logged and does not keep the others open. */
  async release(): Promise<void> {
    for (let last = this.#undo.pop(); last; last = this.#undo.pop()) {
      try {
        await last.release();
      } catch (error) {
        this.#log.error({ err: error, part: last.name }, 'closing a part failed');
      }
    }
  }
}

/** Builds something of many parts; when that fails on the way, what was open already is closed again. */
export async function buildOrRelease<T>(log: Log, build: (releasers: Releasers) => Promise<T>): Promise<T> {
  const releasers = new Releasers(log);
  try {
    return await build(releasers);
  } catch (error) {
    await releasers.release();
    throw error;
  }
}
