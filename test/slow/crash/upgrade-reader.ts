import { type ChildProcess, fork } from 'node:child_process';
import { once } from 'node:events';
import { existsSync } from 'node:fs';
import path from 'node:path';
import Database from 'better-sqlite3';
import { systemClock } from '../../../src/core/system-clock.ts';
import { NODE } from '../../support/workplace.ts';

export interface ReaderReport {
  reads: number;
  /** The first errors and contradictions in reads of the mirror. */
  errors: string[];
  /** Orders whose acknowledgement was written to the inbox. */
  acked: string[];
}

const EVERY_MS = 15;
const SHOWN_MAX = 10;
/** Busy timeout that docs/pos.md asks a reader to set. */
const BUSY_MS = 5_000;

interface EventRow {
  seq: number;
  orderId: string;
  status: string;
}

/** A POS that follows the feed in the mirror, and acknowledges each order once through the inbox. */
export class UpgradeReader {
  readonly #child: ChildProcess;

  constructor(storage: string, afterSeq: number) {
    this.#child = fork(import.meta.filename, [storage, String(afterSeq)], { execPath: NODE, execArgv: [] });
  }

  async stop(): Promise<ReaderReport> {
    const answer = once(this.#child, 'message');
    this.#child.send('stop');
    const [report] = (await answer) as [ReaderReport];
    return report;
  }

  kill(): void {
    this.#child.kill('SIGKILL');
  }
}

async function follow(storage: string, afterSeq: number): Promise<void> {
  const mirror = path.join(storage, 'mirror.db');
  const inbox = path.join(storage, 'inbox', 'inbox.db');
  const report: ReaderReport = { reads: 0, errors: [], acked: [] };
  const words = new Map<number, string>();
  const seen = new Set<string>();
  const debts: string[] = [];
  let seq = afterSeq;
  let isStopped = false;
  process.once('message', () => {
    isStopped = true;
  });
  const tell = (text: string) => report.errors.length < SHOWN_MAX && report.errors.push(text);
  while (!isStopped) {
    try {
      for (const row of readAfter(mirror, seq)) {
        const word = `${row.status} of ${row.orderId}`;
        const was = words.get(row.seq);
        if (was !== undefined && was !== word) tell(`event ${row.seq} was ${was} and is ${word}`);
        words.set(row.seq, word);
        seq = Math.max(seq, row.seq);
        if (seen.has(row.orderId)) continue;
        seen.add(row.orderId);
        debts.push(row.orderId);
      }
      report.reads += 1;
    } catch (error) {
      tell(`a read of the mirror: ${String(error)}`);
    }
    while (debts[0] !== undefined && acknowledged(inbox, debts[0]))
      report.acked.push(debts.shift() as string);
    await systemClock.sleep(EVERY_MS);
  }
  process.send?.(report, () => process.disconnect());
}

function readAfter(file: string, seq: number): EventRow[] {
  const db = new Database(file, { readonly: true, fileMustExist: true, timeout: BUSY_MS });
  try {
    return db
      .prepare<[number], EventRow>(
        'SELECT seq, order_id AS orderId, status FROM order_events WHERE seq > ? ORDER BY seq LIMIT 100',
      )
      .all(seq);
  } finally {
    db.close();
  }
}

/**
 * Writes an acknowledgement to the inbox. Returns false if the inbox is missing or locked; the POS then tries again.
 */
function acknowledged(file: string, orderId: string): boolean {
  if (!existsSync(file)) return false;
  try {
    const db = new Database(file, { fileMustExist: true, timeout: 20 });
    try {
      db.prepare('INSERT INTO order_acks (order_id) VALUES (?)').run(orderId);
      return true;
    } finally {
      db.close();
    }
  } catch {
    return false;
  }
}

if (process.argv[1] === import.meta.filename) {
  const [, , storage = '', afterSeq] = process.argv;
  await follow(storage, Number(afterSeq));
}
