import type { FastifyReply, FastifyRequest } from 'fastify';
import { whenFree } from '../domain/busy.ts';
import { TillsyncError } from '../domain/errors.ts';
import type { Log } from '../domain/log.ts';
import type { Clock } from '../domain/time/clock.ts';
import { type ApiFamily, type RouteDoc, readAs } from './api-route.ts';
import { streamEvents } from './event-stream.ts';
import { feedText, type OrderSource, refuseAheadOf } from './order-feed.ts';
import { feedPage, feedQuery, orderAnswer, orderPath } from './schemas/orders.ts';

export interface OrderRoutesOptions {
  source: OrderSource;
  /** Told when the mirror may have changed; returns what ends it. */
  onChange: (listener: () => void) => () => void;
  clock: Clock;
  log: Log;
  /** Streams open at once (default 50). */
  streamsMax?: number;
}

const STREAMS_MAX = 50;

const docs = (): readonly RouteDoc[] => [
  {
    method: 'get',
    path: '/orders',
    operationId: 'followOrders',
    summary: 'The change feed: every change of an order, in order and none left out',
    description:
      'One page, shorter than `limit` where its orders are large. With `Accept: text/event-stream` the same as /stream.',
    query: feedQuery,
    answers: { 200: feedPage },
  },
  {
    method: 'get',
    path: '/stream',
    operationId: 'streamOrders',
    summary: 'The change feed as server-sent events',
    description:
      'Goes on until it is closed. Its events are named `order`, have the seq as id and one item of `events` of /orders ' +
      'as data. It resumes after `Last-Event-ID`.',
    query: feedQuery,
    answers: { 200: feedPage },
    streams: true,
  },
  {
    method: 'get',
    path: '/orders/{orderId}',
    operationId: 'getOrder',
    summary: 'One order as the mirror has it, and as it was received',
    params: orderPath,
    answers: { 200: orderAnswer },
  },
];

/** `GET /orders` and `GET /orders/ID`. */
export function orderRoutes(options: OrderRoutesOptions): ApiFamily {
  const { source, clock } = options;
  const closing = new AbortController();
  const streams = new OpenStreams(options, closing.signal);
  return {
    docs,
    plugin: async (app) => {
      app.addHook('preClose', (done) => {
        closing.abort();
        done();
      });
      app.get('/orders', { exposeHeadRoute: false }, async (request, reply) => {
        const query = readAs(feedQuery, request.query, 'query');
        if (wantsStream(request)) return streams.open(request, reply, query.after);
        return whenFree(clock, () => {
          const after = query.after === 'newest' ? source.newestSeq() : query.after;
          const newest = refuseAheadOf(source, after);
          const { events, next } = feedText(source, after, query.limit);
          const rest = { next, newest: Math.max(newest, next), trimmedTo: source.trimmedTo() };
          reply.type('application/json; charset=utf-8');
          return `{"events":[${events}],${JSON.stringify(rest).slice(1)}`;
        });
      });
      app.get('/stream', { exposeHeadRoute: false }, (request, reply) =>
        streams.open(request, reply, readAs(feedQuery, request.query, 'query').after),
      );
      app.get('/orders/:orderId', async (request, reply) => {
        const { orderId } = readAs(orderPath, request.params, 'path');
        const order = await whenFree(clock, () => source.order(orderId));
        if (!order) {
          throw new TillsyncError('not-found', `The mirror has no order ${orderId}.`, {
            hint: 'It comes with the next poll, if the platform has it.',
          });
        }
        // What was received is JSON already.
        const payload = source.orderPayload(orderId) ?? 'null';
        reply.type('application/json; charset=utf-8');
        return `{"order":${JSON.stringify(order)},"payload":${payload}}`;
      });
    },
  };
}

function wantsStream({ headers }: FastifyRequest): boolean {
  return headers.accept?.includes('text/event-stream') ?? false;
}

/** The streams that are open, each of which holds a connection. */
class OpenStreams {
  readonly #options: OrderRoutesOptions;
  readonly #signal: AbortSignal;
  #open = 0;

  constructor(options: OrderRoutesOptions, signal: AbortSignal) {
    this.#options = options;
    this.#signal = signal;
  }

  async open(request: FastifyRequest, reply: FastifyReply, asked: number | 'newest'): Promise<FastifyReply> {
    const { source, clock, log, onChange, streamsMax = STREAMS_MAX } = this.#options;
    if (this.#open >= streamsMax) {
      throw new TillsyncError('rate-limited', `${streamsMax} streams are open already.`, {
        hint: 'Close those that nobody reads.',
      });
    }
    const after = await whenFree(clock, () => {
      const from = lastEventId(request) ?? asked;
      const newest = refuseAheadOf(source, from === 'newest' ? 0 : from);
      return from === 'newest' ? newest : from;
    });
    reply.hijack();
    const { raw: response } = reply;
    response.writeHead(200, {
      ...(reply.getHeaders() as Record<string, string>),
      'content-type': 'text/event-stream; charset=utf-8',
      'x-accel-buffering': 'no',
      // An ended stream leaves no idle connection for which closing would have to wait.
      connection: 'close',
    });
    this.#open += 1;
    try {
      await streamEvents({ source, clock, onChange, response, after, signal: this.#signal });
    } catch (error) {
      log.warn({ err: error }, 'a stream of orders ended early; its reader comes back');
    } finally {
      this.#open -= 1;
    }
    return reply;
  }
}

/** What a reader that comes back saw last; it knows better than the address it first asked for. */
function lastEventId({ headers }: FastifyRequest): number | undefined {
  const id = headers['last-event-id'];
  return typeof id === 'string' && /^\d{1,15}$/.test(id) ? Number(id) : undefined;
}
