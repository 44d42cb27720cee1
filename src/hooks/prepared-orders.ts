import { hash } from 'node:crypto';
import { setImmediate } from 'node:timers/promises';
import type Database from 'better-sqlite3';
import type { Branch } from '../catalog/product.ts';
import { localTime, zoneCalendar } from '../core/time.ts';
import { hasRole } from '../db/marks.ts';
import { sqlOf } from '../db/sqlite.ts';
import type { MirroredOrder } from '../orders/merging/mirrored-order.ts';
import { IS_OPEN, IS_SCHEDULED, IS_TO_BOOK, isToBook } from '../orders/merging/order.ts';
import type { Mirror } from '../orders/reading/mirror.ts';
import { orderById } from '../orders/reading/order-queries.ts';
import type { HookSettings, PreparationMessage } from './hook.ts';
import {
  type Content,
  canonical,
  contentOf,
  dueAtOf,
  IS_IN_KITCHEN,
  type NextEvent,
  nextEvent,
  type PreparationChange,
  type PreparationEvent,
  type PreparationFacts,
  preparedStatuses,
  prepareFromMs,
  type ToldOrder,
  type UndoneReason,
} from './preparation.ts';

/**
 * Stores what each hook was told of the preparation of orders, in the mirror. An event gets its row before it is sent
 * for the first time, so that each try of it is the same; the row of its order is written in the same transaction.
 */

/** What the decisions need beside the mirror. */
export interface PreparationContext {
  /** Present time by the platform's clock; undefined while this machine's clock cannot be trusted yet. */
  nowMs: number | undefined;
  /** Time zone of the shop. */
  timezone: string;
  /** The configured branches, by which the two ids of one branch are recognised. */
  branches: readonly Branch[];
}

/** An event of a preparation, as stored. */
export interface FoundPreparation {
  seq: number;
  /** When it was decided, ISO 8601 UTC. */
  observedAt: string;
  preparation: {
    event: PreparationEvent;
    orderId: string;
    step: number;
    digest: string;
    reason: UndoneReason | null;
    changes: PreparationChange[] | null;
  };
}

type EventRow = Omit<FoundPreparation['preparation'], 'changes'> & {
  seq: number;
  observedAt: string;
  changes: string | null;
};

/** Returns the events of a hook after `seq`, oldest first. */
export function preparationsFrom(
  db: Database.Database,
  hook: string,
  seq: number,
  limit: number,
): FoundPreparation[] {
  const sql = `SELECT seq, decided_at AS observedAt, event, order_id AS orderId, step, digest, reason, changes
    FROM _preparation_events WHERE hook = ? AND seq > ? ORDER BY seq LIMIT +?`;
  return sqlOf(db)
    .rows<EventRow>(sql, hook, seq, limit)
    .map(({ seq: at, observedAt, changes, ...rest }) => ({
      seq: at,
      observedAt,
      preparation: { ...rest, changes: changes === null ? null : JSON.parse(changes) },
    }));
}

/** Returns the highest number that an event of this hook ever had; 0 if there was none. */
export function newestPreparation(db: Database.Database, hook: string): number {
  const sql = `SELECT max(
    coalesce((SELECT max(seq) FROM _preparation_events WHERE hook = @hook), 0),
    coalesce((SELECT max(seq) FROM _prepared_orders WHERE hook = @hook), 0),
    coalesce((SELECT seq FROM _hooks WHERE name = @hook AND event = 'order.prepare'), 0))`;
  return sqlOf(db).value<number>(sql, { hook }) ?? 0;
}

/** Returns the event in the form that is sent, with the order as it is now. */
export function preparationMessage(
  db: Database.Database,
  { seq, observedAt, preparation }: FoundPreparation,
  timezone: string,
): PreparationMessage {
  const { event, orderId, step, digest, reason, changes } = preparation;
  const order = orderById(db, orderId) ?? null;
  return {
    event,
    seq,
    id: messageId(event, orderId, step, digest),
    orderId,
    status: order?.status ?? null,
    reason,
    changes,
    observedAt,
    ...timesOf(order, observedAt, timezone),
    order,
  };
}

