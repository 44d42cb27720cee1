import type { FastifyInstance } from 'fastify';
import * as z from 'zod';
import { ENDPOINTS, type Endpoint } from '../platform/platform.ts';
import type { CatalogProduct, Oversell } from './catalog.ts';
import type { CallCounts, CallJournal, CallRecord, LimitKeeper } from './exchange.ts';
import { FAULT_KINDS, type Fault, type FaultSpec, type Faults } from './faults.ts';
import type { NewOrder, OrderSnapshot } from './orders.ts';
import { ORDER_ENVELOPES, ORDER_RECORDS, type SandboxSettings } from './settings.ts';
import type { Shop } from './shop.ts';
import type { DeadRefreshUse, IssuedPair, TokenOffice } from './tokens.ts';
import type { Delivery, WebhookBehaviour, WebhookConfig } from './webhook.ts';

export interface SandboxControlOptions {
  settings: SandboxSettings;
  tokens: TokenOffice;
  limits: LimitKeeper;
  journal: CallJournal;
  faults: Faults;
  shop: Shop;
}

/** What a test, a demo or a person does behind the platform's back. None of it is subject to limits or faults. */
export class SandboxControl {
  readonly #options: SandboxControlOptions;

  constructor(options: SandboxControlOptions) {
    this.#options = options;
  }

  /** Creates an order and announces it, unless hidden from the webhook; what `wish` leaves out is drawn. */
  createOrder(wish: NewOrder = {}, how: { hidden?: boolean } = {}): OrderSnapshot {
    return this.#options.shop.orders.create(wish, how).snapshot;
  }

  /** Next plausible status, or the one named (any text). Undefined: the order is at its end. */
  advanceOrder(orderId: string, status?: string): OrderSnapshot | undefined {
    return this.#options.shop.orders.advance(orderId, status)?.snapshot;
  }

  /** Changes fields without a notification: only a poll can see it. */
  changeOrder(orderId: string, patch: Partial<OrderSnapshot>): OrderSnapshot {
    return this.#options.shop.orders.change(orderId, patch).snapshot;
  }

  /** Sends the notification of an order as it is now once more. */
  announceOrder(orderId: string): void {
    const { orders, sender } = this.#options.shop;
    sender.announce(orders.get(orderId).snapshot);
  }

  /** From now on no notification of this order leaves. */
  hideOrder(orderId: string): void {
    this.#options.shop.sender.hide(orderId);
  }

  /** In order of creation. */
  orders(): OrderSnapshot[] {
    return this.#options.shop.orders.all().map((order) => order.snapshot);
  }

  order(orderId: string): OrderSnapshot | undefined {
    const { orders } = this.#options.shop;
    return orders.has(orderId) ? orders.get(orderId).snapshot : undefined;
  }

  products(): CatalogProduct[] {
    return this.#options.shop.catalog.products();
  }

  putProduct(product: CatalogProduct): void {
    this.#options.shop.catalog.put(product);
  }

  removeProduct(productId: string): void {
    this.#options.shop.catalog.remove(productId);
  }

  /** Quantity of a stock entry; undefined when there is none. */
  stockOf(sku: number, subsidiaryId: string): number | undefined {
    const found = this.#options.shop.catalog.findSku(sku);
    return found?.sku.stocks.find((stock) => stock.subsidiaryId === subsidiaryId)?.qty;
  }

  /** Orders that took more than there was. */
  oversells(): readonly Oversell[] {
    return this.#options.shop.catalog.oversells();
  }

  /** The webhook with its secret, or null. */
  webhook(): WebhookConfig | null {
    return this.#options.shop.desk.config;
  }

  /** Sets it as the company panel does, without the API. */
  setWebhook(config: WebhookConfig | null): void {
    this.#options.shop.desk.set(config);
  }

  /** How unreliable the webhook sender is; what is left out stays. */
  setWebhookBehaviour(change: Partial<WebhookBehaviour>): void {
    const { sender } = this.#options.shop;
    sender.behaviour = { ...sender.behaviour, ...change };
  }

