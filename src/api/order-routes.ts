import type { ServerResponse } from 'node:http';
import { Readable } from 'node:stream';
import type { FastifyReply, FastifyRequest } from 'fastify';
import type * as z from 'zod';
import { configuredBranches } from '../app/read-only-services.ts';
import { namedBranch } from '../catalog/product.ts';
import { TillsyncError } from '../core/errors.ts';
import { whenFree } from '../core/loop.ts';
import { type Clock, isoUtc, keptFor, zoneCalendar } from '../core/time.ts';
import { type MirroredOrder, withoutContact } from '../orders/merging/mirrored-order.ts';
import type { OrderEvent } from '../orders/merging/order.ts';
import type { Mirror } from '../orders/reading/mirror.ts';
import {
  eventsOfStore,
  ordersToBook,
  readBoard,
  readTrends,
  searchOrders,
} from '../orders/reading/order-queries.ts';
import type { AckResult } from '../outbox/intake/change.ts';
import { maySeeContact, refuseWithdrawnKey } from './access.ts';
import { type ApiFamily, type ApiRoute, type LocalApiOptions, route } from './api.ts';
import { LOOK_EVERY_MS, LongPolls, STREAMS_MAX } from './long-polls.ts';
import { type PartTurn, Places, STALL_MS, shareOf } from './places.ts';
import {
  ACK_ITEM,
  ackAnswer,
  ackRequest,
  boardAnswer,
  boardQuery,
  type feedEvent,
  feedPage,
  feedQuery,
  foundOrders,
  orderAnswer,
  orderPath,
  orderSearch,
  pageQuery,
  toBookPage,
  toBookQuery,
  trendsAnswer,
} from './schemas.ts';

type Feed = { orders: Pick<Mirror['orders'], 'eventsAfter' | 'newestSeq' | 'get'> };

/** Returns an order as the sender of a request may see it. */
type Shown = <O extends MirroredOrder>(order: O) => O;

function shownTo(request: FastifyRequest): Shown {
  return maySeeContact(request) ? (order) => order : withoutContact;
}

/** Returns the events after `seq`, each with its order in its present state. */
function readFeed(mirror: Feed, seq: number, limit: number, shown: Shown): z.output<typeof feedEvent>[] {
  const orders = new Map<string, MirroredOrder | null>();
  return mirror.orders.eventsAfter(seq, limit).map((event) => {
    const { orderId } = event;
    const found = orders.has(orderId) ? undefined : mirror.orders.get(orderId);
    const order = orders.get(orderId) ?? (found ? shown(found) : null);
    orders.set(orderId, order);
    return { ...event, order };
  });
}

/** Size in characters at which a page ends. A single event is returned whatever its size. */
const PAGE_CHARACTERS_MAX = 8 * 1024 * 1024;
/** Size in characters at which a part of a page is sent, before the rest is made. */
const PART_CHARACTERS = 16 * 1024;
/**
 * Maximum number of events per read. It is small, because orders with all items are large and stay in memory for a slow
 * reader.
 */
const PART = 25;

/**
 * Makes a page of the change feed part by part, so that other requests get their turn in between, and nothing is made
 * for a client that does not take what came before.
 */
class FeedPage {
  readonly #mirror: Feed;
  readonly #events: readonly OrderEvent[];
  readonly #shown: Shown;
  #made = 0;
  #characters = 0;
  #next: number;

  /** `events` are all events of the page, and `upTo` is the position after them. */
  constructor(mirror: Feed, { events, upTo }: { events: readonly OrderEvent[]; upTo: number }, shown: Shown) {
    this.#mirror = mirror;
    this.#events = events;
    this.#shown = shown;
    this.#next = upTo;
  }

  get isOver(): boolean {
    return this.#made >= this.#events.length;
  }

  /** Position of the next page, once this one is over. */
  get next(): number {
    return this.#next;
  }

