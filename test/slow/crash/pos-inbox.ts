import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync } from 'node:fs';
import { createInterface } from 'node:readline';
import Database from 'better-sqlite3';
import { NODE } from '../../support/workplace.ts';

/** Rows that a POS inserts in one transaction. */
export interface InboxRows {
  stocks: { externalId: string; qty: number }[];
  prices: { sku: number; price: number }[];
  acks: string[];
}

/**
 * Inserts rows. Returns true once the transaction is committed, false when the inbox was unavailable, undefined when
 * the POS died meanwhile.
 */
export type InsertRows = (rows: InboxRows) => Promise<boolean | undefined>;

/** Opens the inbox, inserts the rows and closes it, like a POS that knows only SQL. Returns false if it cannot. */
export function insertRows(file: string, { stocks, prices, acks }: InboxRows): boolean {
  if (!existsSync(file)) return false;
  let db: Database.Database | undefined;
  try {
    db = new Database(file, { fileMustExist: true, timeout: 20 });
    // Without EXTRA, a power cut may undo a commit with a rollback journal, because the journal's deletion is
    // not synced.
    db.pragma('synchronous = EXTRA');
    const stock = db.prepare('INSERT INTO stock_changes (external_id, qty) VALUES (?, ?)');
    const price = db.prepare('INSERT INTO product_changes (sku, price) VALUES (?, ?)');
    const ack = db.prepare('INSERT INTO order_acks (order_id) VALUES (?)');
    db.transaction(() => {
      for (const row of stocks) stock.run(row.externalId, row.qty);
      for (const row of prices) price.run(row.sku, row.price);
      for (const orderId of acks) ack.run(orderId);
    }).immediate();
    return true;
  } catch (error) {
    // The inbox is not complete yet, or it is locked.
    const code = error instanceof Database.SqliteError ? error.code : '';
    if (!/^SQLITE_(BUSY|ERROR|CANTOPEN|READONLY)/.test(code)) throw error;
    return false;
  } finally {
    db?.close();
  }
}

/** The POS as a separate process, which is killed at a power cut. */
export class PosProcess {
  readonly #child: ChildProcess;
  readonly #answers: AsyncIterator<string>;
  readonly #dead: Promise<unknown>;

  constructor(file: string, env: Record<string, string>) {
    this.#child = spawn(NODE, [import.meta.filename, file], { env, stdio: ['pipe', 'pipe', 'inherit'] });
    this.#dead = once(this.#child, 'close');
    this.#child.stdin?.on('error', () => {});
    if (!this.#child.stdout) throw new Error('The POS has no output');
    this.#answers = createInterface({ input: this.#child.stdout })[Symbol.asyncIterator]();
  }

  readonly insert: InsertRows = async (rows) => {
    this.#child.stdin?.write(`${JSON.stringify(rows)}\n`);
    const answer = await this.#answers.next();
    return answer.done === true ? undefined : answer.value === 'kept';
  };

  kill(): void {
    this.#child.kill('SIGKILL');
  }

  async dead(): Promise<void> {
    await this.#dead;
  }
}

if (process.argv[1] === import.meta.filename) {
  const [, , file = ''] = process.argv;
  for await (const line of createInterface({ input: process.stdin })) {
    process.stdout.write(insertRows(file, JSON.parse(line) as InboxRows) ? 'kept\n' : 'not now\n');
  }
}
