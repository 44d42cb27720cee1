import { OutboxSender } from '../../../src/app/outbox-sender.ts';
import { openServices, type Services } from '../../../src/app/services.ts';
import { createLogger } from '../../../src/core/logger.ts';
import type { Answer, BatchItem, ChangeBody, ChangeKind } from '../../../src/outbox/intake/change.ts';
import { GUARDS_OFF } from '../../../src/outbox/intake/guards.ts';
import { PushFreshness, PushLoop } from '../../../src/outbox/sending/push-loop.ts';
import { createHttpTransport } from '../../../src/platform/transport.ts';
import type { CatalogProduct } from '../../../src/sandbox/catalog.ts';
import { seededRandom } from '../../support/fake-clock.ts';
import { hastyClock } from '../../support/hasty-clock.ts';
import { openWorkplace, type Workplace } from '../../support/workplace.ts';
import type { Dice } from './dice.ts';
import { type Delivered, LyingTransport } from './lying-transport.ts';

export const NO_LIMITS = {
  endpointIntervalMs: 1,
  ordersIntervalMs: 1,
  windowMs: 300_000,
  requestsPerWindow: 1_000_000,
  ordersPerWindow: 1_000_000,
};
const KINDS: readonly ChangeKind[] = ['stock', 'product'];
/** Factor by which pauses after failures are shortened; the calls themselves take their usual time. */
const RESTS_FASTER = 500;

/**
 * Called after each run of the sender, when its outcomes are written, with the claimed items, their outcomes and all
 * requests of the run.
 */
export type Judge = (
  kind: ChangeKind,
  items: readonly BatchItem[],
  outcomes: readonly Answer[],
  calls: readonly Delivered[],
) => void;

/** The daemon's services and senders of changes, with a platform that can be made to lie. */
export interface ChangeRig {
  place: Workplace;
  services: Services;
  transport: LyingTransport;
  log(): string;
  /** Runs the daemon's senders of both kinds, and the maintenance, which reads the products that changes name. */
  everything(signal: AbortSignal): Promise<unknown>;
  /** Runs a sender of one kind until the signal; it sends only while `may` returns true. */
  sender(kind: ChangeKind, how: SenderWishes): Promise<void>;
  close(): Promise<void>;
}

export interface SenderWishes {
  may: () => boolean;
  /** Whether a lone change is sent by the single endpoint. */
  single: () => boolean;
  judge: Judge;
  signal: AbortSignal;
}

