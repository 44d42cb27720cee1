import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import path from 'node:path';
import { request } from 'undici';
import { NODE } from '../../support/workplace.ts';
import type { ReaderReport } from './pos-reader.ts';

export interface RunningReader {
  /** Ends the reader; returns its report. */
  end(): Promise<ReaderReport>;
}

/** Starts a POS that reads the mirror by SQL; `holdMs` is how long each read keeps its snapshot. */
export function startSqlReader(mirror: string, everyMs: number, holdMs: number): RunningReader {
  const program = path.join(import.meta.dirname, 'pos-reader.ts');
  const child: ChildProcess = spawn(NODE, [program, mirror, String(everyMs), String(holdMs)], {
    stdio: ['pipe', 'pipe', 'inherit'],
  });
  let text = '';
  child.stdout?.on('data', (chunk) => {
    text += chunk;
  });
  const ended = once(child, 'close');
  return {
    async end() {
      child.stdin?.end();
      await ended;
      return JSON.parse(text) as ReaderReport;
    },
  };
}

/** A POS that follows the feed as a stream of events. */
export class StreamReader {
  events = 0;
  newest = 0;
  /** Number of events whose seq is not higher than that of the event before. */
  disorder = 0;
  readonly #closing = new AbortController();
  #over: Promise<void> = Promise.resolve();

  /** Opens the stream; resolves once it is open. */
  async start(localUrl: string): Promise<void> {
    const { statusCode, body } = await request(`${localUrl}/v1/orders`, {
      headers: { accept: 'text/event-stream' },
      signal: this.#closing.signal,
      bodyTimeout: 60_000,
    });
    if (statusCode !== 200) throw new Error(`The stream was refused with ${statusCode}`);
    this.#over = this.#follow(body);
  }

  async end(): Promise<void> {
    this.#closing.abort();
    await this.#over;
  }

  async #follow(body: AsyncIterable<Buffer>): Promise<void> {
    let rest = '';
    try {
      for await (const chunk of body) {
        const lines = (rest + chunk.toString('latin1')).split('\n');
        rest = lines.pop() ?? '';
        for (const line of lines) if (line.startsWith('id: ')) this.#note(Number(line.slice(4)));
      }
    } catch (error) {
      if (!this.#closing.signal.aborted) throw error;
    }
  }

  #note(seq: number): void {
    if (seq <= this.newest) this.disorder += 1;
    this.newest = seq;
    this.events += 1;
  }
}
