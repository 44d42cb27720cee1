import { mkdtempSync, rmSync } from 'node:fs';
import path from 'node:path';
import { openMirror } from '../../../src/app/mirror.ts';
import type { Branch } from '../../../src/catalog/product.ts';
import { silentLog } from '../../../src/core/log.ts';
import type { Clock } from '../../../src/core/time.ts';
import { compileSpellings } from '../../../src/orders/merging/field-aliases.ts';
import { readSentOrder } from '../../../src/orders/merging/order-reader.ts';
import { GUARDS_OFF } from '../../../src/outbox/intake/guards.ts';
import { OutboxService } from '../../../src/outbox/sending/outbox.ts';
import { StockLooker } from '../../../src/outbox/sending/product-reads.ts';
import { PushFreshness, PushLoop, type PushLoopOptions } from '../../../src/outbox/sending/push-loop.ts';
import { MirrorStores } from '../../../src/outbox/sending/repositories.ts';
import type { ProductRecord } from '../../../src/platform/schemas.ts';
import { seededRandom } from '../../support/fake-clock.ts';
import { fastRoot } from '../../support/fast-files.ts';
import { freshMirror } from '../../support/fresh-mirror.ts';
import type { HeardOrder, NamedStrategy, ShopView, Strategy } from './strategy.ts';

const BRANCH = { subsidiaryId: 'sub-1', externalId: 'B1' } satisfies Branch;
const MORNING_MS = Date.UTC(2026, 2, 3, 12);
const SPELLINGS = compileSpellings();
const CALL_ITEMS = 100;
const LOOK_BELOW = 3;

export interface TillsyncOptions {
  holdBack: boolean;
  hears: 'callback' | 'poll';
  /** Whether the strategy reads the platform's quantity before it sends the last pieces. */
  looks: boolean;
}

/**
 * The product's own intake, ledger, queue and reads of scarce stocks on a real mirror; only the clock and the platform
 * are simulated.
 */
class Tillsync implements Strategy {
  readonly #options: TillsyncOptions;
  readonly #directory = mkdtempSync(path.join(fastRoot(), 'tillsync-day-'));
  #shop!: ShopView;
  #mirror!: ReturnType<typeof openMirror>;
  #outbox!: OutboxService;
  #sender!: PushLoop;
  #looker: StockLooker | undefined;
  /** The running call, with the id of the change of each product in it. */
  #call: { callId: number; changeIds: Map<number, number> } | undefined;
  #lastPollMs: number | null = null;

  constructor(options: TillsyncOptions) {
    this.#options = options;
  }