export async function openChangeRig(seed: number): Promise<ChangeRig> {
  const clock = hastyClock(50);
  const place = await openWorkplace(seed, { clock, limits: NO_LIMITS, seed: { products: 40, orders: 0 } });
  const transport = new LyingTransport(
    createHttpTransport({ userAgent: 'tillsync/test', baseUrl: place.config.platform.baseUrl, clock }),
  );
  const lines: string[] = [];
  const { log, registerSecret } = createLogger({
    level: 'debug',
    pretty: false,
    clock,
    stream: { write: (text) => lines.push(text) },
  });
  const services = await openServices({
    config: {
      ...place.config,
      guard: GUARDS_OFF,
      platform: { ...place.config.platform, timeoutMs: 600_000 },
      stock: { ...place.config.stock, holdBackUnbooked: false },
    },
    secrets: { refreshToken: place.refreshToken, webhookSecrets: [] },
    clock,
    random: seededRandom(seed),
    log,
    transport,
    onSecret: registerSecret,
  });
  for (const branch of services.branches) await services.catalogSweep.sweep(branch);
  return {
    place,
    services,
    transport,
    log: () => lines.join(''),
    everything: (signal) => {
      const { config } = services;
      const whole = new OutboxSender({
        services,
        config,
        clock,
        log,
        random: seededRandom(seed),
        mayCall: () => true,
      });
      const maintenance = whole.maintenance(() => {}).run(signal);
      return Promise.all([maintenance, ...KINDS.map((kind) => whole.push(kind, signal, () => {}))]);
    },
    sender: (kind, wishes) => sender(services, transport, kind, wishes),
    async close() {
      await services.close();
      await place.close();
    },
  };

  function sender(at: Services, way: LyingTransport, kind: ChangeKind, wishes: SenderWishes): Promise<void> {
    let claimed: readonly BatchItem[] = [];
    class Watched extends PushLoop {
      override async claim(max: number) {
        way.calls.length = 0;
        const claim = await super.claim(max);
        claimed = claim.items;
        return claim;
      }
      override async settle(callId: number, answers: readonly Answer[]) {
        const report = await super.settle(callId, answers);
        wishes.judge(kind, claimed, answers, way.calls);
        return report;
      }
    }
    const loop: PushLoop = new Watched({
      kind,
      stores: at.stores,
      hasBranches: true,
      lingerMs: 0,
      log,
      rules: { holdBack: false, skipUnchanged: true, trustMs: 600_000, platformDeducts: true },
      lastPollOkMs: () => clock.nowMs(),
      platform: Object.assign(at.platform, {
        delayMs: async (endpoint: string) =>
          endpoint.endsWith('batch') && wishes.single() && loop.outlook().waiting === 1 ? 1 : 0,
      }),
      status: () => (wishes.may() ? 'sends' : 'elsewhere'),
      freshness: new PushFreshness(at.mirror.health),
      clock: hastyClock(RESTS_FASTER),
      random: seededRandom(seed),
      beat() {},
    });
    return loop.run(wishes.signal);
  }
}

/** Draws one random change of a product, with an id by which the platform knows the product. */
export function drawChange(products: readonly CatalogProduct[], kind: ChangeKind, dice: Dice): ChangeBody {
  for (;;) {
    const product = dice.pick(products);
    const [sku] = product.children;
    if (!sku) continue;
    if (kind === 'product') {
      const [wantsPrice, wantsName] = [dice.chance(0.6), dice.chance(0.3)];
      const body = {
        sku: sku.sku,
        ...(wantsPrice && { price: 1 + dice.below(1_000_000) }),
        ...(wantsName && { name: `Name ${dice.below(1_000_000)}` }),
        ...(dice.chance(0.2) && { show: dice.chance(0.5) }),
        ...(dice.chance(0.2) && { description: `Text ${dice.below(1_000_000)}` }),
      };
      if (Object.keys(body).length > 1) return body;
      continue;
    }
    const mapping = sku.integrations.find(({ subsidiaryId }) =>
      sku.stocks.some((stock) => stock.subsidiaryId === subsidiaryId),
    );
    const externalId = mapping?.productIdPosA ?? mapping?.productCodePosB ?? mapping?.extId;
    if (!mapping || externalId == null) continue;
    const qty = dice.chance(0.1) ? 0 : 1 + dice.below(1_000_000);
    const show = dice.chance(0.2) ? { show: dice.chance(0.5) } : {};
    return { externalId, subsidiaryId: mapping.subsidiaryId, qty, ...show };
  }
}

/** Returns the platform's value of one field of a change. */
export function platformValue(products: readonly CatalogProduct[], body: ChangeBody, field: string): unknown {
  const own = (name: string) => Reflect.get(body, name);
  for (const product of products) {
    for (const sku of product.children) {
      if (!('qty' in body)) {
        if (sku.sku !== body.sku) continue;
        return field === 'price' ? sku.price : Reflect.get(product, field);
      }
      const isNamed = sku.integrations.some(
        ({ subsidiaryId, productIdPosA, productCodePosB, extId }) =>
          subsidiaryId === own('subsidiaryId') &&
          [productIdPosA, productCodePosB, extId].includes(body.externalId),
      );
      if (!isNamed) continue;
      const stock = sku.stocks.find(({ subsidiaryId }) => subsidiaryId === own('subsidiaryId'));
      return stock === undefined ? undefined : Reflect.get(stock, field);
    }
  }
  return undefined;
}
