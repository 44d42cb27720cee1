import type { ServerResponse } from 'node:http';
import type { FastifyReply, FastifyRequest } from 'fastify';
import { z } from 'zod';
import { TillsyncError, whenFree } from '../core/errors.ts';
import type { Log } from '../core/log.ts';
import type { Clock } from '../core/time.ts';
import { type MirroredOrder, ORDER_ID_LENGTH_MAX, type OrderEvent } from '../orders/order.ts';
import { type ApiFamily, amount, flag, isoTime, limitOf, type RouteDoc, readAs, text } from './api.ts';

const modifier = z.object({
  name: text,
  shortName: text,
  description: text.describe('JSON text of the array as sent'),
  optionId: text,
  optionExternalId: text,
  optionName: text,
  optionPrice: amount,
  quantity: z.number().nullable(),
});

const item = z.object({
  productExternalId: text.describe('null when the item has modifiers'),
  productName: text,
  quantity: amount,
  comment: text,
  unitPrice: amount.describe('Final unit price with discounts'),
  baseUnitPrice: amount.describe('List unit price without discounts'),
  productPrice: amount.describe('Final item price including additionals'),
  productBasePrice: amount.describe('List item price including additionals'),
  modifiers: z.array(modifier),
});

/** An order as the mirror has it now; null where nothing is known. */
export const order = z.object({
  orderId: z.string(),
  seq: z.number().int().describe('Of its newest event'),
  updatedAt: isoTime,
  code: z.number().nullable().describe('Order number, sequential per company'),
  status: text,
  storeExternalId: text,
  websiteId: text,
  name: text,
  createdAt: text.describe('ISO 8601 in UTC where the sent text could be read as a time; so for all times'),
  deliveryType: text.describe('delivery or pickup'),
  amountToPay: amount.describe('Total to pay, including shipping'),
  amount: amount.describe('Products without shipping'),
  deliveryFee: amount,
  couponDiscount: amount,
  deliveryTime: text,
  isScheduled: flag,
  scheduledFor: text,
  addressLat: z.number().nullable(),
  addressLng: z.number().nullable(),
  addressAddress: text,
  addressStreetNumber: text,
  addressStreetAddress: text,
  addressCountry: text,
  addressState: text,
  addressCity: text,
  addressZipCode: text,
  addressPhoneNumber: text,
  addressDetails: text,
  customerFirstName: text,
  customerLastName: text,
  customerEmail: text,
  customerPhoneNumber: text,
  items: z.array(item),
}) satisfies z.ZodType<MirroredOrder>;

/** One line of the change feed, with the order as it is now. */
export const feedEvent = z.object({
  seq: z.number().int().describe('Never reused, strictly rising'),
  orderId: z.string(),
  status: text.describe('Status at this event; `order.status` may be newer'),
  previousStatus: text,
  source: z.enum(['webhook', 'poll']),
  observedAt: isoTime,
  order: order.nullable().describe('null when the order is no longer kept'),
});

export const feedPage = z.object({
  events: z.array(feedEvent).describe('Oldest first'),
  next: z.number().int().describe('Pass it as `after` for what follows'),
  newest: z.number().int().describe('Newest seq there is'),
  trimmedTo: z
    .number()
    .int()
    .describe(
      'Up to this seq earlier events of orders that ended long ago are deleted; 0: none is. A reader from before it ' +
        'has missed steps, and no order: the newest event of each order that is kept is always there',
    ),
});

export const feedQuery = z.strictObject({
  after: z
    .union([z.literal('newest'), z.coerce.number().int().min(0)])
    .default(0)
    .describe('Only events with a higher seq; `newest`: only what comes from now on'),
  limit: limitOf(100, 500),
});

export const orderPath = z.strictObject({ orderId: z.string().min(1) });

export const orderAnswer = z.object({
  order,
  payload: z.unknown().describe('As received from the platform'),
});

const orderId = z
  .string()
  .trim()
  .min(1)
  .max(ORDER_ID_LENGTH_MAX)
  .refine((id) => id.isWellFormed(), { error: 'is not valid text' });

export const ACKS_MAX = 10_000;

/** One order that the POS has booked. */
export const ackItem = z.union([orderId, z.strictObject({ orderId })]);
export const ACK_ITEM = `an order id of 1 to ${ORDER_ID_LENGTH_MAX} characters, or {"orderId": …} with one`;
const ackText = `Orders that the POS has booked, 1 to ${ACKS_MAX}, each checked by itself`;
/** As it is documented. */
export const ackRequest = z.array(ackItem).min(1).max(ACKS_MAX).describe(ackText);
/** As it is read. */
export const ackItems = z
  .array(z.unknown(), { error: 'A list of order ids is needed' })
  .refine((ids) => ids.length >= 1 && ids.length <= ACKS_MAX, { error: `1 to ${ACKS_MAX} orders are taken` });

