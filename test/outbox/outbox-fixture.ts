import { mkdtempSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type Database from 'better-sqlite3';
import { onTestFinished } from 'vitest';
import type { Branch } from '../../src/catalog/product.ts';
import { silentLog } from '../../src/core/log.ts';
import type { Clock } from '../../src/core/time.ts';
import { openConnection } from '../../src/db/mirror-connection.ts';
import { compileSpellings } from '../../src/orders/merging/field-aliases.ts';
import { readSentOrder } from '../../src/orders/merging/order-reader.ts';
import { mergeOrder } from '../../src/orders/merging/order-rows.ts';
import {
  type Change,
  type ChangeKind,
  readChange,
  type SubmittedChange,
} from '../../src/outbox/intake/change.ts';
import { GUARDS_OFF, type GuardSettings } from '../../src/outbox/intake/guards.ts';
import type { Acceptance } from '../../src/outbox/intake/intake.ts';
import { PushFreshness, PushLoop, type PushLoopOptions } from '../../src/outbox/sending/push-loop.ts';
import { type MirrorStores, Stores } from '../../src/outbox/sending/repositories.ts';
import type { ProductRecord } from '../../src/platform/schemas.ts';
import { FakeClock, seededRandom } from '../support/fake-clock.ts';
import { freshMirror } from '../support/fresh-mirror.ts';

export const BRANCHES = [
  { subsidiaryId: 's1', externalId: 'B1' },
  { subsidiaryId: 's2', externalId: 'B2' },
];

/** Makes a mirror that is closed after the test. */
export function tempMirror(): Database.Database {
  const directory = mkdtempSync(join(tmpdir(), 'tillsync-mirror-'));
  const db = openConnection({ path: freshMirror(directory), readonly: false, group: undefined });
  onTestFinished(() => {
    db.close();
  });
  return db;
}

export interface Shelf {
  sku: string;
  price?: number;
  /** The externalId and the quantity of the stock in each branch. */
  stocks: Record<string, [externalId: string, qty: number]>;
}

/** Makes a product record as the platform would send it. */
export function product(id: string, name: string, shelves: Shelf[], extra: object = {}): ProductRecord {
  const children = shelves.map(({ sku, price = 1000, stocks }) => ({
    sku,
    barcode: null,
    price,
    withDiscount: false,
    discount: 0,
    show: true,
    stocks: Object.entries(stocks).map(([subsidiaryId, [, qty]]) => ({ subsidiaryId, qty, show: true })),
    integrations: Object.entries(stocks).map(([subsidiaryId, [extId]]) => ({
      subsidiaryId,
      productIdPosA: null,
      productCodePosB: null,
      extId,
    })),
  }));
  const content = { id, name, category: 'all', show: true, children };
  return { ...content, raw: JSON.stringify({ ...content, ...extra }) };
}

/** Makes the objects with which a process accepts and sends changes, on one mirror. */
export function outgoing(
  db = tempMirror(),
  branches: readonly Branch[] = BRANCHES,
  guards = GUARDS_OFF,
  { editHoldMs, ownName }: { editHoldMs?: number; ownName?: string | undefined } = {},
) {
  const clock = new FakeClock();
  const skew = { ms: 0 };
  const open = () => new Stores(db, { branches, clock, guards, editHoldMs, ownName, skewMs: () => skew.ms });
  const { lookup: catalog, catalog: store } = open();
  const resolve = (change: Change, alreadyRead = false) => out.intake.resolve(change, alreadyRead);

  const accept = (
    kind: 'stock' | 'product',
    values: unknown[],
    guards: Partial<GuardSettings> = {},
    source: 'http' | 'cli' = 'http',
  ): Acceptance[] => {
    const items = values.map((value): SubmittedChange => {
      const reading = readChange(kind, value);
      return 'fault' in reading ? { ...reading, value } : reading;
    });
    return out.intake.accept(items, { source, guards: { ...GUARDS_OFF, ...guards } });
  };

  /** Mirrors a complete sweep of every branch. */
  const sweep = (records: ProductRecord[]) => {
    for (const branch of branches) {
      const mark = store.readMark();
      store.applyPage(branch, records, mark);
      const seen = new Set(records.map((record) => record.id));
      store.completeSweep({ branch, mark, startedAtMs: clock.nowMs(), pages: 1, seen });
    }
  };

  /** Makes the objects that a process creates when it starts. */
  const parts = () => {
    const { intake, dispatcher, admin, queries, reservations, inbox, safety, differences, looks } = open();
    return { intake, dispatcher, admin, queries, reservations, inbox, safety, differences, looks };
  };

  const out = {
    db,
    clock,
    catalog,
    store,
    accept,
    sweep,
    resolve,
    skew,
    ...parts(),
    restart: () => void Object.assign(out, parts()),
  };
  return out;
}

const SPELLINGS = compileSpellings({});
let edits = 0;

/** Merges an order as a poll or a callback does; each call is an event, even if nothing else changed. */
export function order(
  out: ReturnType<typeof outgoing>,
  orderId: string,
  store: string | null,
  items: [externalId: string | null, quantity: number, name?: string][],
  status = 'pending',
  { createdAt = null, source = 'poll' }: { createdAt?: string | null; source?: 'poll' | 'webhook' } = {},
) {
  edits += 1;
  const raw = JSON.stringify({
    internalOrderId: orderId,
    status,
    createdAt,
    amountToPay: edits,
    store: { externalId: store },
    items: items.map(([externalId, amount, name = null]) => ({ product: { externalId, name }, amount })),
  });
  const reading = readSentOrder(JSON.parse(raw), raw, SPELLINGS);
  if ('unreadable' in reading) throw new Error(reading.unreadable);
  const observation = { source, observedAtMs: out.clock.nowMs(), raw, reading } as const;
  mergeOrder(out.db, observation, SPELLINGS, null);
}

/** Makes a sender of one kind of changes whose calls the test claims one by one. */
export function pushLoop(
  kind: ChangeKind,
  stores: MirrorStores,
  clock: Clock,
  rules: Partial<PushLoopOptions['rules']> = {},
  lastPollOkMs: () => number | null = () => clock.nowMs(),
  { hasBranches = true }: { hasBranches?: boolean } = {},
): PushLoop {
  return new PushLoop({
    kind,
    stores,
    clock,
    lastPollOkMs,
    hasBranches,
    lingerMs: 0,
    log: silentLog,
    rules: { holdBack: false, skipUnchanged: true, trustMs: 600_000, platformDeducts: true, ...rules },
    platform: {} as PushLoopOptions['platform'],
    freshness: new PushFreshness({ ok() {}, report() {} }),
    status: () => 'elsewhere',
    random: seededRandom(1),
    beat() {},
  });
}

/** Rules by which every waiting change may be sent. */
export const SEND_ALL = { skipUnchanged: true, holdBack: false, sendAsIs: true };
