import type { FastifyInstance, FastifyPluginAsync, FastifyReply, FastifyRequest } from 'fastify';
import * as z from 'zod';
import type { Services } from '../app/services.ts';
import { TillsyncError } from '../core/errors.ts';
import type { Log } from '../core/log.ts';
import type { Clock } from '../core/time.ts';
import type { Right } from '../db/api-keys.ts';
import type { HookTest } from '../hooks/hook-test.ts';
import type { HookAnswer } from '../hooks/receivers.ts';
import { AccessGate, type AccessOptions, isOfPos, requireRight } from './access.ts';
import { type PartTurn, ReadingPlaces } from './places.ts';
import type { alarmTestResult } from './schemas.ts';
import { JSON_BODY_MAX_BYTES } from './server.ts';

export interface LocalApiOptions extends AccessOptions {
  services: Pick<
    Services,
    'config' | 'state' | 'mirror' | 'platform' | 'stores' | 'outbox' | 'posLife' | 'branches' | 'catalogSweep'
  >;
  /** Notified when this process may have changed the mirror. */
  changes: ChangeSignal;
  /** Sends test messages to those who are told of alarms, and to a hook, as the daemon sends its own. */
  receivers: {
    testAlarms(signal: AbortSignal): Promise<z.output<typeof alarmTestResult>[]>;
    testHook(asked: HookTest, signal: AbortSignal): Promise<HookAnswer>;
  };
  /** Version of tillsync. */
  version: string;
  clock: Clock;
  log: Log;
  /** Largest body with changes, in bytes; 32 MiB if left out. */
  changesMaxBytes?: number;
  /** Maximum number of submissions that are handled at the same time; 8 if left out. */
  handOversMax?: number;
  /** Maximum number of open event streams; 50 if left out. */
  streamsMax?: number;
}

/** Notifies its listeners that the mirror may have changed. It does not say what changed. */
export class ChangeSignal {
  readonly #listeners = new Set<() => void>();

  notify(): void {
    for (const listener of this.#listeners) listener();
  }

  /** Adds a listener. Returns a function that removes it. */
  subscribe(listener: () => void): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }
}

/** A route of the API. Its schemas validate the request, type the answer and document both. */
interface RouteOf<P, Q, B, A> {
  method: 'get' | 'post';
  /** Path below `/v1`, with parameters as `{name}`. */
  path: string;
  operationId: string;
  summary: string;
  description?: string;
  /** Rights of which a named key needs at least one; [] means that no right is needed. */
  may: readonly Right[];
  params?: P;
  query?: Q;
  body?: B;
  /** Content types of a body that the route itself reads, as a stream. */
  bodyTypes?: readonly string[];
  answer: A;
  /** True if the answer may have status 207, which means that some items were rejected. */
  mayBePartial?: boolean;
  /** Statuses with which this route may refuse a request, besides those of all routes. */
  refusals?: readonly (404 | 409 | 429)[];
  /** Statuses of refusals whose body has more than the error, and the schema of that body. */
  refused?: { statuses: readonly number[]; answer: z.ZodType };
  /** `always` if the answer is an event stream, `on-request` if the client may ask for one instead of JSON. */
  streams?: 'always' | 'on-request';
  /** Handles the request. Returns the answer as an object or as JSON text, or the reply if it was sent already. */
  handle(asked: Asked<P, Q, B>): Answer<A> | Promise<Answer<A>>;
}

interface Asked<P, Q, B> {
  params: z.output<P>;
  query: z.output<Q>;
  body: z.output<B>;
  request: FastifyRequest;
  reply: FastifyReply;
  /**
   * Waits for a place among the large answers, which the request holds until its answer has left. Throws
   * `rate-limited`, or `aborted` if the client left.
   */
  takePlace: () => Promise<PartTurn>;
}

type Answer<A> = z.output<A> | string | FastifyReply;

export interface ApiRoute {
  doc: Omit<RouteOf<z.ZodObject, z.ZodObject, z.ZodType, z.ZodType>, 'handle'>;
  serve(app: FastifyInstance, reads: ReadingPlaces): void;
}

export const TAGS = {
  orders: 'Orders of the mirror, their change feed, and the acknowledgements of a POS',
  changes: 'Stock, prices and texts for the platform, and what became of them',
  products: 'The catalogue of the mirror',
  status: 'How tillsync and its branches fare',
  receivers: 'Try who is told: receivers of alarms, and hooks',
  why: 'Time lines that tell why an order or a stock is as it is',
} as const;

/** Returns a signal that is aborted when the connection closes, after the answer or before. */
export function untilClosed({ raw }: FastifyReply): AbortSignal {
  const closed = new AbortController();
  raw.on('close', () => closed.abort());
  return closed.signal;
}

/** Routes that belong together in the documentation. */
export interface ApiFamily {
  /** Heading of the routes in the OpenAPI document. */
  tag: keyof typeof TAGS;
  routes: readonly ApiRoute[];
  /** Prepares the Fastify instance that serves these routes and no others. */
  prepare?(app: FastifyInstance): void;
}

/** The query of a route that takes no parameters. */
const NO_QUERY = z.strictObject({});

