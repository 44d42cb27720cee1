import { Agent, request } from 'undici';
import { systemClock } from '../../../src/core/system-clock.ts';
import type { Random } from '../../../src/core/time.ts';
import type { SandboxControl } from '../../../src/sandbox/control.ts';
import type { SubmittedChange } from './handed-over.ts';
import type { InsertRows } from './pos-inbox.ts';

export interface StoreLoadOptions {
  control: SandboxControl;
  localUrl: string;
  /** Returns the API key that the daemon made; undefined before that. */
  apiKey: () => string | undefined;
  handedOver: SubmittedChange;
  insert: () => InsertRows;
  random: Random;
}

/** Added to prices only. Counts and prices take their values from one rising counter; this keeps the two apart. */
const PRICE_BASE = 10_000;
/** SKUs that customers order, and of which the POS hands over no counts. */
const ORDERED_SKUS = [1002, 1004, 1005];

interface Targets {
  stocks: string[];
  skus: number[];
}

/**
 * Makes the load of a busy store: orders, counts and prices by HTTP and by SQL, and acknowledgements. Each interface
 * has its own targets.
 */
export class StoreLoad {
  readonly #o: StoreLoadOptions;
  readonly #http: Targets;
  readonly #inbox: Targets;
  readonly #agent = new Agent({ keepAliveTimeout: 1_000 });
  readonly #open: string[] = [];
  /** While true, the load inserts nothing into the inbox by itself. */
  isInboxQuiet = false;
  #insertUnderWay: Promise<unknown> = Promise.resolve();
  #stopped = true;

  constructor(options: StoreLoadOptions) {
    this.#o = options;
    const named = options.control
      .products()
      .flatMap(({ children }) =>
        children.flatMap(({ sku, stocks, integrations }) =>
          integrations.flatMap(({ subsidiaryId, productIdPosA }) =>
            productIdPosA !== null && stocks.some((stock) => stock.subsidiaryId === subsidiaryId)
              ? [{ sku, externalId: productIdPosA }]
              : [],
          ),
        ),
      );
    const skus = [...new Set(named.map(({ sku }) => sku))];
    const pick = (part: number): Targets => ({
      stocks: named.flatMap(({ externalId }, i) => (i % 4 === part ? [externalId] : [])),
      skus: skus.filter((_sku, i) => i % 2 === part),
    });
    [this.#http, this.#inbox] = [pick(0), pick(1)];
    if ([this.#http, this.#inbox].some(({ stocks, skus }) => stocks.length < 5 || skus.length < 3)) {
      throw new Error('The sandbox has too few products for two ways in.');
    }
  }

  /** Creates load until `stop`; resolves when no request is running any more. */
  async run(): Promise<void> {
    this.#stopped = false;
    await Promise.all([this.#orders(), this.#overHttp(), this.#overSql()]);
  }

  stop(): void {
    this.#stopped = true;
  }

  /** Inserts counts, prices and acknowledgements in one transaction, which may fail. */
  insertSome(): Promise<unknown> {
    this.#insertUnderWay = this.#insertSome();
    return this.#insertUnderWay;
  }

  async inboxAtRest(): Promise<void> {
    await this.#insertUnderWay;
  }

  close(): Promise<void> {
    return this.#agent.destroy();
  }

  async #orders(): Promise<void> {
    const { control } = this.#o;
    while (!this.#stopped) {
      const before = this.#open[Math.floor(this.#next() * this.#open.length)];
      if (before === undefined || this.#next() < 0.5) {
        const sku = ORDERED_SKUS[Math.floor(this.#next() * ORDERED_SKUS.length)] ?? 1002;
        this.#open.push(control.createOrder({ items: [{ sku, qty: 1 }] }).internalOrderId);
        if (this.#open.length > 30) this.#open.shift();
      } else control.advanceOrder(before);
      await systemClock.sleep(2 + this.#next() * 20);
    }
  }

  async #overHttp(): Promise<void> {
    while (!this.#stopped) {
      if (this.#next() < 0.6) {
        const items = this.#some(this.#http.stocks).map((externalId) => {
          const target = `stock:${externalId}`;
          return { target, value: this.#submit(target), externalId };
        });
        await this.#post(
          '/v1/stock',
          items,
          items.map(({ externalId, value }) => ({ externalId, qty: value })),
        );
      } else {
        const items = this.#some(this.#http.skus).map((sku) => {
          const target = `price:${sku}`;
          return { target, value: this.#submit(target, PRICE_BASE), sku };
        });
        await this.#post(
          '/v1/products',
          items,
          items.map(({ sku, value }) => ({ sku, price: value })),
        );
      }
      await systemClock.sleep(5 + this.#next() * 40);
    }
  }

  async #post(path: string, items: readonly { target: string; value: number }[], body: object[]) {
    let results: { state: string }[];
    try {
      const answer = await request(this.#o.localUrl + path, {
        method: 'POST',
        headers: { 'content-type': 'application/json', 'x-api-key': this.#o.apiKey() ?? '' },
        body: JSON.stringify(body),
        dispatcher: this.#agent,
      });
      ({ results } = (await answer.body.json()) as { results: { state: string }[] });
    } catch (error) {
      // If the daemon was killed before it answered, nobody knows whether it accepted the values.
      const neverSent = error instanceof Error && 'code' in error && error.code === 'ECONNREFUSED';
      if (neverSent) for (const { target, value } of items) this.#o.handedOver.withdraw(target, value);
      return;
    }
    items.forEach(({ target, value }, i) => {
      const state = results[i]?.state;
      if (state !== 'pending') throw new Error(`${target} = ${value} is ${state}`);
      this.#o.handedOver.accept(target, value);
    });
  }

  async #overSql(): Promise<void> {
    while (!this.#stopped) {
      if (!this.isInboxQuiet) await this.insertSome();
      await systemClock.sleep(10 + this.#next() * 50);
    }
  }

  async #insertSome(): Promise<void> {
    const { handedOver, insert } = this.#o;
    const stocks = this.#some(this.#inbox.stocks).map((externalId) => {
      const target = `stock:${externalId}`;
      return { target, value: this.#submit(target), externalId };
    });
    const prices = this.#some(this.#inbox.skus).map((sku) => {
      const target = `price:${sku}`;
      return { target, value: this.#submit(target, PRICE_BASE), sku };
    });
    const acks = this.#some(this.#open);
    const isKept = await insert()({
      stocks: stocks.map(({ externalId, value }) => ({ externalId, qty: value })),
      prices: prices.map(({ sku, value }) => ({ sku, price: value })),
      acks,
    });
    if (isKept === undefined) return;
    for (const { target, value } of [...stocks, ...prices]) {
      if (isKept) handedOver.accept(target, value);
      else handedOver.withdraw(target, value);
    }
    if (isKept) for (const orderId of acks) handedOver.acks.add(orderId);
  }

  #submit(target: string, from = 0): number {
    return this.#o.handedOver.submit(target, from);
  }

  /** Draws up to four elements. */
  #some<T>(all: readonly T[]): T[] {
    const start = Math.floor(this.#next() * all.length);
    return all.slice(start, start + 1 + Math.floor(this.#next() * 4));
  }

  #next(): number {
    return this.#o.random.next();
  }
}