  /** Returns some events more, each with its order in its present state, as JSON texts joined by commas. */
  part(): string {
    const texts: string[] = [];
    let characters = 0;
    for (const event of this.#events.slice(this.#made, this.#made + PART)) {
      const order = this.#mirror.orders.get(event.orderId);
      const text = JSON.stringify({ ...event, order: order ? this.#shown(order) : null });
      const isFirst = this.#made + texts.length === 0;
      if (!isFirst && this.#characters + characters + text.length > PAGE_CHARACTERS_MAX) {
        this.#endBefore(this.#made + texts.length);
        return texts.join();
      }
      texts.push(text);
      characters += text.length;
      if (characters >= PART_CHARACTERS) break;
    }
    // A read that fails is tried again, so what was made counts only now.
    this.#made += texts.length;
    this.#characters += characters;
    return texts.join();
  }

  #endBefore(index: number): void {
    this.#next = this.#events[index - 1]?.seq ?? this.#next;
    this.#made = this.#events.length;
  }
}

/**
 * Returns the newest seq. Throws `feed-restarted` if a reader is ahead of the feed, because then the mirror is new, and
 * the reader would miss all events until the feed reaches `after`.
 */
function refuseAheadOf(mirror: Feed, after: number): number {
  const newest = mirror.orders.newestSeq();
  if (after <= newest) return newest;
  throw new TillsyncError(
    'feed-restarted',
    `The newest event is ${newest}, so nothing can come after ${after}.`,
    {
      hint: 'The mirror was made anew. Start again with after=0; orders you know come again.',
    },
  );
}

const HEARTBEAT_MS = 15_000;
const RETRY_MS = 2_000;

/**
 * Sends the feed to one reader. Between writes, the stream waits for the next change, for room in the socket's buffer,
 * or for the end of the connection or the server.
 */
class EventStream {
  readonly #options: LocalApiOptions;
  readonly #request: FastifyRequest;
  readonly #response: ServerResponse;
  readonly #closing: AbortSignal;
  #woken = new AbortController();
  #left = false;

  constructor(
    options: LocalApiOptions,
    request: FastifyRequest,
    response: ServerResponse,
    closing: AbortSignal,
  ) {
    this.#options = options;
    this.#request = request;
    this.#response = response;
    this.#closing = closing;
  }

