import type { FastifyInstance } from 'fastify';
import * as z from 'zod';
import { ENDPOINTS, type Endpoint } from '../platform/platform.ts';
import type { CatalogProduct } from './catalog.ts';
import type { Rules } from './engine.ts';
import { FAULT_KINDS, type FaultSpec, faultSpec } from './faults.ts';
import { type NewOrder, newOrderBody, type OrderSnapshot } from './orders.ts';
import { type SandboxSettings, sandboxSettings } from './settings.ts';
import type { Shop } from './shop.ts';
import { type WebhookBehaviour, type WebhookConfig, webhookBehaviour } from './webhook.ts';

/** Actions of a test, a demo or a person that bypass the API, its limits and its faults. */
export type SandboxControl = ReturnType<typeof sandboxControl>;

export function sandboxControl(settings: SandboxSettings, rules: Rules, shop: Shop) {
  const { tokens, limits, journal, faults } = rules;
  const { orders, webhook, catalog } = shop;
  return {
    /**
     * Creates an order and announces it, unless it is hidden from the webhook. Fields that `request` leaves out are
     * drawn.
     */
    createOrder: (request: NewOrder = {}, how: { hidden?: boolean } = {}) =>
      orders.create(request, how).snapshot,
    /**
     * Moves the order to the given status (any text), or else to a plausible next one. Returns undefined if no status
     * is given and the order has ended.
     */
    advanceOrder: (orderId: string, status?: string) => orders.advance(orderId, status)?.snapshot,
    /** Changes fields without a notification, so that only a poll shows the change. */
    changeOrder: (orderId: string, patch: Partial<OrderSnapshot>) => orders.change(orderId, patch).snapshot,
    /** Sends the notification of an order's present state once more. */
    announceOrder: (orderId: string) => webhook.announce(orders.get(orderId).snapshot),
    /** Stops all notifications of this order. */
    hideOrder: (orderId: string) => webhook.hide(orderId),
    /** Returns all orders, in order of creation. */
    orders: () => orders.all().map((order) => order.snapshot),
    order: (orderId: string) => (orders.has(orderId) ? orders.get(orderId).snapshot : undefined),
    products: () => catalog.products(),
    putProduct: (product: CatalogProduct) => catalog.put(product),
    removeProduct: (productId: string) => catalog.remove(productId),
    /** Returns the quantity of a stock; undefined if there is none. */
    stockOf: (sku: number, subsidiaryId: string) => catalog.stockOf(sku, subsidiaryId)?.qty,
    /** Returns orders that took more than the stock had. */
    oversells: () => catalog.oversells(),
    /** Returns the webhook with its secret, or null. */
    webhook: () => webhook.config,
    /** Sets the webhook as the company's panel does, without the API. */
    setWebhook(config: WebhookConfig | null) {
      webhook.config = config;
    },
    /** Sets how unreliable the webhook is. Fields that are left out keep their values. */
    setWebhookBehaviour(change: Partial<WebhookBehaviour>) {
      webhook.behaviour = { ...webhook.behaviour, ...change };
    },
    deliveries: () => webhook.deliveries(),
    /** Resolves when no notification is being sent. */
    settled: () => webhook.settled(),
    /** Switches a fault on. Returns the id with which `clearFaults` switches it off again. */
    setFault: (spec: FaultSpec) => faults.add(spec),
    clearFaults: (id?: number) => faults.clear(id),
    faults: () => faults.list(),
    /** Changes settings that the document leaves open, from the next call on. */
    configure: (change: Partial<SandboxSettings>) => void Object.assign(settings, change),
    settings: (): Readonly<SandboxSettings> => settings,
    calls: (endpoint?: Endpoint) => journal.calls(endpoint),
    counts: () => journal.counts(),
    /** Returns calls that broke a limit of the document; faults that simulate this do not count. */
    violations: () => journal.violations(),
    /** Issues tokens of this company, or of another company on the same platform. */
    issueTokens: (company = shop.company) => tokens.issue(company),
    /** Returns uses of refresh tokens that were dead already. */
    deadRefreshUses: () => tokens.deadUses(),
    expireAccessTokens: () => tokens.expireAccessTokens(),
    revokeRefreshTokens: () => tokens.revokeRefreshTokens(),
    /** Ends the blocks of all tokens. */
    unblock: () => limits.unblockAll(),
  };
}

/**
 * Bodies of the control routes. Fields are `exactOptional`, because a field of JSON may be missing but never undefined.
 * With `hidden`, no notification of the order is ever sent.
 */
const orderBody = newOrderBody.extend({ hidden: z.boolean().exactOptional() });
const settingsBody = sandboxSettings.omit({ timeZone: true }).partial();

const behaviourBody = webhookBehaviour.partial();
const fieldsBody = z.record(z.string(), z.unknown()).describe('Fields of the order as GET shows it');

/** Moves an order to `status`, or without it to a plausible next status. */
const advanceBody = z.strictObject({ status: z.string().exactOptional() });