export const ackAnswer = z.object({
  results: z
    .array(
      z.object({
        index: z.number().int().describe('Of the item, from 0'),
        orderId: z.string().optional().describe('Not there when it was rejected'),
        state: z
          .enum(['new', 'known', 'unheard', 'rejected'])
          .describe(
            '`known`: acknowledged before; `unheard`: noted, though the mirror has no such order yet; `rejected`: not taken',
          ),
        message: z.string().optional().describe('Why it was rejected'),
      }),
    )
    .describe('One for each, in order'),
  rejected: z.number().int(),
});

/** What the feed reads of the mirror; each a short read that may throw `storage-…`. */
export interface OrderSource {
  /** The change feed after `seq`, oldest first. */
  eventsAfter(seq: number, limit: number): OrderEvent[];
  newestSeq(): number;
  /** Up to this seq events were deleted for their age, never the newest of an order; 0: none. */
  trimmedTo(): number;
  order(orderId: string): MirroredOrder | undefined;
  /** JSON text as received. */
  orderPayload(orderId: string): string | undefined;
}

export interface FeedEvent extends OrderEvent {
  /** As it is now; null when it is no longer kept. */
  order: MirroredOrder | null;
}

/** Events after `seq`, each with its order. */
export function readFeed(source: OrderSource, seq: number, limit: number): FeedEvent[] {
  const orders = new Map<string, MirroredOrder | null>();
  return source.eventsAfter(seq, limit).map((event) => {
    const { orderId } = event;
    const order = orders.get(orderId) ?? source.order(orderId) ?? null;
    orders.set(orderId, order);
    return { ...event, order };
  });
}

/** What one page may hold; a single event is given whatever its size. */
const PAGE_CHARACTERS_MAX = 8 * 1024 * 1024;

/** Up to `limit` events after `seq` as JSON texts joined by commas, and where the next page begins. */
export function feedText(source: OrderSource, seq: number, limit: number): { events: string; next: number } {
  const texts: string[] = [];
  let [characters, next] = [0, seq];
  while (texts.length < limit && characters < PAGE_CHARACTERS_MAX) {
    // Orders with all their items are large, so that few are held at once.
    const some = readFeed(source, next, Math.min(limit - texts.length, PART));
    for (const event of some) {
      const text = JSON.stringify(event);
      if (texts.length > 0 && characters + text.length > PAGE_CHARACTERS_MAX)
        return { events: texts.join(), next };
      texts.push(text);
      characters += text.length;
      next = event.seq;
    }
    if (some.length < PART) break;
  }
  return { events: texts.join(), next };
}

const PART = 25;

/**
 * Throws `feed-restarted` when a reader is ahead of the feed: the mirror was made anew, so waiting for higher numbers
 * would miss everything until then.
 */
export function refuseAheadOf(source: OrderSource, after: number): number {
  const newest = source.newestSeq();
  if (after <= newest) return newest;
  throw new TillsyncError(
    'feed-restarted',
    `The newest event is ${newest}, so nothing can come after ${after}.`,
    {
      hint: 'The mirror was made anew. Start again with after=0; orders you know come again.',
    },
  );
}

/** Another process may write the mirror, of which nobody here is told. */
const LOOK_EVERY_MS = 1_000;
const HEARTBEAT_MS = 15_000;
/** A reader that takes nothing for so long is cut off; it comes back with its Last-Event-ID. */
const STALL_MS = 60_000;
const RETRY_MS = 2_000;
/** Events read at once: what one slow reader can make us hold. */
const PAGE = 25;

export interface EventStreamOptions {
  source: OrderSource;
  clock: Clock;
  /** Told when the mirror may have changed; returns what ends it. */
  onChange: (listener: () => void) => () => void;
  response: ServerResponse;
  /** Events with a higher seq come. */
  after: number;
  /** Ends the stream, its reader may come back. */
  signal: AbortSignal;
}

/**
 * Writes the change feed to one reader until it leaves or the signal: no event twice, none left out. Reads on
 * only when the reader has taken what was written. Ends when the feed begins anew under it.
 */