  async open(shop: ShopView): Promise<void> {
    this.#shop = shop;
    const nowMs = () => MORNING_MS + shop.nowS() * 1_000;
    const clock: Clock = { nowMs, monotonicMs: nowMs, bootId: 'day', sleep: async () => {} };
    this.#mirror = openMirror({ path: freshMirror(this.#directory), clock });
    const stores = new MirrorStores({ mirror: this.#mirror, branches: [BRANCH], clock });
    const records = Array.from({ length: shop.products }, (_, product) =>
      recordOf(product, shop.posStock(product)),
    );
    await stores.write(({ catalog }) => {
      const mark = catalog.readMark();
      catalog.applyPage(BRANCH, records, mark);
      const seen = new Set(records.map(({ id }) => id));
      catalog.completeSweep({ branch: BRANCH, mark, startedAtMs: nowMs(), pages: 1, seen });
    });
    const { holdBack, hears, looks } = this.#options;
    this.#outbox = new OutboxService({ stores, guards: GUARDS_OFF, holdBack });
    // The inbox stays empty, so nothing has to be copied from it before a change is accepted.
    this.#outbox.afterInbox(async () => true);
    if (looks) {
      this.#looker = new StockLooker({
        stores,
        clock,
        lookBelow: LOOK_BELOW,
        isHeardLate: () => hears === 'poll',
        platform: {
          productGet: async (which, call) => {
            const product = Number('sku' in which ? which.sku : Number.NaN);
            call?.onSend?.();
            return recordOf(product, await shop.read(product));
          },
        },
      });
    }
    this.#sender = new PushLoop({
      kind: 'stock' as const,
      stores,
      clock,
      hasBranches: true,
      lingerMs: 0,
      looker: this.#looker,
      lastPollOkMs: () => this.#lastPollMs,
      rules: { holdBack, skipUnchanged: true, trustMs: 600_000, platformDeducts: true },
      platform: {} as PushLoopOptions['platform'],
      freshness: new PushFreshness({ ok() {}, report() {} }),
      status: () => 'elsewhere',
      random: seededRandom(1),
      log: silentLog,
      beat() {},
    });
    // A poll of orders succeeds every two minutes, because tillsync skips unchanged counts only after a recent poll.
    this.#lastPollMs = nowMs();
    shop.every(120, () => {
      this.#lastPollMs = nowMs();
    });
  }

  async posChanged(product: number, qty: number): Promise<void> {
    await this.#outbox.submit([{ kind: 'stock', change: { externalId: extId(product), qty } }], 'http');
    await this.#send();
  }

  async heard({ id, product, qty, atS }: HeardOrder): Promise<void> {
    const sent = {
      internalOrderId: id,
      code: Number(id.slice('order-'.length)),
      status: 'picker-pending',
      items: [{ product: { externalId: extId(product), name: `Producto ${product}` }, amount: qty }],
      createdAt: new Date(MORNING_MS + atS * 1_000).toISOString(),
      store: { externalId: BRANCH.externalId },
    };
    const raw = JSON.stringify(sent);
    const reading = readSentOrder(sent, raw, SPELLINGS);
    if ('unreadable' in reading) throw new Error(reading.unreadable);
    const source = this.#options.hears === 'poll' ? 'poll' : 'webhook';
    const observedAtMs = MORNING_MS + this.#shop.nowS() * 1_000;
    await this.#mirror.save([{ kind: 'order', observation: { source, observedAtMs, raw, reading } }]);
    await this.#outbox.catchUp();
    await this.#send();
  }

  async booked({ id }: HeardOrder): Promise<void> {
    await this.#outbox.acknowledge([id], 'http');
    await this.#send();
  }

  /** Puts the due changes into one call, as the sender does when a call is allowed. */
  async #send(): Promise<void> {
    if (this.#call) return;
    const { callId, items, toLook } = await this.#sender.claim(CALL_ITEMS);
    if (callId === null) {
      if (!this.#looker || toLook.length === 0) return;
      await this.#looker.look(toLook, {}, () => false);
      return this.#send();
    }
    const changeIds = new Map<number, number>();
    for (const { changeId, body } of items) {
      const product = Number(String(body.externalId).slice('POS-'.length));
      changeIds.set(product, changeId);
      this.#shop.send(product, 'qty' in body ? Number(body.qty) : Number.NaN);
    }
    this.#call = { callId, changeIds };
  }

  async arrived(product: number): Promise<void> {
    const call = this.#call;
    const changeId = call?.changeIds.get(product);
    if (!call || changeId === undefined) return;
    call.changeIds.delete(product);
    this.#arrived.push({ changeId, state: 'done' });
    if (call.changeIds.size > 0) return;
    const answers = this.#arrived.splice(0);
    this.#call = undefined;
    await this.#sender.settle(call.callId, answers);
    await this.#send();
  }

  readonly #arrived: { changeId: number; state: 'done' }[] = [];

  async close(): Promise<void> {
    await this.#mirror.close();
    rmSync(this.#directory, { recursive: true, force: true });
  }
}

const extId = (product: number) => `POS-${product}`;

function recordOf(product: number, qty: number): ProductRecord {
  const { subsidiaryId } = BRANCH;
  const mapping = { subsidiaryId, extId: extId(product), productIdPosA: null, productCodePosB: null };
  const child = {
    sku: `${product}`,
    barcode: null,
    price: 1990,
    withDiscount: false,
    discount: 0,
    show: true,
    stocks: [{ subsidiaryId, qty, show: true }],
    integrations: [mapping],
  };
  const record = {
    id: `p${product}`,
    name: `Producto ${product}`,
    category: 'x',
    show: true,
    children: [child],
  };
  return { ...record, raw: JSON.stringify(record) };
}

const named = (name: string, about: string, options: TillsyncOptions): NamedStrategy => ({
  name,
  about,
  hears: options.hears,
  create: () => new Tillsync(options),
});

export const TILLSYNC_STRATEGIES: readonly NamedStrategy[] = [
  named('tillsync', 'counts less the orders that the POS has not booked', {
    holdBack: true,
    hears: 'callback',
    looks: false,
  }),
  named('tillsync without hold-back', 'counts as they are, skipped where nothing changed', {
    holdBack: false,
    hears: 'callback',
    looks: false,
  }),
  named('tillsync by polling', 'no callbacks: orders are heard within two minutes', {
    holdBack: true,
    hears: 'poll',
    looks: false,
  }),
  named(
    'tillsync by polling, with looks',
    'the same, and the platform is asked before the last pieces are sent',
    {
      holdBack: true,
      hears: 'poll',
      looks: true,
    },
  ),
];
