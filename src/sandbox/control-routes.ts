import type { FastifyInstance } from 'fastify';
import { z } from 'zod';
import { ENDPOINTS } from '../domain/platform/limits.ts';
import type { SandboxControl } from './control.ts';
import {
  advanceBody,
  behaviourBody,
  faultBody,
  orderBody,
  settingsBody,
  webhookBody,
} from './control-schemas.ts';
import { FAULT_KINDS } from './faults.ts';

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
