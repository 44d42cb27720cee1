import { mkdtempSync } from 'node:fs';
import { connect, type Socket } from 'node:net';
import path from 'node:path';
import Database from 'better-sqlite3';
import { type BenchOptions, type BenchResult, median } from './bench-result.ts';
import { sampleOrder } from './sample-order.ts';
import { SECRET, startServer } from './server-process.ts';

/** One callback at a time: what waiting for company costs when there is none. */
export async function measureLone(parent: string, options: BenchOptions): Promise<BenchResult> {
  options.progress('lone callbacks');
  const directory = mkdtempSync(path.join(parent, 'lone-'));
  const servers = [await startServer('bare', directory), await startServer('tillsync', directory)];
  const [bare, ours] = await Promise.all(servers.map(({ url }) => LoneClient.connect(url)));
  const commit = bareCommit(path.join(directory, 'bare.db'));
  const times: Record<'bare' | 'ours' | 'commit', number[]> = { bare: [], ours: [], commit: [] };
  if (!bare || !ours) throw new Error('unreachable');
  try {
    // In turns, so that all three find the caches alike: a lone callback comes to a machine that did other things.
    for (let n = 0; n < (options.quick ? 2_000 : 10_000); n++) {
      times.bare.push(await bare.post(`b${n}`));
      times.commit.push(commit.run(`c${n}`));
      times.ours.push(await ours.post(`o${n}`));
    }
  } finally {
    bare.close();
    ours.close();
    commit.close();
    for (const server of servers) await server.stop();
  }
  const p50 = { bare: median(times.bare), ours: median(times.ours), commit: median(times.commit) };
  const us = (ms: number) => `${Math.round(ms * 1000)} µs`;
  return {
    name: 'lone callback p50 / (bare commit + bare request)',
    ratio: p50.ours / (p50.commit + p50.bare),
    bound: '<= 1.3',
    detail: `callback ${us(p50.ours)}, commit of one row ${us(p50.commit)}, request without storing ${us(p50.bare)}`,
  };
}

/** One row with the order's text, durable: the least that any receiver must do. */
function bareCommit(file: string) {
  const db = new Database(file);
  db.pragma('journal_mode = WAL');
  db.pragma('synchronous = FULL');
  db.exec('CREATE TABLE rows (id TEXT PRIMARY KEY, payload TEXT)');
  const insert = db.prepare('INSERT INTO rows VALUES (?, ?)');
  return {
    run(id: string): number {
      const text = sampleOrder(id, 1234);
      const beganMs = performance.now();
      insert.run(id, text);
      return performance.now() - beganMs;
    },
    close: () => db.close(),
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