/** Returns the due time of an order, and its times by the clock of the shop. */
export function timesOf(
  order: MirroredOrder | null,
  observedAt: string,
  timezone: string,
): Pick<PreparationMessage, 'dueAt' | 'local'> {
  const local = (time: string | null) => {
    const ms = time?.includes('T') ? Date.parse(time) : Number.NaN;
    return Number.isNaN(ms) ? time : localTime(ms, timezone);
  };
  const dueAt = order === null ? null : dueAtOf(order);
  const createdAt = local(order?.createdAt ?? null);
  return { dueAt, local: { timezone, createdAt, dueAt: local(dueAt), observedAt: local(observedAt) } };
}

/**
 * Returns the id by which a receiver knows a repetition. It follows from the order, what was told of it and how often,
 * so it is the same after a loss of the mirror.
 */
function messageId(event: PreparationEvent, orderId: string, step: number, digest: string): string {
  const [, kind] = event.split('.');
  return `${kind}_${hash('sha256', orderId).slice(0, 16)}_${step}_${digest.slice(0, 12)}`;
}

type ToldRow = Omit<ToldOrder, 'isPrepared' | 'content'> & { isPrepared: number; content: string | null };

function toldOrder(db: Database.Database, hook: string, orderId: string): ToldOrder | undefined {
  const sql = `SELECT step, is_prepared AS isPrepared, store, content, digest FROM _prepared_orders
    WHERE hook = ? AND order_id = ?`;
  const row = sqlOf(db).row<ToldRow>(sql, hook, orderId);
  if (row === undefined) return undefined;
  const content = row.content === null ? null : (JSON.parse(row.content) as Content);
  return { ...row, isPrepared: row.isPrepared === 1, content };
}

function factsOf(
  db: Database.Database,
  orderId: string,
  { branches }: PreparationContext,
): PreparationFacts | undefined {
  const order = orderById(db, orderId);
  if (order === undefined) return undefined;
  const isAwayNow = hasRole(db, 'branch')
    ? 'EXISTS (SELECT 1 FROM _orders_away a WHERE a.order_id = _orders.order_id)'
    : '0';
  const sql = `SELECT forgotten_at IS NOT NULL AS isForgotten, ${isAwayNow} AS isAway
    FROM _orders WHERE order_id = ?`;
  const { isForgotten = 0, isAway = 0 } =
    sqlOf(db).row<{ isForgotten: number; isAway: number }>(sql, orderId) ?? {};
  // The id of the order makes digests of the same short comment differ, so that nobody finds it by trying.
  const content = contentOf(order, (text) => hash('sha256', `${orderId}\n${text}`).slice(0, 16));
  return {
    order,
    store: storeName(order.storeExternalId, branches),
    isAway: isAway === 1,
    isForgotten: isForgotten === 1,
    content,
    digest: hash('sha256', canonical(content)),
  };
}

function storeName(id: string | null, branches: readonly Branch[]): string | null {
  const branch = branches.find(({ subsidiaryId, externalId }) => id === subsidiaryId || id === externalId);
  return id === null || branch === undefined ? id : (branch.externalId ?? branch.subsidiaryId);
}

type Due = Pick<MirroredOrder, 'isScheduled' | 'scheduledFor' | 'deliveryTime'>;

/** Returns whether the order is to be prepared by now. */
function isDue(
  order: Due,
  { prepareBeforeMs }: HookSettings,
  { nowMs, timezone }: PreparationContext,
): boolean {
  const dayStartMs = (day: string) => zoneCalendar(timezone).firstInstantMs(Date.parse(`${day}T00:00:00Z`));
  const fromMs = prepareFromMs(dueAtOf(order as MirroredOrder), { beforeMs: prepareBeforeMs, dayStartMs });
  return fromMs === undefined || (nowMs !== undefined && fromMs <= nowMs);
}