export function route<P extends z.ZodObject, Q extends z.ZodObject, B extends z.ZodType, A extends z.ZodType>(
  doc: RouteOf<P, Q, B, A>,
): ApiRoute {
  const { method, path, params, query, body, bodyTypes, streams } = doc;
  return {
    doc,
    serve(app, reads) {
      const options = {
        ...(method === 'get' && { exposeHeadRoute: streams === undefined }),
        onRequest: async (request: FastifyRequest) => requireRight(request, doc.may),
        config: { may: doc.may },
      };
      app[method](path.replace(/\{(\w+)\}/g, ':$1'), options, async (request, reply) => {
        const answer = await doc.handle({
          params: params && readAs(params, request.params, 'path'),
          query: readAs(query ?? NO_QUERY, request.query, 'query'),
          body: body && !bodyTypes ? readAs(body, request.body, 'body') : request.body,
          request,
          reply,
          takePlace: () => reads.take(request, reply.raw),
        } as Asked<P, Q, B>);
        if (typeof answer === 'string') reply.type('application/json; charset=utf-8');
        return answer;
      });
    },
  };
}

/** Parses a value by a schema. Throws `usage` with all faults at once. */
function readAs<T extends z.ZodType>(schema: T, value: unknown, what: string): z.output<T> {
  const result = schema.safeParse(value);
  if (result.success) return result.data;
  const faults = result.error.issues.map(({ path, message }) => {
    const place = path.join('.');
    return place === '' ? message : `${place}: ${message}`;
  });
  throw new TillsyncError('usage', `The ${what} cannot be used. ${faults.join('; ')}.`, {
    hint: 'GET /v1/openapi.json describes what is taken.',
  });
}

/** Returns the error for a request that no route serves: 405 if the path has other methods, else 404. */
function wrongPlace(families: readonly ApiFamily[], { method, url }: FastifyRequest): Error {
  const path = url.split('?', 1)[0] ?? '';
  const docs = families.flatMap(({ routes }) => routes.map(({ doc }) => doc));
  const here = docs.filter((doc) => {
    const pattern = doc.path.replaceAll(/[.]/g, '\\$&').replaceAll(/\{\w+\}/g, '[^/]+');
    return new RegExp(`^/v1${pattern}$`).test(path);
  });
  const allowed = here.flatMap((doc) =>
    doc.method === 'post' ? ['POST'] : doc.streams === undefined ? ['GET', 'HEAD'] : ['GET'],
  );
  if (allowed.length === 0) {
    return new TillsyncError('not-found', `There is nothing at ${method} ${path}.`, {
      hint: 'GET /v1/openapi.json tells what there is.',
    });
  }
  const allow = [...new Set(allowed)].join(', ');
  return Object.assign(new Error(`${path} does not take ${method}. Nothing was done.`), {
    statusCode: 405,
    allow,
  });
}

const ANSWER_HEADERS = {
  'cache-control': 'no-store',
  'x-content-type-options': 'nosniff',
  'cross-origin-resource-policy': 'same-origin',
};

interface ApiOptions extends AccessOptions {
  /** Name of the shop, which the page shows when it asks for the API key; '' if it shows none. */
  shop: string;
  clock: Clock;
  /** Called for each request by which a POS shows that it runs, with the store that it names, or ''. */
  onPos?: ((store: string) => void) | undefined;
  /** Builds the OpenAPI document of these routes. */
  describe: (families: readonly ApiFamily[]) => Promise<object>;
}

/** Serves all paths below `/v1` behind one access check, with the OpenAPI document at `/v1/openapi.json`. */
export function apiPlugin(
  families: readonly ApiFamily[],
  { describe, shop, onPos, clock, ...access }: ApiOptions,
): FastifyPluginAsync {
  const reads = new ReadingPlaces(clock);
  const gate = new AccessGate(access);
  const serve: FastifyPluginAsync = async (app) => {
    app.addHook('onRequest', async (request, reply) => {
      reply.headers(ANSWER_HEADERS);
      gate.check(request);
      const { may = [] } = request.routeOptions.config as { may?: readonly Right[] };
      const { store = '' } = request.query as { store?: unknown };
      if (isOfPos(request, may)) onPos?.(typeof store === 'string' ? store : '');
    });
    // The page reads the shop's name from this header. The name is encoded, because a header may contain only ASCII.
    const challenge = shop === '' ? 'Bearer' : `Bearer realm="${encodeURIComponent(shop)}"`;
    app.addHook('onSend', async (_request, reply) => {
      if (reply.statusCode === 401) reply.header('www-authenticate', challenge);
    });
    acceptJsonOnly(app);
    app.setNotFoundHandler((request, reply) => {
      reply.header('connection', 'close');
      throw wrongPlace(families, request);
    });
    for (const { routes, prepare } of families) {
      await app.register(async (scope) => {
        prepare?.(scope);
        for (const { serve } of routes) serve(scope, reads);
      });
    }
    // The OpenAPI document is built on the first request, because few clients need it and it uses memory.
    let document: Promise<string> | undefined;
    app.get('/openapi.json', async (request, reply) => {
      readAs(NO_QUERY, request.query, 'query');
      document ??= describe(families).then((made) => JSON.stringify(made));
      reply.type('application/json; charset=utf-8');
      return document;
    });
  };
  return async (root) => {
    await root.register(serve, { prefix: '/v1' });
  };
}

/** Accepts only JSON, which web forms of other sites cannot send. A request for an action may have no body. */
function acceptJsonOnly(app: FastifyInstance): void {
  app.removeAllContentTypeParsers();
  app.addContentTypeParser(
    'application/json',
    { parseAs: 'string', bodyLimit: JSON_BODY_MAX_BYTES },
    (_request, text: string, done) => {
      try {
        done(null, text === '' ? undefined : JSON.parse(text.replace(/^\uFEFF/, '')));
      } catch {
        done(new TillsyncError('usage', 'The body is not JSON. Nothing was taken.'));
      }
    },
  );
}
