import { PUBLISHED_LIMITS } from '../../../src/demo/sandbox-platform.ts';
import { AFTER_CLOSING_S } from '../../bench/oversell/play-day.ts';
import { OPEN_S, type ShopDay } from '../../bench/oversell/shop-day.ts';
import { type DayOutcome, ShopFloor } from '../../bench/oversell/shop-floor.ts';
import { drawProfile } from './profile.ts';
import { SimulatedStore } from './simulated-store.ts';

const SUBSIDIARY = 'sub-1';
const OPENING_MS = Date.UTC(2026, 2, 3, 12);
/** Time for the start and the first sweep. */
const BEFORE_OPENING_MS = 10 * 60_000;
/** Longest round trip of a call. */
const LATENCY_MS_MAX = 400;
/**
 * Longest time until a change is at the platform: 0.25 s in which it waits for others to share its call, 1 s of pause
 * after the answer of the call before, and 0.4 s for each of these two calls.
 */
export const DAEMON_WORD_TAKES_S = 2.05;

/**
 * Plays a shop day with the real daemon and the sandbox on a simulated clock, with the published limits. The POS hands
 * over each count and then acknowledges the order, both by HTTP.
 */
export async function playDaemonDay(day: ShopDay, hears: 'callback' | 'poll'): Promise<DayOutcome> {
  const profile = drawProfile(1, 1);
  const store = new SimulatedStore({
    ...profile,
    startMs: OPENING_MS - BEFORE_OPENING_MS,
    holdBack: true,
    receives: hears === 'callback',
    poll: '*/2 * * * *',
    limits: PUBLISHED_LIMITS,
    keptDays: null,
    calendar: 'America/Santiago',
    pageSize: 100,
    platform: { ...profile.platform, latencyMs: [1, LATENCY_MS_MAX] },
  });
  const { world, stillness, sandbox } = store;
  const { control } = sandbox;
  try {
    for (const { id } of control.products()) control.removeProduct(id);
    for (const [product, qty] of day.stock.entries()) control.putProduct(productOf(product, qty));
    await store.open();
    await world.advance(BEFORE_OPENING_MS);
    const openedMs = world.monotonicMs();
    const callsBefore = control.calls('product.stock.batch').length;
    const nowS = () => (world.monotonicMs() - openedMs) / 1_000;
    const faults: unknown[] = [];
    const post = async (route: string, body: unknown) => {
      const url = store.daemon?.localUrl + route;
      const headers = { 'content-type': 'application/json' };
      const { status, text } = await stillness.call(url, {
        method: 'POST',
        headers,
        body: JSON.stringify(body),
      });
      if (status !== 200) throw new Error(`${route} answered ${status}: ${text}`);
    };
    const floor = new ShopFloor(
      day,
      {
        nowS,
        at(atS, action) {
          const run = async () => {
            await world.sleep(openedMs + 1_000 * atS - world.monotonicMs());
            await action();
          };
          void run().catch((error) => faults.push(error));
        },
        offered: (product) => control.stockOf(skuOf(product), SUBSIDIARY) ?? 0,
        order({ product, qty, hearingS }) {
          const hearingMs = 1_000 * hearingS;
          control.setWebhookBehaviour({ delay: 1, delayMs: [hearingMs, hearingMs] });
          const order = control.createOrder({
            subsidiaryId: SUBSIDIARY,
            status: 'picker-pending',
            deliveryType: 'pickup',
            isScheduled: false,
            items: [{ sku: skuOf(product), qty }],
          });
          return order.internalOrderId;
        },
        // Nothing to do, because the daemon hears of the order by a callback or a poll.
        heard() {},
        posChanged: (product) =>
          post('/v1/stock', [
            { externalId: extIdOf(product), qty: floor.posStock(product), subsidiaryId: SUBSIDIARY },
          ]),
        booked: ({ id }) => post('/v1/orders/ack', [id]),
      },
      DAEMON_WORD_TAKES_S,
    );
    for (const visit of day.visits) void world.sleep(1_000 * visit.atS).then(() => floor.visit(visit));
    await world.advance(1_000 * (OPEN_S + AFTER_CLOSING_S));
    if (faults.length > 0) throw faults[0];
    if (stillness.overruns > 0) throw new Error(`${stillness.overruns} calls ran out of real time`);
    floor.outcome.calls = control.calls('product.stock.batch').length - callsBefore;
    return floor.outcome;
  } finally {
    await store.remove();
  }
}

const skuOf = (product: number) => 1 + product;
const extIdOf = (product: number) => `POS-${product}`;

function productOf(product: number, qty: number) {
  const integration = {
    subsidiaryId: SUBSIDIARY,
    productIdPosA: null,
    productCodePosB: null,
    extId: extIdOf(product),
  };
  const child = {
    sku: skuOf(product),
    barcode: `${product}`,
    price: 1990,
    withDiscount: false,
    discount: 0,
    show: true,
    stocks: [{ subsidiaryId: SUBSIDIARY, qty, show: true }],
    integrations: [integration],
  };
  return {
    id: `p${product}`,
    name: `Producto ${product}`,
    description: '',
    category: 'x',
    show: true,
    createdAtMs: OPENING_MS - BEFORE_OPENING_MS,
    children: [child],
  };
}