/** Returns what the hook is to be told next of an order; undefined if it knows all. */
function nextOf(
  db: Database.Database,
  hook: HookSettings,
  orderId: string,
  context: PreparationContext,
): NextEvent | undefined {
  const facts = factsOf(db, orderId, context);
  if (facts === undefined) return undefined;
  const statuses = preparedStatuses(hook.statuses);
  const told = toldOrder(db, hook.name, orderId);
  return nextEvent(facts, told, { isDue: isDue(facts.order, hook, context), statuses });
}

const PUT_TOLD = `INSERT INTO _prepared_orders (hook, order_id, step, is_prepared, store, content, digest, seq)
  VALUES (@hook, @orderId, @step, @isPrepared, @store, @content, @digest, @seq)
  ON CONFLICT DO UPDATE SET step = @step, is_prepared = @isPrepared, store = @store, content = @content,
    digest = @digest, seq = @seq`;

/**
 * Decides what the hook is to be told next of an order and stores it as the hook's newest event, in the caller's
 * transaction. Returns false if the hook knows all.
 */
function appendNext(
  db: Database.Database,
  hook: HookSettings,
  orderId: string,
  context: PreparationContext,
  decidedAt: string,
): boolean {
  const next = nextOf(db, hook, orderId, context);
  if (next === undefined) return false;
  const { event, reason, changes, told } = next;
  const { isPrepared, content, ...rest } = told;
  const seq = newestPreparation(db, hook.name) + 1;
  const row = { hook: hook.name, orderId, seq };
  const stored = {
    ...row,
    ...rest,
    isPrepared: Number(isPrepared),
    content: content && JSON.stringify(content),
  };
  sqlOf(db).run(PUT_TOLD, stored);
  const insert = `INSERT INTO _preparation_events (hook, seq, event, order_id, step, digest, reason, changes, decided_at)
    VALUES (@hook, @seq, @event, @orderId, @step, @digest, @reason, @changes, @decidedAt)`;
  const { step, digest } = rest;
  const noted = { event, step, digest, reason, changes: changes && JSON.stringify(changes), decidedAt };
  sqlOf(db).run(insert, { ...row, ...noted });
  return true;
}

/** An event of the order feed, as far as it says which order to look at. */
interface Sighting {
  seq: number;
  orderId: string;
  status: string | null;
  previousStatus: string | null;
  source: string;
  createdAt: string | null;
  /** 0 if nothing can be said of the order as it is: no kitchen works on it, and the hook was told of none. */
  mayTell: number;
}

const SIGHTINGS = `SELECT e.seq, e.order_id AS orderId, e.status, e.previous_status AS previousStatus, e.source,
    o.created_at AS createdAt, (SELECT ${IS_IN_KITCHEN} FROM _orders WHERE order_id = o.order_id) OR EXISTS (
      SELECT 1 FROM _prepared_orders p WHERE p.hook = ? AND p.order_id = o.order_id AND p.is_prepared = 1) AS mayTell
  FROM (SELECT * FROM order_events WHERE seq > ? ORDER BY seq LIMIT +?) e
  JOIN _orders o ON o.order_id = e.order_id ORDER BY e.seq`;

/** Orders that a hook may have to be told something of. */
interface Candidates {
  orderIds: string[];
  /** Events of the order feed up to here were looked at. */
  seq: number;
  isMore: boolean;
}

/**
 * Returns the orders with an event after `seq`. `old` are orders that a poll brought first and that were placed and
 * paid before the hook began: those are not for it.
 */
function candidatesAfter(
  db: Database.Database,
  hook: HookSettings,
  { seq, newsFrom, limit }: { seq: number; newsFrom: string | null; limit: number },
  context: PreparationContext,
): Candidates & { old: string[] } {
  const end = 'SELECT max(seq) FROM (SELECT seq FROM order_events WHERE seq > ? ORDER BY seq LIMIT +?)';
  const last = sqlOf(db).value<number | null>(end, seq, limit) ?? seq;
  const found = sqlOf(db).rows<Sighting>(SIGHTINGS, hook.name, seq, limit);
  const began = { ...context, nowMs: newsFrom === null ? undefined : Date.parse(newsFrom) };
  const isOld = ({ orderId, status, previousStatus, source, createdAt }: Sighting) => {
    if (newsFrom === null || source !== 'poll' || previousStatus !== null || !isToBook(status)) return false;
    if (createdAt === null || !ISO_TIME.test(createdAt) || createdAt >= newsFrom) return false;
    const order = orderById(db, orderId);
    return order !== undefined && isDue(order, hook, began);
  };
  const old = found.filter(isOld).map(({ orderId }) => orderId);
  const told = found.filter(({ mayTell }) => mayTell === 1);
  const orderIds = [...new Set(told.map(({ orderId }) => orderId))];
  return { orderIds, old, seq: last, isMore: last > seq };
}

