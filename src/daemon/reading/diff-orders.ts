import { TillsyncError } from '../../domain/errors.ts';
import {
  type RecordList,
  recordText,
  scanRecords,
  speaksOfMorePages,
} from '../../domain/json/json-records.ts';
import type { OrderReading } from '../../domain/order/order.ts';
import { type OrderDifference, orderDifferences } from '../../domain/order/order-differences.ts';
import { chooseOrderList } from '../../domain/order/order-list.ts';
import { readOrderText } from '../../domain/order/order-reader.ts';
import { addDays, liesWithin, type PollWindow, pollWindow } from '../../domain/order/poll-window.ts';
import { compileSpellings } from '../../domain/order/spelling-tree.ts';
import type { CallOptions } from '../../domain/platform/call.ts';
import type { Clock } from '../../domain/time/clock.ts';
import type { Parts } from '../parts.ts';

export type { OrderDifference };

export interface OrdersDiff {
  window: PollWindow;
  /** Orders in the platform's answer. */
  compared: number;
  differences: OrderDifference[];
  /** Orders left out, since a callback changed them while the platform was asked. */
  moved: number;
  unreadable: number;
  /** The answer speaks of further pages, so orders that it lacks were not looked for. */
  morePages: boolean;
}

export interface DiffOrdersRequest extends CallOptions {
  /** Without it the days of a plain poll. */
  window?: PollWindow | undefined;
}

/** What the mirror says of the orders against what the platform says now. One call; nothing is written. */
export async function diffOrders(
  parts: Pick<Parts, 'mirror' | 'platform' | 'config'>,
  clock: Clock,
  request: DiffOrdersRequest,
): Promise<OrdersDiff> {
  const { mirror, platform } = parts;
  const { timezone, lookbackDays } = parts.config.orders;
  const { window: asked, ...call } = request;
  const nowMs = clock.nowMs();
  const window =
    asked ??
    pollWindow({
      nowMs,
      platformNowMs: nowMs + (platform.clock.skewMs() ?? 0),
      timezone,
      lookbackDays,
      reachBackToMs: null,
      lookbackDaysMax: lookbackDays,
    });
  let asOf = { seq: mirror.newestSeq(), atMs: nowMs };
  const answer = await platform.orderAll(window, {
    ...call,
    onSend: () => {
      asOf = { seq: mirror.newestSeq(), atMs: clock.nowMs() };
    },
  });
  const { readings, unreadable, morePages } = readingsOf(answer.body, parts);
  const diff: OrdersDiff = {
    window,
    compared: readings.size,
    differences: [],
    moved: 0,
    unreadable,
    morePages,
  };
  for (const reading of readings.values()) {
    const mirrored = mirror.order(reading.orderId);
    const differences = orderDifferences(mirrored, reading);
    if (differences.length > 0 && mirrored && mirrored.seq > asOf.seq) diff.moved += 1;
    else diff.differences.push(...differences);
  }
  if (!morePages) diff.differences.push(...missingOf(parts, window, readings, asOf.atMs));
  return diff;
}

function readingsOf(body: Uint8Array, { config }: Pick<Parts, 'config'>) {
  const { fields, listPath } = config.orders;
  const spellings = compileSpellings(fields);
  const read = (list: RecordList, index: number): OrderReading | undefined => {
    const reading = readOrderText(recordText(body, list, index), spellings);
    return 'unreadable' in reading ? undefined : reading;
  };
  const scanned = scanRecords(body);
  const list = chooseOrderList(scanned, { listPath, read });
  if (!list) {
    throw new TillsyncError(
      'platform-garbled',
      'The answer of GET /order/all holds no list of orders that tillsync can find.',
      { hint: 'A poll keeps the whole answer: {tillsync} sync orders, then {tillsync} quarantine list' },
    );
  }
  const readings = new Map<string, OrderReading>();
  let unreadable = 0;
  for (let index = 0; index < list.length; index++) {
    const reading = read(list, index);
    if (reading) readings.set(reading.orderId, reading);
    else unreadable += 1;
  }
  return { readings, unreadable, morePages: speaksOfMorePages(scanned.hints, list.length) };
}

/**
 * Orders that the answer should hold and does not: created before it was asked for, on a day that lies within the
 * window in whichever calendar the platform reads it.
 */
function missingOf(
  { mirror }: Pick<Parts, 'mirror'>,
  window: PollWindow,
  readings: ReadonlyMap<string, OrderReading>,
  askedAtMs: number,
): OrderDifference[] {
  const from = addDays(window.startDate, -1);
  const before = new Date(askedAtMs).toISOString();
  const stored = mirror.read(({ db }) =>
    db
      .prepare<{ from: string; before: string }, StoredOrder>(
        `SELECT order_id AS orderId, status, created_at AS createdAt FROM orders
         WHERE created_at >= @from AND created_at < @before ORDER BY created_at`,
      )
      .all({ from, before }),
  );
  return stored
    .filter(({ orderId, createdAt }) => {
      const createdAtMs = Date.parse(createdAt);
      return !readings.has(orderId) && !Number.isNaN(createdAtMs) && liesWithin(window, createdAtMs);
    })
    .map(({ orderId, status }) => ({ orderId, field: 'order', mirror: status ?? 'there', platform: null }));
}

interface StoredOrder {
  orderId: string;
  status: string | null;
  createdAt: string;
}
