import { readFileSync } from 'node:fs';
import path from 'node:path';
import Database from 'better-sqlite3';
import { afterAll, beforeAll, expect, it, onTestFinished } from 'vitest';
import { silentLog } from '../../src/core/log.ts';
import { systemClock } from '../../src/core/system-clock.ts';
import { type Daemon, startDaemon } from '../../src/daemon/daemon.ts';
import { commandsAt } from '../cli/invoke.ts';
import { seededRandom } from '../support/fake-clock.ts';
import { limitMs } from '../support/shared-config.ts';
import { openWorkplace, ROOT, SECRET, until, type Workplace } from '../support/workplace.ts';

/**
 * Questions that shops ask support. Each is answered by the documents and at most three commands beside the running
 * daemon.
 */

let place: Workplace;
let daemon: Daemon;

beforeAll(async () => {
  place = await openWorkplace(53);
  daemon = await startDaemon({
    config: place.config,
    secrets: { refreshToken: place.refreshToken, webhookSecrets: [SECRET] },
    clock: systemClock,
    random: seededRandom(3),
    log: silentLog,
    lookEveryMs: 50,
  });
  await until('the catalogue is swept', () => daemon.services.stores.read(({ lookup }) => lookup.isComplete));
});
afterAll(async () => {
  await daemon.stop();
  await place.close();
});