const ISO_TIME = /^\d{4}-.*T.*Z$/;

/**
 * Returns the scheduled orders that are to be prepared by now and that the hook was not told of; with `upToSeq`, only
 * those without an event after it.
 */
function dueCandidates(
  db: Database.Database,
  hook: HookSettings,
  context: PreparationContext,
  upToSeq = Number.MAX_SAFE_INTEGER,
): string[] {
  const sql = `SELECT order_id AS orderId, is_scheduled AS scheduled, scheduled_for AS scheduledFor,
      delivery_time AS deliveryTime FROM _orders
    WHERE ${IS_SCHEDULED} AND ${IS_TO_BOOK} AND seq <= ? AND NOT EXISTS (SELECT 1 FROM _prepared_orders p
      WHERE p.hook = ? AND p.order_id = _orders.order_id AND (p.is_prepared = 1 OR p.step = 0))
    ORDER BY scheduled_for`;
  type Row = Omit<Due, 'isScheduled'> & { orderId: string; scheduled: number | null };
  return sqlOf(db)
    .rows<Row>(sql, upToSeq, hook.name)
    .filter(({ scheduled, ...row }) => {
      const isScheduled = scheduled === null ? null : scheduled === 1;
      return isDue({ ...row, isScheduled }, hook, context);
    })
    .map(({ orderId }) => orderId);
}

/** Orders of a branch that the hub gave to another one, or gave back: the order is the same, so it has no event. */
const ROUTED = `SELECT p.order_id FROM _orders_away a JOIN _prepared_orders p ON p.order_id = a.order_id
    WHERE p.hook = @hook AND p.is_prepared = 1
  UNION ALL SELECT p.order_id FROM _prepared_orders p JOIN _orders ON _orders.order_id = p.order_id
    WHERE EXISTS (SELECT 1 FROM _link) AND p.hook = @hook AND p.is_prepared = 0 AND p.step > 0
      AND ${IS_IN_KITCHEN} AND NOT EXISTS (SELECT 1 FROM _orders_away a WHERE a.order_id = p.order_id)`;

/** Returns the orders of which the hook may have to be told something that no event of the order feed says. */
function unheardCandidates(db: Database.Database, hook: HookSettings, context: PreparationContext): string[] {
  const routed = hasRole(db, 'branch') ? sqlOf(db).values<string>(ROUTED, { hook: hook.name }) : [];
  return [...routed, ...dueCandidates(db, hook, context)];
}

const PASS = `INSERT OR IGNORE INTO _prepared_orders (hook, order_id, step, is_prepared, digest, seq)`;

/** Notes orders of which the hook is never told, in the caller's transaction. */
function passOver(db: Database.Database, hook: string, orderIds: readonly string[]): void {
  for (const orderId of orderIds) sqlOf(db).run(`${PASS} VALUES (?, ?, 0, 0, '', 0)`, hook, orderId);
}

/**
 * Notes all orders that are paid and due and have no event after `seq`, when a hook begins, in the caller's
 * transaction.
 */
export function passOverPresent(
  db: Database.Database,
  hook: HookSettings,
  context: PreparationContext,
  seq: number,
): void {
  const present = `${PASS} SELECT ?, order_id, 0, 0, '', 0 FROM _orders
    WHERE seq <= ? AND ${IS_OPEN} AND ${IS_TO_BOOK} AND NOT (${IS_SCHEDULED})`;
  sqlOf(db).run(present, hook.name, seq);
  passOver(db, hook.name, dueCandidates(db, hook, context, seq));
}

