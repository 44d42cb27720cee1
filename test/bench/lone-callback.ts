import { mkdtempSync } from 'node:fs';
import { connect, type Socket } from 'node:net';
import path from 'node:path';
import { oneRowCommit, sameRowsCommit } from './bare-commits.ts';
import { type BenchOptions, type BenchResult, median } from './bench-result.ts';
import { sampleOrder } from './sample-order.ts';
import { SECRET, startServer } from './server-process.ts';

/**
 * One callback at a time: what waiting for company costs when there is none. The bare commit is measured both
 * as one row and as the rows that the mirror keeps of an order.
 */
export async function measureLone(parent: string, options: BenchOptions): Promise<BenchResult[]> {
  options.progress('lone callbacks');
  const directory = mkdtempSync(path.join(parent, 'lone-'));
  const servers = [await startServer('bare', directory), await startServer('tillsync', directory)];
  const [bare, ours] = await Promise.all(servers.map(({ url }) => LoneClient.connect(url)));
  const commits = [oneRowCommit(directory), await sameRowsCommit(directory)] as const;
  const times = {
    bare: [] as number[],
    ours: [] as number[],
    oneRow: [] as number[],
    sameRows: [] as number[],
  };
  if (!bare || !ours) throw new Error('unreachable');
  try {
    // In turns, so that all find the caches alike: a lone callback comes to a machine that did other things.
    for (let n = 0; n < (options.quick ? 2_000 : 10_000); n++) {
      times.bare.push(await bare.post(`b${n}`));
      times.oneRow.push(commits[0].run(`c${n}`));
      times.ours.push(await ours.post(`o${n}`));
      times.sameRows.push(commits[1].run(`c${n}`));
    }
  } finally {
    bare.close();
    ours.close();
    for (const commit of commits) commit.close();
    for (const server of servers) await server.stop();
  }
  const [request, callback] = [median(times.bare), median(times.ours)];
  return [
    ratio('bare commit of the same rows', callback, median(times.sameRows), request),
    ratio('bare commit of one row', callback, median(times.oneRow), request),
  ];
}

function ratio(what: string, callbackMs: number, commitMs: number, requestMs: number): BenchResult {
  const us = (ms: number) => `${Math.round(ms * 1000)} µs`;
  return {
    name: `lone callback p50 / (${what} + bare request)`,
    ratio: callbackMs / (commitMs + requestMs),
    bound: '<= 1.3',
    detail: `callback ${us(callbackMs)}, ${what} ${us(commitMs)}, request without storing ${us(requestMs)}`,
  };
}

/** One kept-alive connection with one request at a time, and little of its own to measure. */
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

  /** Milliseconds from the request's last byte to the answer's. */
  post(id: string): Promise<number> {
    const body = sampleOrder(id, 1234);
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