const COMMANDS_MAX = 3;
const headings = (file: string) =>
  [...readFileSync(path.join(ROOT, 'docs', file), 'utf8').matchAll(/^### (.*)$/gm)].map(([, text]) => text);

interface Ticket {
  says: string;
  /** Headings in docs/troubleshooting.md and docs/troubleshooting.es.md. */
  heading: [english: string, spanish: string];
  /** Brings the shop into the ticket's state. Returns the values that the ticket's commands need. */
  bring: () => Promise<Record<string, string | number>>;
  typed: string[];
  /** Matches the output of the last command. */
  cause: RegExp;
}

const today = () => {
  const parts = new Intl.DateTimeFormat('en-CA', { timeZone: place.config.orders.timezone });
  return parts.format(systemClock.nowMs());
};

async function newOrder(): Promise<{ code: number; orderId: string }> {
  const { code, internalOrderId } = place.sandbox.control.createOrder();
  const orderId = String(internalOrderId);
  await until('the order arrived', () => daemon.services.mirror.orders.get(orderId) !== undefined);
  return { code: Number(code), orderId };
}

/** Returns the sku of the n-th product, counted from 0, that has a stock in branch sub-1; 0 if there is none. */
function goods(n: number): number {
  const skus = place.sandbox.control
    .products()
    .flatMap(({ children }) => children)
    .filter(({ stocks }) => stocks.some(({ subsidiaryId }) => subsidiaryId === 'sub-1'))
    .map(({ sku }) => sku);
  return skus[n] ?? 0;
}

const count = (sku: number, qty: number, reference = 'count') =>
  daemon.services.outbox.submit(
    [{ kind: 'stock', change: { sku: String(sku), subsidiaryId: 'sub-1', qty }, reference }],
    'http',
  );
const atPlatform = (sku: number, qty: number) =>
  until('the platform has it', () => place.sandbox.control.stockOf(sku, 'sub-1') === qty);
const isTold = (subject: string, state: string) =>
  until(`${subject} is ${state}`, () =>
    daemon.services.mirror.health
      .freshness()
      .some((flow) => flow.subject === subject && flow.state === state),
  );
const isNoted = (code: string, quietMs?: number) =>
  until(
    `${code} is noted`,
    () => daemon.services.mirror.health.raised().some(({ key }) => key === code),
    quietMs,
  );

const TICKETS: Ticket[] = [
  {
    says: 'Order 71 never arrived.',
    heading: ['One order is missing at the POS', 'Falta un pedido en el POS'],
    bring: async () => ({ code: (await newOrder()).code + 70, day: today() }),
    typed: ['order show {code}', 'sync orders --from {day}'],
    cause: /^Numbers: 1\.$/m,
  },
  {
    says: 'The POS shows an order twice.',
    heading: ['The POS shows an order twice', 'El POS muestra un pedido dos veces'],
    async bring() {
      const { code, orderId } = await newOrder();
      place.sandbox.control.advanceOrder(orderId, 'payment-approved');
      await until(
        'it moved',
        () => daemon.services.mirror.orders.get(orderId)?.status === 'payment-approved',
      );
      return { code };
    },
    typed: ['order list --code {code}', 'order show {code}'],
    cause: /payment-approved +pending +callback[\s\S]*No POS has acknowledged this order/,
  },
  {
    says: 'A product sells though it is sold out.',
    heading: ['A product sells though it is sold out', 'Un producto se vende aunque está agotado'],
    async bring() {
      const sku = goods(0);
      await count(sku, 0);
      await atPlatform(sku, 0);
      const { control } = place.sandbox;
      const product = control.products().find(({ children }) => children.some((each) => each.sku === sku));
      if (!product) throw new Error('no product');
      const child = product.children.find((each) => each.sku === sku);
      const stock = child?.stocks.find(({ subsidiaryId }) => subsidiaryId === 'sub-1');
      if (stock) stock.qty = 500;
      control.putProduct(product);
      return { sku };
    },
    typed: ['product show --sku {sku} --live'],
    cause: /sub-1 +qty +0 +500/,
  },
  {
    says: 'A stock at the platform is lower than the count.',
    heading: [
      'A stock at the platform is lower than the count',
      'Un stock en la plataforma es menor que lo contado',
    ],
    async bring() {
      const sku = goods(1);
      await commandsAt(place).run(['stock', 'safety', String(sku), '3']);
      await count(sku, 8);
      await atPlatform(sku, 5);
      await until('its answer is noted', () => daemon.services.outbox.counts().sending === 0);
      return { sku };
    },
    typed: ['outbox list --state done'],
    cause: /safety stock of 3 is kept back/,
  },
  {
    says: 'The night sent the inventory of another branch.',
    heading: ['Undo a wrong inventory', 'Deshacer un inventario equivocado'],
    async bring() {
      const sku = goods(2);
      await count(sku, 9);
      await atPlatform(sku, 9);
      await count(sku, 2, 'night');
      await atPlatform(sku, 2);
      return {};
    },
    typed: ['audit', 'outbox undo --reference night --dry-run'],
    cause: /qty 2 +qty 9 +handed over/,
  },
  {
    says: 'The platform does not take my change.',
    heading: ['Changes rejected by the platform', 'Cambios rechazados por la plataforma'],
    async bring() {
      const change = { externalId: 'NOPE', qty: 1 };
      await daemon.services.outbox.submit([{ kind: 'stock', change, reference: 'one' }], 'http');
      await isNoted('outbox.rejected');
      return {};
    },
    typed: ['status', 'outbox list --state rejected'],
    cause: /no product with externalId NOPE/,
  },
  {
    says: 'Orders come two minutes late.',
    heading: [
      "tillsync rejects the platform's callbacks. Orders arrive only by polling, up to two minutes late.",
      'tillsync rechaza los avisos de la plataforma. Los pedidos llegan solo por consulta, hasta dos minutos tarde.',
    ],
    async bring() {
      for (let i = 0; i < 3; i++)
        await fetch(daemon.webhookUrl ?? '', {
          method: 'POST',
          body: '{}',
          headers: { 'content-type': 'application/json', 'x-webhook-secret': 'another' },
        });
      await isNoted('webhook.refused');
      return {};
    },
    typed: ['status'],
    cause: /another secret than the one that is agreed \(401\)/,
  },
  {
    says: 'Stock of the POS does not get through.',
    heading: [
      "A program keeps the inbox locked. Changes from the POS don't arrive.",
      'Un programa mantiene bloqueado el buzón. Los cambios del POS no llegan.',
    ],
    async bring() {
      const pos = new Database(path.join(place.storage, 'inbox', 'inbox.db'), { timeout: 5_000 });
      onTestFinished(() => void pos.close());
      pos.exec('BEGIN IMMEDIATE');
      await isNoted('inbox.locked', 60_000);
      return {};
    },
    typed: ['status'],
    cause: new RegExp(`is locked by .*${process.pid}`),
  },
  {
    says: 'No orders come any more.',
    heading: [
      "tillsync can't fetch orders from the platform.",
      'tillsync no puede traer los pedidos de la plataforma.',
    ],
    async bring() {
      const fault = place.sandbox.control.setFault({ kind: 'status', status: 503, endpoint: 'order.all' });
      onTestFinished(() => place.sandbox.control.clearFaults(fault));
      await isTold('orders.poll', 'failing');
      return {};
    },
    typed: ['status'],
    cause: /HTTP 503/,
  },
  {
    says: 'It says 403.',
    heading: ['It says 403', 'Dice 403'],
    async bring() {
      place.sandbox.control.setFault({ kind: 'block', times: 1 });
      await isTold('orders.poll', 'blocked');
      return {};
    },
    typed: ['doctor --only platform'],
    cause: /blocked the token/,
  },
];

it.each(TICKETS)(
  '$says',
  async ({ heading, bring, typed, cause }) => {
    expect(headings('troubleshooting.md')).toContain(heading[0]);
    expect(headings('troubleshooting.es.md')).toContain(heading[1]);
    expect(typed.length).toBeLessThanOrEqual(COMMANDS_MAX);
    const names = await bring();
    let said = '';
    for (const words of typed) {
      const line = words.replaceAll(/\{(\w+)\}/g, (_all, name) => String(names[name]));
      const { stdout, stderr } = await commandsAt(place).run(line.split(' '));
      said = stdout + stderr;
    }
    expect(said).toMatch(cause);
  },
  limitMs(90_000),
);
