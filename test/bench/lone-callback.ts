import { mkdtempSync } from 'node:fs';
import { connect, type Socket } from 'node:net';
import path from 'node:path';
import { oneRowCommit, sameRowsCommit } from './bare-commits.ts';
import { type BenchOptions, type BenchResult, median, spread } from './bench-result.ts';
import { sampleOrder } from './sample-order.ts';
import { SECRET, startServer } from './server-process.ts';

/**
 * Sends one callback at a time, to measure how much time the receiver loses while it waits for further callbacks in
 * vain. Compares with bare commits of one row, and of all rows that the mirror has for an order.
 */
export async function measureLone(parent: string, options: BenchOptions): Promise<BenchResult[]> {
  options.progress('lone callbacks');
  const directory = mkdtempSync(path.join(parent, 'lone-'));
  const start = (mode: string) => startServer('receiver-server.ts', mode, directory, SECRET);
  const servers = [await start('bare'), await start('tillsync')];
  const [bare, ours] = await Promise.all(servers.map(({ url }) => LoneClient.connect(url)));
  const commits = [oneRowCommit(directory), await sameRowsCommit(directory)] as const;
  if (!bare || !ours) throw new Error('unreachable');
  const rounds: Lone[] = [];
  try {
    for (let round = 0; round < (options.quick ? 3 : 40); round++) {
      const times = { request: [], callback: [], oneRow: [], sameRows: [] } as Record<keyof Lone, number[]>;
      // The candidates alternate, so that each finds caches with the data of other work, as a lone callback does on a
      // machine that also does other things.
      for (let n = round * PER_ROUND; n < (round + 1) * PER_ROUND; n++) {
        times.request.push(await bare.post(sampleOrder(`b${n}`, 1234)));
        times.oneRow.push(commits[0].run(`c${n}`));
        times.callback.push(await ours.post(sampleOrder(`o${n}`, 1234)));
        times.sameRows.push(commits[1].run(`c${n}`));
      }
      const { request, callback, oneRow, sameRows } = times;
      rounds.push({
        request: median(request),
        callback: median(callback),
        oneRow: median(oneRow),
        sameRows: median(sameRows),
      });
    }
  } finally {
    bare.close();
    ours.close();
    for (const commit of commits) commit.close();
    for (const server of servers) await server.stop();
  }
  return [
    ratio('bare commit of the same rows', 'sameRows', rounds),
    ratio('bare commit of one row', 'oneRow', rounds),
  ];
}

const PER_ROUND = 250;

/** Medians of a round, in milliseconds. */
interface Lone {
  request: number;
  callback: number;
  oneRow: number;
  sameRows: number;
}

function ratio(what: string, commit: 'oneRow' | 'sameRows', rounds: readonly Lone[]): BenchResult {
  const us = (which: keyof Lone) => `${Math.round(median(rounds.map((each) => each[which])) * 1000)} µs`;
  const ratios = rounds.map((each) => each.callback / (each[commit] + each.request));
  return {
    name: `lone callback p50 / (${what} + bare request)`,
    ratio: median(ratios),
    bound: '<= 1.3',
    detail: `callback ${us('callback')}, ${what} ${us(commit)}, request without storing ${us('request')}; ${spread(ratios)}`,
  };
}

/** A client with a kept-alive connection, one request at a time and little overhead. */
export class LoneClient {
  readonly #socket: Socket;
  readonly #path: string;

  private constructor(socket: Socket, url: URL) {
    this.#socket = socket;
    this.#path = url.pathname;
  }

  static connect(address: string): Promise<LoneClient> {
    const url = new URL(address);
    const socket = connect({ port: Number(url.port), host: url.hostname, noDelay: true });
    return new Promise((resolve, reject) => {
      socket.once('error', reject).once('connect', () => resolve(new LoneClient(socket, url)));
    });
  }

  /** Posts an order, and returns the milliseconds until the whole answer has arrived. */
  post(body: string): Promise<number> {
    const text =
      `POST ${this.#path} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nx-webhook-secret: ${SECRET}\r\n` +
      `Content-Length: ${Buffer.byteLength(body)}\r\n\r\n${body}`;
    return new Promise((resolve, reject) => {
      const beganMs = performance.now();
      let answer = '';
      const onData = (chunk: Buffer) => {
        answer += chunk.toString('latin1');
        if (!answer.endsWith('}')) return;
        this.#socket.off('data', onData);
        if (answer.startsWith('HTTP/1.1 200')) resolve(performance.now() - beganMs);
        else reject(new Error(`Not acknowledged: ${answer.slice(0, 40)}`));
      };
      this.#socket.on('data', onData);
      this.#socket.write(text);
    });
  }

  close(): void {
    this.#socket.destroy();
  }
}
