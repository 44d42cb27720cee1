import Database from 'better-sqlite3';
import type { Article } from './articles.ts';
import { ARGUMENTS, type Asked } from './gate.ts';
import { Failing, type Stage } from './stage.ts';

const INBOX_EVERY_MS = 15;

/** An acknowledgement as the till handed it over. */
export interface SeenAck {
  /** Event as of which the order is acknowledged; null if the till named none. */
  seq: number | null;
  /** Whether the till handed over this count of the article before; undefined if the kit did not see the count. */
  hasCountBefore(qty: number): boolean | undefined;
}

/**
 * Collects what the till hands over of one article and its orders. Rows of the inbox are read as they arrive, because
 * tillsync deletes them within half a second.
 */
export class HandOvers {
  readonly #stage: Stage;
  readonly article: Article;
  readonly #counts = new Map<string, { qty: number; at: string }>();
  readonly #acks = new Map<string, { orderId: string; seq: number | null; at: string }>();
  readonly #over = new AbortController();

  constructor(stage: Stage, article: Article) {
    this.#stage = stage;
    this.article = article;
  }

  async watch(): Promise<void> {
    const db = new Database(this.#stage.place.inboxFile, { readonly: true, fileMustExist: true, timeout: 0 });
    try {
      while (!this.#over.signal.aborted) {
        this.#look(db);
        await this.#stage.clock.sleep(INBOX_EVERY_MS, this.#over.signal);
      }
    } finally {
      db.close();
    }
  }

  end(): void {
    this.#over.abort();
  }

  /**
   * Returns the acknowledgements of an order, oldest first: those in requests to the API; if there are none, those in
   * the inbox; if there are none either, those in files for tillsync's commands.
   */
  acksOf(orderId: string): SeenAck[] {
    const asked = this.#askedAcks(orderId);
    if (asked.length > 0) return asked;
    const rows = [...this.#acks.values()].filter((ack) => ack.orderId === orderId);
    if (rows.length > 0)
      return rows.map(({ seq, at }) => ({ seq, hasCountBefore: (qty) => this.#isInserted(qty, at) }));
    return this.#filedAcks(orderId);
  }

  #askedAcks(orderId: string): SeenAck[] {
    const taken = this.#stage.place.gate.asked.filter(({ status }) => status >= 200 && status < 300);
    return taken
      .filter(({ path }) => path === '/v1/orders/ack')
      .flatMap((ack) =>
        itemsOf(ack.body)
          .filter((item) => item.id === orderId || item.orderId === orderId)
          .map((item) => ({
            seq: typeof item.seq === 'number' ? item.seq : null,
            hasCountBefore: (qty: number) => {
              const isBefore = (each: Asked) =>
                each.path === '/v1/stock' && each.answered < ack.number && this.#hasCount(each.body, qty);
              // A till may acknowledge by the API and still hand over its counts by the inbox.
              return taken.some(isBefore) || this.#isInserted(qty, new Date(ack.atMs).toISOString()) === true;
            },
          })),
      );
  }

  #filedAcks(orderId: string): SeenAck[] {
    const texts = this.#stage.place.commands.textsWith('');
    return texts.flatMap((text, at) => {
      const hasCountBefore = (qty: number) =>
        texts.slice(0, at).some((earlier) => this.#hasLine(earlier, qty)) || undefined;
      return this.#acksIn(text, orderId).map((seq) => ({ seq, hasCountBefore }));
    });
  }

  /** Returns the `seq` of each acknowledgement of an order in the arguments, the JSON array or the lines of a call. */
  #acksIn(text: string, orderId: string): (number | null)[] {
    const lines = text.split('\n').map((line) => line.trim());
    if (lines[0] === ARGUMENTS) {
      const words = lines.slice(lines.indexOf('ack') + 1);
      const sql = 'SELECT code FROM orders WHERE order_id = ?';
      const code = this.#stage.place.rows<{ code: number | null }>(sql, orderId)[0]?.code;
      const seq = words[words.indexOf('--seq') + 1];
      if (!lines.includes('ack') || !words.some((word) => word === orderId || word === String(code)))
        return [];
      return [words.includes('--seq') ? Number(seq) : null];
    }
    const found = itemsOf(jsonOf(text)).filter((item) => item.orderId === orderId || item.id === orderId);
    if (found.length > 0) return found.map(({ seq }) => (typeof seq === 'number' ? seq : null));
    return lines.includes(orderId) ? [null] : [];
  }

  #hasCount(body: unknown, qty: number): boolean {
    const { sku, externalId } = this.article;
    return itemsOf(body).some(
      (item) => (item.externalId === externalId || Number(item.sku) === sku) && Number(item.qty) === qty,
    );
  }

  /** Whether a file of counts has a line of the article with this quantity. */
  #hasLine(text: string, qty: number): boolean {
    const { sku, externalId } = this.article;
    return text.split('\n').some((line) => {
      const cells = line.split(/[,;\t]/).map((cell) => cell.trim().replace(/^"(.*)"$/, '$1'));
      return (cells.includes(externalId) || cells.includes(String(sku))) && cells.map(Number).includes(qty);
    });
  }

  /** Whether the count was inserted into the inbox by `at` (ISO 8601); undefined if it was not seen there. */
  #isInserted(qty: number, at: string): boolean | undefined {
    const same = [...this.#counts.values()].filter((count) => count.qty === qty);
    return same.length === 0 ? undefined : same.some((count) => count.at <= at);
  }

  #look(db: Database.Database): void {
    try {
      const { sku, externalId } = this.article;
      const counts = db.prepare<[string, number], { key: string; qty: number; at: string }>(
        'SELECT change_key AS key, qty, inserted_at AS at FROM stock_changes WHERE external_id = ? OR sku = ?',
      );
      for (const { key, ...count } of counts.all(externalId, sku)) this.#counts.set(key, count);
      const acks = db.prepare<[], { key: string; orderId: unknown; seq: number | null; at: string }>(
        'SELECT change_key AS key, order_id AS orderId, seq, inserted_at AS at FROM order_acks ORDER BY id',
      );
      for (const { key, orderId, ...ack } of acks.all())
        this.#acks.set(key, { ...ack, orderId: String(orderId) });
    } catch {
      // The till or tillsync is writing, so the inbox is read again later.
    }
  }
}

function itemsOf(body: unknown): Record<string, unknown>[] {
  return Array.isArray(body)
    ? body.map((item) => (typeof item === 'object' && item ? item : { id: item }))
    : [];
}

function jsonOf(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

/**
 * Checks that the till handed over a count of the article before the first acknowledgement of an order. If the kit did
 * not see both on their way, tillsync's own tables decide.
 */
export function requireCountFirst(stage: Stage, handOvers: HandOvers, orderId: string, qty: number): void {
  const isBefore =
    handOvers.acksOf(orderId)[0]?.hasCountBefore(qty) ?? isStoredBefore(stage, handOvers, orderId, qty);
  if (!isBefore) throw new Failing(`An order was acknowledged before the count of ${qty} that contains it.`);
}

function isStoredBefore(stage: Stage, { article }: HandOvers, orderId: string, qty: number): boolean {
  const count = stage.counts(article).find((each) => each.qty === qty);
  const ackedAt = stage.acks(orderId)[0]?.ackedAt ?? '';
  return count !== undefined && ackedAt >= count.at;
}