const webhookBody = z
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

type ControlRoute = [
  method: 'GET' | 'POST' | 'PUT' | 'DELETE',
  path: string,
  does: string,
  act: (control: SandboxControl, asked: Asked) => unknown,
  /** Body of the request; left out if the route takes none. */
  body?: z.ZodType,
];

const PREFIX = '/_sandbox';
const endpointQuery = z.enum(ENDPOINTS).optional();
const kindOfFault = `with a kind of ${FAULT_KINDS.join(', ')}`;

const ROUTES: readonly ControlRoute[] = [
  ['POST', '/tokens', 'Issue a fresh token pair; ?company= names another company', issueTokens],
  ['POST', '/tokens/expire', 'End all access tokens now', (c) => c.expireAccessTokens()],
  ['POST', '/tokens/revoke', 'Revoke all refresh tokens', (c) => c.revokeRefreshTokens()],
  ['POST', '/tokens/unblock', 'End every block after a 403', (c) => c.unblock()],
  ['GET', '/tokens/dead-uses', 'Uses of dead refresh tokens', (c) => c.deadRefreshUses()],
  ['GET', '/orders', 'All orders', (c) => c.orders()],
  ['POST', '/orders', 'Create an order; the body may say what it is like', createOrder, orderBody],
  ['GET', '/orders/:id', 'One order', oneOrder],
  ['PUT', '/orders/:id', 'Change fields, no notification', changeOrder, fieldsBody],
  ['POST', '/orders/:id/advance', 'Next status, or {"status": …}', advanceOrder, advanceBody],
  ['POST', '/orders/:id/announce', 'Notify again', (c, { id }) => c.announceOrder(id)],
  ['POST', '/orders/:id/hide', 'Never notify of it', (c, { id }) => c.hideOrder(id)],
  ['GET', '/products', 'The catalogue', (c) => c.products()],
  ['GET', '/oversells', 'Orders that took more than there was', (c) => c.oversells()],
  ['GET', '/webhook', 'The webhook', shownWebhook],
  ['PUT', '/webhook', 'Set the webhook as the panel does, or null', setWebhook, webhookBody],
  ['PUT', '/webhook/behaviour', 'Chances of drop, duplicate, reorder, delay', setBehaviour, behaviourBody],
  ['GET', '/deliveries', 'Notifications and their fate', (c) => c.deliveries()],
  ['GET', '/faults', 'Faults that are switched on', (c) => c.faults()],
  ['POST', '/faults', `Switch a fault on: {"kind": …}, ${kindOfFault}`, setFault, faultSpec],
  ['DELETE', '/faults', 'Switch all faults off', (c) => c.clearFaults()],
  ['DELETE', '/faults/:id', 'Switch one off', (c, { id }) => c.clearFaults(Number(id))],
  ['GET', '/settings', 'What the document leaves open', (c) => c.settings()],
  ['PUT', '/settings', 'Change some of it', configure, settingsBody],
  ['GET', '/calls', 'Every call; ?endpoint= picks one', calls],
  ['GET', '/counts', 'Calls, 429s and 403s by endpoint', (c) => c.counts()],
  ['GET', '/violations', 'Calls that broke a limit', (c) => c.violations()],
];

/** Returns the JSON Schema of a body, without the dialect. */
function schemaOf(body: z.ZodType): unknown {
  const { $schema: _dialect, ...schema } = z.toJSONSchema(body, { io: 'input', unrepresentable: 'any' });
  return schema;
}

/** Adds control routes for people and programs: JSON under `/_sandbox`, never limited. */
export function addControlRoutes(server: FastifyInstance, control: SandboxControl): void {
  const list = ROUTES.map(([method, path, does, , body]) => ({
    ...{ method, path: PREFIX + path, does },
    ...(body && { body: schemaOf(body) }),
  }));
  server.get(PREFIX, async () => list);
  for (const [method, path, , act] of ROUTES) {
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
  const { hidden, ...request } = orderBody.parse(body ?? {});
  return control.createOrder(request, { hidden: hidden === true });
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
  return control.changeOrder(id, fieldsBody.parse(body));
}

function issueTokens(control: SandboxControl, { query }: Asked): unknown {
  return control.issueTokens(query.company);
}

function setFault(control: SandboxControl, { body }: Asked): unknown {
  return { id: control.setFault(faultSpec.parse(body)) };
}

function setBehaviour(control: SandboxControl, { body }: Asked): void {
  control.setWebhookBehaviour(behaviourBody.parse(body) as Partial<WebhookBehaviour>);
}

function configure(control: SandboxControl, { body }: Asked): unknown {
  control.configure(settingsBody.parse(body) as Partial<SandboxSettings>);
  return control.settings();
}

function calls(control: SandboxControl, { query }: Asked): unknown {
  return control.calls(endpointQuery.parse(query.endpoint));
}

function setWebhook(control: SandboxControl, { body }: Asked): unknown {
  control.setWebhook(webhookBody.parse(body));
  return shownWebhook(control);
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