  /**
   * Writes each event after `after` exactly once, until the reader disconnects or the server closes. The feed is read
   * again only when the socket has room. Ends if the feed is restarted. Throws `unauthorized` if the reader's key was
   * withdrawn.
   */
  async write(after: number): Promise<void> {
    const { clock, changes, services } = this.#options;
    const shown = shownTo(this.#request);
    const unsubscribe = changes.subscribe(this.#wake);
    this.#closing.addEventListener('abort', this.#wake);
    this.#response.on('drain', this.#wake).on('close', this.#leave).on('error', this.#leave);
    try {
      await this.#send(`retry: ${RETRY_MS}\n\n`);
      let quietSinceMs = clock.monotonicMs();
      while (!this.#ended) {
        this.#arm();
        const from = after;
        const events = await whenFree(clock, () => {
          refuseWithdrawnKey(this.#request);
          return readFeed(services.mirror, from, PART, shown);
        });
        if (events.length > 0) {
          after = events.at(-1)?.seq ?? after;
          const texts = events.map(
            (event) => `id: ${event.seq}\nevent: order\ndata: ${JSON.stringify(event)}\n\n`,
          );
          await this.#send(texts.join(''));
          quietSinceMs = clock.monotonicMs();
          continue;
        }
        if (services.mirror.orders.newestSeq() < after) break;
        if (clock.monotonicMs() - quietSinceMs >= HEARTBEAT_MS) {
          await this.#send(': still here\n\n');
          quietSinceMs = clock.monotonicMs();
        }
        await this.#wait(LOOK_EVERY_MS);
      }
    } finally {
      unsubscribe();
      this.#closing.removeEventListener('abort', this.#wake);
      this.#response.off('drain', this.#wake).end();
    }
  }

  get #ended(): boolean {
    return this.#left || this.#closing.aborted;
  }

  /**
   * Renews the wake-up signal if it was used. Must be called before searching for work, so that no later change is
   * missed.
   */
  #arm(): void {
    if (this.#woken.signal.aborted) this.#woken = new AbortController();
  }

  async #wait(ms: number): Promise<void> {
    if (!this.#ended) await this.#options.clock.sleep(ms, this.#woken.signal);
  }

  /**
   * Sends a text and resolves when there is room for more. A reader that receives nothing for `STALL_MS` is
   * disconnected.
   */
  async #send(text: string): Promise<void> {
    const { clock } = this.#options;
    if (this.#ended || this.#response.write(text)) return;
    const endMs = clock.monotonicMs() + STALL_MS;
    for (;;) {
      this.#arm();
      if (this.#ended || !this.#response.writableNeedDrain) return;
      const restMs = endMs - clock.monotonicMs();
      if (restMs <= 0) {
        this.#response.destroy();
        // The `close` event arrives later, and nothing more may be written until then.
        this.#leave();
      }
      await this.#wait(restMs);
    }
  }

  readonly #wake = (): void => this.#woken.abort();

  readonly #leave = (): void => {
    this.#left = true;
    this.#woken.abort();
  };
}

const BOARD = { open: 200, ended: 30 };
const TREND_HOURS = 24;
/** Time for which the trends are cached, however many clients ask. */
const TRENDS_FOR_MS = 15_000;

function boardRoutes({ services: { mirror, config }, clock }: LocalApiOptions): ApiRoute[] {
  const trends = keptFor(TRENDS_FOR_MS, clock, () => {
    const nowMs = clock.nowMs();
    return { at: isoUtc(nowMs), hours: mirror.read((db) => readTrends(db, nowMs, TREND_HOURS)) };
  });
  return [
    route({
      method: 'get',
      path: '/board',
      operationId: 'getBoard',
      may: ['screen'],
      summary: 'The orders under way at a glance, to be kept up to date from the change feed',
      query: boardQuery,
      answer: boardAnswer,
      refusals: [429],
      async handle({ query: { store }, takePlace }) {
        await takePlace();
        const stores = store === undefined ? undefined : idsOfStore({ mirror, config }, store);
        return whenFree(clock, () => {
          // `newest` is read before the orders, so that an order that changes in between arrives again through the
          // feed.
          const newest = mirror.orders.newestSeq();
          return { newest, orders: mirror.read((db) => readBoard(db, { ...BOARD, stores }, clock.nowMs())) };
        });
      },
    }),
    route({
      method: 'get',
      path: '/orders/search',
      operationId: 'searchOrders',
      may: ['orders', 'screen'],
      summary: 'Orders by code, by a part of what is written in them, or by day',
      query: orderSearch,
      answer: foundOrders,
      refusals: [429],
      async handle({ query: { q, day, limit }, request, takePlace }) {
        await takePlace();
        const created = day === undefined ? undefined : timeOf(day, config.orders.timezone);
        const isWithoutContact = !maySeeContact(request);
        const search = { text: q, created, limit: limit + 1, isWithoutContact };
        const orders = await whenFree(clock, () =>
          mirror.read((db) => searchOrders(db, search, clock.nowMs())),
        );
        return { orders: orders.slice(0, limit), hasMore: orders.length > limit };
      },
    }),
    route({
      method: 'get',
      path: '/trends',
      operationId: 'getTrends',
      may: ['screen'],
      summary: 'Orders for each hour of the last day, and how long changes took to the platform',
      answer: trendsAnswer,
      handle: () => whenFree(clock, trends),
    }),
  ];
}

/** Returns the route of orders to book, for a POS that does not follow the feed. */
function toBookRoute({ services: { mirror, config }, clock }: LocalApiOptions): ApiRoute {
  return route({
    method: 'get',
    path: '/orders/to-book',
    operationId: 'listOrdersToBook',
    may: ['orders', 'screen'],
    summary:
      'Orders that are paid, open, and not acknowledged or edited since: what a POS is to prepare and to book now',
    description:
      'The same as the view `orders_to_book` of the mirror. What is to be undone, such as a cancellation, comes by the feed alone.',
    query: toBookQuery,
    answer: toBookPage,
    refusals: [429],
    async handle({ query: { store, limit, after }, request, takePlace }) {
      await takePlace();
      const stores = store === undefined ? undefined : idsOfStore({ mirror, config }, store);
      const found = await whenFree(clock, () =>
        mirror.read((db) => ordersToBook(db, { stores, after, limit: limit + 1 })),
      );
      const orders = found.slice(0, limit).map(shownTo(request));
      return { orders, next: found.length > limit ? (orders.at(-1)?.seq ?? null) : null };
    },
  });
}

/** Returns all ids by which orders may name the store that has this id. Throws `usage` for an unknown id. */
function idsOfStore(
  { mirror, config }: Pick<LocalApiOptions['services'], 'mirror' | 'config'>,
  name: string,
): string[] {
  const { subsidiaryId, externalId } = namedBranch(configuredBranches(config, mirror), name, 'store');
  return [subsidiaryId, externalId].filter((id) => id !== null);
}

/** Returns start and end of a day, such as 2026-03-01, in a time zone. */
function timeOf(day: string, timeZone: string): { from: string; before: string } {
  const calendar = zoneCalendar(timeZone);
  const startMs = Date.parse(day);
  const at = (wallMs: number) => isoUtc(calendar.firstInstantMs(wallMs));
  return { from: at(startMs), before: at(startMs + DAY_MS) };
}

const DAY_MS = 86_400_000;
/** Returns a function that opens event streams, which end when `closing` aborts. Each stream holds a connection. */
function streamOpener(options: LocalApiOptions, closing: AbortSignal) {
  const { services, clock, log, streamsMax = STREAMS_MAX } = options;
  const places = new Places({
    max: streamsMax,
    ofOne: shareOf(streamsMax),
    words: { taken: 'streams are open already', hint: 'Close those that nobody reads.' },
  });
  return async (request: FastifyRequest, reply: FastifyReply, asked: number | 'newest') => {
    const after = await whenFree(clock, () => {
      // A reader that reconnects continues after its Last-Event-ID, not after the number in the URL.
      const known = lastEventId(request) ?? asked;
      const newest = refuseAheadOf(services.mirror, known === 'newest' ? 0 : known);
      return known === 'newest' ? newest : known;
    });
    const leave = places.enter(request);
    reply.hijack();
    reply.raw.writeHead(200, {
      ...(reply.getHeaders() as Record<string, string>),
      'content-type': 'text/event-stream; charset=utf-8',
      'x-accel-buffering': 'no',
      // Without this header the ended connection would stay open and idle, and delay the closing of the server.
      connection: 'close',
    });
    try {
      await new EventStream(options, request, reply.raw, closing).write(after);
    } catch (error) {
      log.warn({ err: error }, 'a stream of orders ended early');
    } finally {
      leave();
    }
    return reply;
  };
}

/**
 * Returns the reader's Last-Event-ID. Throws `usage` if it is invalid, because starting from 0 would send every order
 * again.
 */
function lastEventId({ headers }: FastifyRequest): number | undefined {
  const id = headers['last-event-id'];
  if (id === undefined) return undefined;
  if (typeof id === 'string' && /^\d{1,15}$/.test(id)) return Number(id);
  throw new TillsyncError('usage', `Last-Event-ID is no whole number of digits: found "${id}".`, {
    hint: 'Send the id of the last event that came, or leave the header out and say after=.',
  });
}

/** Returns up to `limit` events after `after`, and the position after them. */
function eventsAfter(mirror: Feed, after: number, limit: number): { events: OrderEvent[]; upTo: number } {
  const events = mirror.orders.eventsAfter(after, limit);
  return { events, upTo: events.at(-1)?.seq ?? after };
}

/** Yields the text of a page whose first part is in `begin`. The reader asks for a part when the socket has room. */
async function* partsOf(
  page: FeedPage,
  begin: string,
  end: () => string,
  { clock, turn }: { clock: Clock; turn: PartTurn },
): AsyncGenerator<string> {
  yield begin;
  while (!page.isOver) {
    await turn();
    const part = await whenFree(clock, () => page.part());
    if (part !== '') yield `,${part}`;
  }
  yield await whenFree(clock, end);
}

/** Part of the documentation of each route of the feed. */
const RESTARTED =
  '400 with the code `feed-restarted`: `after` or `Last-Event-ID` is above the newest event, because the mirror was made again. ' +
  'Start with `after=0`; orders you know arrive again.';

function feedRoutes(options: LocalApiOptions, polls: LongPolls): ApiRoute[] {
  const { clock } = options;
  const { mirror } = options.services;
  const stream = streamOpener(options, polls.closing);
  return [
    route({
      method: 'get',
      path: '/orders',
      operationId: 'followOrders',
      may: ['orders', 'screen'],
      summary: 'The change feed: every change of an order, in order and none left out',
      description:
        'One page, shorter than `limit` where its orders are large. With `Accept: text/event-stream` the same as /stream. ' +
        RESTARTED,
      query: pageQuery,
      answer: feedPage,
      streams: 'on-request',
      refusals: [429],
      async handle({ query, request, reply, takePlace }) {
        const { store, wait, limit } = query;
        if (request.headers.accept?.includes('text/event-stream')) {
          if (store === undefined && wait === 0) return stream(request, reply, query.after);
          throw new TillsyncError('usage', 'A stream takes neither store nor wait.', {
            hint: 'Leave them out, or ask for pages.',
          });
        }
        const stores = store === undefined ? undefined : idsOfStore(options.services, store);
        let after =
          query.after === 'newest' ? await whenFree(clock, () => mirror.orders.newestSeq()) : query.after;
        const look = () =>
          whenFree(clock, () => {
            const newest = refuseAheadOf(mirror, after);
            const found = stores
              ? mirror.read((db) => eventsOfStore(db, { stores, after, limit }))
              : eventsAfter(mirror, after, limit);
            // `newest` may lie above all events, so only a read that advanced can have more to search.
            const isBehind = found.upTo > after && found.upTo < newest;
            after = found.upTo;
            return { isEmpty: found.events.length === 0, isBehind, found };
          });
        const held = { request, response: reply.raw, waitMs: wait * 1_000 };
        const { found } = wait === 0 ? await look() : await polls.wait(held, look);
        const turn = found.events.length > 0 ? await takePlace() : async () => {};
        await turn();
        const page = new FeedPage(mirror, found, shownTo(request));
        const begin = `{"events":[${await whenFree(clock, () => page.part())}`;
        const end = () => {
          const { next } = page;
          const newest = Math.max(mirror.orders.newestSeq(), next);
          return `],${JSON.stringify({ next, newest, trimmedTo: mirror.orders.trimmedTo() }).slice(1)}`;
        };
        if (page.isOver) return begin + (await whenFree(clock, end));
        reply.type('application/json; charset=utf-8');
        return reply.send(Readable.from(partsOf(page, begin, end, { clock, turn }), { objectMode: false }));
      },
    }),
    route({
      method: 'get',
      path: '/stream',
      operationId: 'streamOrders',
      may: ['orders', 'screen'],
      summary: 'The change feed as server-sent events',
      description:
        'Goes on until it is closed. Its events are named `order`, have the seq as id and one item of `events` of /orders ' +
        'as data. It resumes after `Last-Event-ID`. ' +
        RESTARTED,
      query: feedQuery,
      answer: feedPage,
      streams: 'always',
      refusals: [429],
      handle: ({ query, request, reply }) => stream(request, reply, query.after),
    }),
  ];
}

/** Returns the routes of the board, the feed, orders and their acknowledgements. */
export function orderRoutes(options: LocalApiOptions): ApiFamily {
  const { mirror, outbox } = options.services;
  const polls = new LongPolls(options);
  const show = route({
    method: 'get',
    path: '/orders/{orderId}',
    operationId: 'getOrder',
    may: ['orders', 'screen'],
    summary: 'One order as the mirror has it, and as it was received',
    params: orderPath,
    answer: orderAnswer,
    refusals: [404],
    async handle({ params: { orderId }, request }) {
      const order = await whenFree(options.clock, () => mirror.orders.get(orderId));
      if (!order) {
        throw new TillsyncError('not-found', `The mirror has no order ${orderId}.`, {
          hint: 'It comes with the next poll, if the platform has it.',
        });
      }
      const acknowledged = mirror.orders.acknowledgement(orderId);
      const known = JSON.stringify({ order: shownTo(request)(order), acknowledged });
      // The payload is JSON text already, so it is inserted as it is.
      const payload = maySeeContact(request) ? mirror.orders.payload(orderId) : undefined;
      return `${known.slice(0, -1)},"payload":${payload ?? 'null'}}`;
    },
  });
  const acknowledge = route({
    method: 'post',
    path: '/orders/ack',
    operationId: 'acknowledgeOrders',
    may: ['ack'],
    summary: 'Tell that the POS has booked orders, so that its stock counts include them',
    body: ackRequest,
    answer: ackAnswer,
    mayBePartial: true,
    async handle({ body, reply }) {
      const acks = body.filter((each) => each !== undefined);
      const taken = acks.length === 0 ? [] : await outbox.acknowledge(acks, 'http');
      let next = 0;
      const results = body.map((each, index) =>
        each === undefined
          ? { index, state: 'rejected' as const, message: `Allowed: ${ACK_ITEM}.` }
          : { index, ...(taken[next++] as AckResult) },
      );
      const rejected = results.filter(({ state }) => state === 'rejected').length;
      reply.code(rejected > 0 ? 207 : 200);
      return { results, rejected };
    },
  });
  return {
    tag: 'orders',
    prepare: (app) => polls.endWith(app),
    routes: [...boardRoutes(options), ...feedRoutes(options, polls), toBookRoute(options), show, acknowledge],
  };
}