/** Number of events of the order feed that a count of waiting orders looks at. */
const COUNT_EVENTS_MAX = 200;

/** Returns the orders of which something is to be told that has no number yet; `since` is its observation. */
export function waitingPreparations(
  db: Database.Database,
  hook: HookSettings,
  { orderSeq, newsFrom }: { orderSeq: number; newsFrom: string | null },
  context: PreparationContext,
): string[] {
  const after = { seq: orderSeq, newsFrom, limit: COUNT_EVENTS_MAX };
  const { orderIds, old } = candidatesAfter(db, hook, after, context);
  const all = new Set([...orderIds, ...unheardCandidates(db, hook, context)]);
  for (const orderId of old) if (toldOrder(db, hook.name, orderId) === undefined) all.delete(orderId);
  return [...all].filter((orderId) => nextOf(db, hook, orderId, context) !== undefined);
}

/** What state.db keeps of an order that a hook was told of, because the mirror may be lost or replaced by a copy. */
export interface ToldMemory {
  orderId: string;
  step: number;
  isPrepared: number;
  store: string | null;
  digest: string;
  seq: number;
}

const MEMORY = `SELECT order_id AS orderId, step, is_prepared AS isPrepared, store, digest, seq FROM _prepared_orders
  WHERE hook = ? AND step > 0 AND seq > ? AND seq <= ?`;

/** Returns the orders whose newest event has a number above `after` and up to `upTo`. */
export function toldBetween(db: Database.Database, hook: string, after: number, upTo: number): ToldMemory[] {
  return sqlOf(db).rows<ToldMemory>(MEMORY, hook, after, upTo);
}

/**
 * Takes over what a hook was told by another copy of this mirror, in the caller's transaction. The hook's numbers then
 * continue after those that were given there.
 */
export function takeOverTold(db: Database.Database, hook: string, memory: readonly ToldMemory[]): void {
  const lost = memory.filter(({ orderId, step }) => (toldOrder(db, hook, orderId)?.step ?? 0) < step);
  for (const each of lost) sqlOf(db).run(PUT_TOLD, { ...each, hook, content: null });
  const sql = "UPDATE _hooks SET seq = max(seq, ?) WHERE name = ? AND event = 'order.prepare'";
  if (lost.length > 0) sqlOf(db).run(sql, Math.max(...lost.map(({ seq }) => seq)), hook);
}

/** Deletes what hooks that are not named were told, in the caller's transaction. */
export function keepPreparationsOf(db: Database.Database, hooks: readonly string[]): void {
  for (const table of ['_prepared_orders', '_preparation_events']) {
    const sql = `DELETE FROM ${table} WHERE hook NOT IN (SELECT value FROM json_each(?))`;
    sqlOf(db).run(sql, JSON.stringify(hooks));
  }
}

/** Deletes the oldest events of a hook, in the caller's transaction: those up to `seq`, but for the newest `kept`. */
export function trimPreparations(db: Database.Database, hook: string, seq: number, kept: number): void {
  const sql = 'DELETE FROM _preparation_events WHERE hook = ? AND seq <= ?';
  sqlOf(db).run(sql, hook, seq - kept);
}

/** A hook's cursor, and whether all that waits is decided, with the time to note (ISO 8601 UTC). */
interface Waiting {
  seq: number;
  orderSeq: number;
  newsFrom: string | null;
  all: boolean;
  at: string;
}

/** Number of events of the order feed that are looked at in one read. */
const LOOK_AT_ONCE = 500;

/**
 * Decides and stores what a hook is to be told by now, in the caller's transaction, so that it can be skipped: all of
 * it, or with `all` false only the next event if none waits that was tried.
 */