  deliveries(): readonly Delivery[] {
    return this.#options.shop.sender.deliveries();
  }

  /** Resolves when no notification is under way. */
  settled(): Promise<void> {
    return this.#options.shop.sender.settled();
  }

  /** Switches a fault on; the number switches it off again. */
  setFault(spec: FaultSpec): number {
    return this.#options.faults.add(spec);
  }

  clearFaults(id?: number): void {
    this.#options.faults.clear(id);
  }

  faults(): Fault[] {
    return this.#options.faults.list();
  }

  /** Changes what the document leaves open, from the next call on. */
  configure(change: Partial<SandboxSettings>): void {
    Object.assign(this.#options.settings, change);
  }

  settings(): Readonly<SandboxSettings> {
    return this.#options.settings;
  }

  calls(endpoint?: Endpoint): readonly CallRecord[] {
    return this.#options.journal.calls(endpoint);
  }

  counts(): Partial<Record<Endpoint, CallCounts>> {
    return this.#options.journal.counts();
  }

  /** Calls that broke a limit of the document; faults that only play at it are none. */
  violations(): readonly CallRecord[] {
    return this.#options.journal.violations();
  }

  /** Of this company, or of another one on the same platform. */
  issueTokens(company = this.#options.shop.company): IssuedPair {
    return this.#options.tokens.issue(company);
  }

  /** Uses of refresh tokens that were dead already. */
  deadRefreshUses(): readonly DeadRefreshUse[] {
    return this.#options.tokens.deadUses();
  }

  expireAccessTokens(): void {
    this.#options.tokens.expireAccessTokens();
  }

  revokeRefreshTokens(): void {
    this.#options.tokens.revokeRefreshTokens();
  }

  /** Ends every block of a token. */
  unblock(): void {
    this.#options.limits.unblockAll();
  }
}

const chance = z.number().min(0).max(1);
const ms = z.number().min(0);

/** Bodies of the control routes. */
export const faultBody = z.strictObject({
  kind: z.enum(FAULT_KINDS),
  endpoint: z.enum(ENDPOINTS).exactOptional(),
  times: z.int().min(1).exactOptional(),
  skip: z.int().min(0).exactOptional(),
  probability: chance.exactOptional(),
  when: z.enum(['before', 'after']).exactOptional(),
  status: z.int().min(400).max(599).exactOptional(),
  delayMs: ms.exactOptional(),
  retryAfter: z.string().nullable().exactOptional(),
  poison: z.array(z.union([z.string(), z.number()])).exactOptional(),
});

export const orderBody = z.strictObject({
  subsidiaryId: z.string().exactOptional(),
  status: z.string().exactOptional(),
  deliveryType: z.enum(['delivery', 'pickup']).exactOptional(),
  isScheduled: z.boolean().exactOptional(),
  items: z
    .array(z.strictObject({ sku: z.number(), qty: z.number(), withModifier: z.boolean().exactOptional() }))
    .exactOptional(),
  /** No notification of it ever leaves. */
  hidden: z.boolean().exactOptional(),
});

export const behaviourBody = z.strictObject({
  drop: chance.exactOptional(),
  duplicate: chance.exactOptional(),
  reorder: chance.exactOptional(),
  reorderMs: ms.exactOptional(),
  delay: chance.exactOptional(),
  delayMs: z.tuple([ms, ms]).exactOptional(),
});

export const settingsBody = z.strictObject({
  shape: z
    .strictObject({
      envelope: z.enum(ORDER_ENVELOPES),
      record: z.enum(ORDER_RECORDS),
      pageSize: z.int().min(1).nullable(),
    })
    .exactOptional(),
  retryAfter: z.enum(['seconds', 'date', 'absent']).exactOptional(),
  slackMs: ms.exactOptional(),
  blockMs: ms.exactOptional(),
  clockSkewMs: z.number().exactOptional(),
  latencyMs: z.tuple([ms, ms]).exactOptional(),
  maxPageSize: z.int().min(1).nullable().exactOptional(),
  webhookReadPath: z.string().nullable().exactOptional(),
  webhookReadMethod: z.string().exactOptional(),
  webhookFlagName: z.string().exactOptional(),
  externalPos: z.boolean().exactOptional(),
  refusalStatus: z.int().exactOptional(),
  validationStatus: z.int().exactOptional(),
  webhookRetry: z.strictObject({ delaysMs: z.array(ms) }).exactOptional(),
  webhookTimeoutMs: ms.exactOptional(),
  reuseRevokes: z.boolean().exactOptional(),
});

/** `status` left out: a plausible next one. */
export const advanceBody = z.strictObject({ status: z.string().exactOptional() });

export const webhookBody = z
  .strictObject({
    callbackUrl: z.url({ protocol: /^https?$/ }),
    secret: z.string().default(''),
    active: z.boolean().default(true),
  })
  .nullable();

interface Asked {
  body: unknown;
  id: string;
  query: Record<string, string | undefined>;
}

interface ControlRoute {
  method: 'GET' | 'POST' | 'PUT' | 'DELETE';
  path: string;
  does: string;
  act: (control: SandboxControl, asked: Asked) => unknown;
}

const PREFIX = '/_sandbox';
const endpointQuery = z.enum(ENDPOINTS).optional();

const ROUTES: readonly ControlRoute[] = [
  {
    method: 'POST',
    path: '/tokens',
    does: 'Issue a fresh token pair; ?company= names another company',
    act: (c, { query }) => c.issueTokens(query.company),
  },
  {
    method: 'POST',
    path: '/tokens/expire',
    does: 'End all access tokens now',
    act: (c) => c.expireAccessTokens(),
  },
  {
    method: 'POST',
    path: '/tokens/revoke',
    does: 'Revoke all refresh tokens',
    act: (c) => c.revokeRefreshTokens(),
  },
  { method: 'POST', path: '/tokens/unblock', does: 'End every block after a 403', act: (c) => c.unblock() },
  {
    method: 'GET',
    path: '/tokens/dead-uses',
    does: 'Uses of dead refresh tokens',
    act: (c) => c.deadRefreshUses(),
  },
  { method: 'GET', path: '/orders', does: 'All orders', act: (c) => c.orders() },
  {
    method: 'POST',
    path: '/orders',
    does: 'Create an order; the body may say what it is like',
    act: createOrder,
  },
  { method: 'GET', path: '/orders/:id', does: 'One order', act: oneOrder },
  { method: 'PUT', path: '/orders/:id', does: 'Change fields, no notification', act: changeOrder },
  { method: 'POST', path: '/orders/:id/advance', does: 'Next status, or {"status": …}', act: advanceOrder },
  {
    method: 'POST',
    path: '/orders/:id/announce',
    does: 'Notify again',
    act: (c, { id }) => c.announceOrder(id),
  },
  {
    method: 'POST',
    path: '/orders/:id/hide',
    does: 'Never notify of it',
    act: (c, { id }) => c.hideOrder(id),
  },
  { method: 'GET', path: '/products', does: 'The catalogue', act: (c) => c.products() },
  {
    method: 'GET',
    path: '/oversells',
    does: 'Orders that took more than there was',
    act: (c) => c.oversells(),
  },
  { method: 'GET', path: '/webhook', does: 'The webhook', act: (c) => shownWebhook(c) },
  {
    method: 'PUT',
    path: '/webhook',
    does: 'Set the webhook as the panel does, or null',
    act: (c, { body }) => {
      c.setWebhook(webhookBody.parse(body));
      return shownWebhook(c);
    },
  },
  {
    method: 'PUT',
    path: '/webhook/behaviour',
    does: 'Chances of drop, duplicate, reorder, delay',
    act: (c, { body }) => c.setWebhookBehaviour(behaviourBody.parse(body)),
  },
  { method: 'GET', path: '/deliveries', does: 'Notifications and their fate', act: (c) => c.deliveries() },
  { method: 'GET', path: '/faults', does: 'Faults that are switched on', act: (c) => c.faults() },
  {
    method: 'POST',
    path: '/faults',
    does: `Switch a fault on: {"kind": …}, with a kind of ${FAULT_KINDS.join(', ')}`,
    act: (c, { body }) => ({ id: c.setFault(faultBody.parse(body)) }),
  },
  { method: 'DELETE', path: '/faults', does: 'Switch all faults off', act: (c) => c.clearFaults() },
  {
    method: 'DELETE',
    path: '/faults/:id',
    does: 'Switch one off',
    act: (c, { id }) => c.clearFaults(Number(id)),
  },
  { method: 'GET', path: '/settings', does: 'What the document leaves open', act: (c) => c.settings() },
  {
    method: 'PUT',
    path: '/settings',
    does: 'Change some of it',
    act: (c, { body }) => {
      c.configure(settingsBody.parse(body));
      return c.settings();
    },
  },
  {
    method: 'GET',
    path: '/calls',
    does: 'Every call; ?endpoint= picks one',
    act: (c, { query }) => c.calls(endpointQuery.parse(query.endpoint)),
  },
  { method: 'GET', path: '/counts', does: 'Calls, 429s and 403s by endpoint', act: (c) => c.counts() },
  { method: 'GET', path: '/violations', does: 'Calls that broke a limit', act: (c) => c.violations() },
];

/** The control surface for people and programs beside the sandbox: JSON under `/_sandbox`, never limited. */
export function addControlRoutes(server: FastifyInstance, control: SandboxControl): void {
  const list = ROUTES.map(({ method, path, does }) => ({ method, path: PREFIX + path, does }));
  server.get(PREFIX, async () => list);
  for (const { method, path, act } of ROUTES) {
    server.route<{ Params: { id?: string }; Querystring: Record<string, string | undefined> }>({
      method,
      url: PREFIX + path,
      handler: async (request, reply) => {
        try {
          const asked = { body: jsonOf(request.body), id: request.params.id ?? '', query: request.query };
          return await reply.send(act(control, asked) ?? { done: true });
        } catch (error) {
          return reply.code(statusOf(error)).send({ error: messageOf(error) });
        }
      },
    });
  }
}

function createOrder(control: SandboxControl, { body }: Asked): unknown {
  const { hidden, ...wish } = orderBody.parse(body ?? {});
  return control.createOrder(wish, { hidden: hidden === true });
}

function oneOrder(control: SandboxControl, { id }: Asked): unknown {
  const order = control.order(id);
  if (!order) throw new RangeError(`There is no order ${id}`);
  return order;
}

function advanceOrder(control: SandboxControl, { id, body }: Asked): unknown {
  return control.advanceOrder(id, advanceBody.parse(body ?? {}).status) ?? { done: false };
}

function changeOrder(control: SandboxControl, { id, body }: Asked): unknown {
  return control.changeOrder(id, z.record(z.string(), z.unknown()).parse(body));
}

function shownWebhook(control: SandboxControl): unknown {
  const config = control.webhook();
  return {
    callbackUrl: config?.callbackUrl ?? null,
    active: config?.active ?? false,
    secret: config?.secret ?? '',
  };
}

function jsonOf(body: unknown): unknown {
  return Buffer.isBuffer(body) && body.length > 0 ? JSON.parse(body.toString()) : undefined;
}

function statusOf(error: unknown): number {
  if (error instanceof z.ZodError || error instanceof SyntaxError) return 400;
  return error instanceof RangeError ? 404 : 500;
}

function messageOf(error: unknown): string {
  if (error instanceof z.ZodError) return z.prettifyError(error);
  return error instanceof Error ? error.message : String(error);
}