export async function streamEvents(options: EventStreamOptions): Promise<void> {
  const { source, clock, response } = options;
  const reader = new StreamReader(options);
  try {
    await reader.write(`retry: ${RETRY_MS}\n\n`);
    let { after } = options;
    let quietSinceMs = clock.monotonicMs();
    while (!reader.ended) {
      reader.arm();
      const events = await whenFree(clock, () => readFeed(source, after, PAGE));
      if (events.length > 0) {
        after = events.at(-1)?.seq ?? after;
        await reader.write(events.map(eventText).join(''));
        quietSinceMs = clock.monotonicMs();
        continue;
      }
      if (source.newestSeq() < after) break;
      if (clock.monotonicMs() - quietSinceMs >= HEARTBEAT_MS) {
        await reader.write(': still here\n\n');
        quietSinceMs = clock.monotonicMs();
      }
      await reader.wait(LOOK_EVERY_MS);
    }
  } finally {
    reader.release();
    response.end();
  }
}

function eventText(event: FeedEvent): string {
  return `id: ${event.seq}\nevent: order\ndata: ${JSON.stringify(event)}\n\n`;
}

/** One reader and the one wait of its stream, ended by a change, by room to write, or by the end. */
class StreamReader {
  readonly #options: EventStreamOptions;
  readonly #unsubscribe: () => void;
  #woken = new AbortController();
  #left = false;

  constructor(options: EventStreamOptions) {
    this.#options = options;
    this.#unsubscribe = options.onChange(this.#wake);
    options.signal.addEventListener('abort', this.#wake);
    options.response.on('drain', this.#wake).on('close', this.#leave).on('error', this.#leave);
  }

  get ended(): boolean {
    return this.#left || this.#options.signal.aborted;
  }

  /** To be called before looking for something to do: what comes from now on ends the next wait. */
  arm(): void {
    if (this.#woken.signal.aborted) this.#woken = new AbortController();
  }

  wait(ms: number): Promise<void> {
    return this.ended ? Promise.resolve() : this.#options.clock.sleep(ms, this.#woken.signal);
  }

  /** Resolves when the reader has room for more; one that stalls is cut off. */
  async write(text: string): Promise<void> {
    const { response, clock } = this.#options;
    if (this.ended || response.write(text)) return;
    const endMs = clock.monotonicMs() + STALL_MS;
    for (;;) {
      this.arm();
      if (this.ended || !response.writableNeedDrain) return;
      const restMs = endMs - clock.monotonicMs();
      if (restMs <= 0) response.destroy();
      await this.wait(restMs);
    }
  }

  release(): void {
    this.#unsubscribe();
    this.#options.signal.removeEventListener('abort', this.#wake);
    this.#options.response.off('drain', this.#wake);
  }

  readonly #wake = (): void => {
    this.#woken.abort();
  };

  readonly #leave = (): void => {
    this.#left = true;
    this.#woken.abort();
  };
}

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

const orderDocs = (): readonly RouteDoc[] => [
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
    docs: orderDocs,
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

export interface AckResult {
  orderId: string;
  /** `new`: acknowledged now; `known`: it was before; `unheard`: noted, the mirror has no such order yet. */
  state: 'new' | 'known' | 'unheard';
}

export interface AckRoutesOptions {
  /** Records, durably when it resolves, that the POS has booked these orders; one answer for each, in order. */
  acknowledge: (orderIds: readonly string[]) => Promise<readonly AckResult[]>;
}

const ackDocs = (): readonly RouteDoc[] => [
  {
    method: 'post',
    path: '/orders/ack',
    operationId: 'acknowledgeOrders',
    summary: 'Tell that the POS has booked orders, so that its stock counts include them',
    body: ackRequest,
    answers: { 200: ackAnswer, 207: ackAnswer },
  },
];

/** `POST /orders/ack`. */
export function ackRoutes({ acknowledge }: AckRoutesOptions): ApiFamily {
  return {
    docs: ackDocs,
    plugin: async (app) => {
      app.post('/orders/ack', async (request, reply) => {
        const items = readAs(ackItems, request.body, 'body').map((item) => ackItem.safeParse(item));
        const orderIds = items.flatMap(({ data }) => {
          if (data === undefined) return [];
          return typeof data === 'string' ? data : data.orderId;
        });
        const taken = orderIds.length === 0 ? [] : await acknowledge(orderIds);
        let next = 0;
        const results = items.map(({ error }, index) => {
          if (!error) return { index, ...taken[next++] };
          return { index, state: 'rejected', message: `Allowed: ${ACK_ITEM}.` };
        });
        const rejected = items.length - orderIds.length;
        return reply.code(rejected > 0 ? 207 : 200).send({ results, rejected });
      });
    },
  };
}

/** Tells whoever listens that the mirror may have changed. A hint only: it says nothing of what. */
export class ChangeSignal {
  readonly #listeners = new Set<() => void>();

  notify(): void {
    for (const listener of this.#listeners) listener();
  }

  /** Returns what ends it. */
  readonly subscribe = (listener: () => void): (() => void) => {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  };
}