export function decideWaiting(
  db: Database.Database,
  hook: HookSettings,
  { seq: place, orderSeq, newsFrom, all, at }: Waiting,
  context: PreparationContext,
): void {
  if (!all && preparationsFrom(db, hook.name, place, 1).length > 0) return;
  /** Returns whether enough was decided. A moved order is undone at one store and prepared at the other. */
  const decide = (orderId: string) => {
    while (appendNext(db, hook, orderId, context, at)) if (!all) return true;
    return false;
  };
  for (let seq = orderSeq, isMore = true; isMore; ) {
    const found = candidatesAfter(db, hook, { seq, newsFrom, limit: LOOK_AT_ONCE }, context);
    passOver(db, hook.name, found.old);
    if (found.orderIds.some(decide)) return;
    ({ seq, isMore } = found);
  }
  unheardCandidates(db, hook, context).some(decide);
}

type Found = ReturnType<typeof candidatesAfter>;

/** Decides one after the other what a hook is to be told, while its loop runs. */
export class Preparations {
  readonly #mirror: Pick<Mirror, 'read' | 'write'>;
  readonly #hook: HookSettings;
  /** Orders that are not decided yet. */
  #orderIds: readonly string[] = [];
  /** Events of the order feed up to this one gave the orders; undefined before the first look. */
  #seq: number | undefined;
  #notedSeq = 0;

  constructor(mirror: Pick<Mirror, 'read' | 'write'>, hook: HookSettings) {
    this.#mirror = mirror;
    this.#hook = hook;
  }

  /** Decides and stores the next event. Returns false if there is none now. Each call is a few short transactions. */
  async decideNext(
    { orderSeq, newsFrom }: { orderSeq: number | null; newsFrom: string | null },
    context: PreparationContext,
    at: string,
  ): Promise<boolean> {
    let seq = this.#seq;
    if (seq === undefined) seq = this.#notedSeq = orderSeq ?? 0;
    if (await this.#decideFirst(context, at)) return true;
    for (let isMore = true; isMore; ) {
      const after = { seq, newsFrom, limit: LOOK_AT_ONCE };
      const found: Found = this.#mirror.read((db) => candidatesAfter(db, this.#hook, after, context));
      if (found.old.length > 0) await this.#mirror.write((db) => passOver(db, this.#hook.name, found.old));
      this.#orderIds = found.orderIds;
      this.#seq = seq = found.seq;
      isMore = found.isMore;
      await setImmediate();
      if (await this.#decideFirst(context, at)) return true;
    }
    if (seq - this.#notedSeq >= NOTE_EVERY_EVENTS) await this.note();
    this.#orderIds = this.#mirror.read((db) => unheardCandidates(db, this.#hook, context));
    return this.#decideFirst(context, at);
  }

  /** Stores up to where the order feed was looked at, if all of it is decided. */
  async note(): Promise<void> {
    const seq = this.#seq ?? 0;
    if (this.#orderIds.length > 0 || seq <= this.#notedSeq) return;
    const sql = "UPDATE _hooks SET order_seq = max(order_seq, ?) WHERE name = ? AND event = 'order.prepare'";
    await this.#mirror.write((db) => void sqlOf(db).run(sql, seq, this.#hook.name));
    this.#notedSeq = seq;
  }

  /**
   * Decides the first order that has an event and keeps it and those behind it, because more may be to say of it.
   * Returns false, and keeps none, if no order has one.
   */
  async #decideFirst(context: PreparationContext, at: string): Promise<boolean> {
    for (let i = 0; i < this.#orderIds.length; i++) {
      if (i % YIELD_EVERY_ORDERS === YIELD_EVERY_ORDERS - 1) await setImmediate();
      const orderId = this.#orderIds[i] as string;
      if (this.#mirror.read((db) => nextOf(db, this.#hook, orderId, context)) === undefined) continue;
      this.#orderIds = this.#orderIds.slice(i);
      if (await this.#mirror.write((db) => appendNext(db, this.#hook, orderId, context, at))) return true;
      i = -1;
      this.#orderIds = this.#orderIds.slice(1);
    }
    this.#orderIds = [];
    return false;
  }
}

/** Number of orders after which callbacks and requests have their turn: each order is read, and a day has thousands. */
const YIELD_EVERY_ORDERS = 20;
/** Number of events of the order feed after which it is stored that they were looked at. */
const NOTE_EVERY_EVENTS = 20;
