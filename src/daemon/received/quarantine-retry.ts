import { type RecordList, recordText, scanRecords } from '../../domain/json/json-records.ts';
import type { OrderReading, OrderSource, Unreadable } from '../../domain/order/order.ts';
import type { OrderKeeper } from '../../domain/order/order-intake.ts';
import { chooseOrderList } from '../../domain/order/order-list.ts';
import { readOrderText } from '../../domain/order/order-reader.ts';
import type { OrderSpellings } from '../../domain/order/spelling-tree.ts';
import type { Mirror } from '../../store/mirror/mirror.ts';
import { type FoundPayload, replayOrder } from '../../store/mirror/order-replay.ts';

/** What lies in quarantine. */
export interface Quarantined {
  source: Unreadable['source'];
  /** ISO 8601 UTC. */
  receivedAt: string;
  payload: string | Uint8Array;
}

export interface QuarantineRetryOptions {
  keeper: OrderKeeper;
  /** What the mirror has of an order. */
  find: (orderId: string) => { updatedAt: string } | undefined;
  /** Merges a payload under what the mirror has of its order since, and keeps it with the order. */
  mergeUnder: (found: FoundPayload) => Promise<{ outcome: 'created' | 'changed' | 'unchanged' }>;
  spellings: OrderSpellings;
  listPath: string;
}

/** The mirror as `retryQuarantined` wants it. */
export function retryInto(
  mirror: Pick<Mirror, 'keeper' | 'order' | 'write'>,
  { spellings, listPath }: Pick<QuarantineRetryOptions, 'spellings' | 'listPath'>,
): QuarantineRetryOptions {
  return {
    keeper: mirror.keeper,
    find: (orderId) => mirror.order(orderId),
    mergeUnder: (found) =>
      mirror.write((tables) => replayOrder(tables, found.reading.orderId, { spellings, found: [found] })),
    ...{ spellings, listPath },
  };
}

export interface RetryReport {
  /** Orders that can be read now and brought something into the mirror. */
  kept: string[];
  /** Orders of which the mirror has everything newer; the payload is kept with the order. */
  overtaken: string[];
  /** Why the rest still cannot be read, one sentence each; empty: the entry has served its purpose. */
  unreadable: string[];
}

/**
 * Reads a quarantined payload once more, by today's spellings, and merges the orders in it. An old payload
 * never takes an order back: where the mirror heard of the order since, only what nothing newer says is taken.
 */
export async function retryQuarantined(
  entry: Quarantined,
  options: QuarantineRetryOptions,
): Promise<RetryReport> {
  const report: RetryReport = { kept: [], overtaken: [], unreadable: [] };
  const { source, receivedAt } = entry;
  if (source !== 'webhook' && source !== 'poll') {
    report.unreadable.push(`Only orders can be read again, and this came from the ${source}.`);
    return report;
  }
  const observations = [];
  for (const { raw, reading } of readingsOf(entry.payload, source, options)) {
    if ('unreadable' in reading) report.unreadable.push(reading.unreadable);
    else if ((options.find(reading.orderId)?.updatedAt ?? '') > receivedAt) {
      const { outcome } = await options.mergeUnder({ source, receivedAt, raw, reading });
      (outcome === 'unchanged' ? report.overtaken : report.kept).push(reading.orderId);
    } else observations.push({ source, observedAtMs: Date.parse(receivedAt), raw, reading });
  }
  if (observations.length > 0) {
    await options.keeper.keep(observations.map((observation) => ({ kind: 'order', observation })));
    report.kept.push(...observations.map(({ reading }) => reading.orderId));
  }
  return report;
}

interface Read {
  raw: string;
  reading: OrderReading | { unreadable: string };
}

/** A notification or a single record is one order; an answer of a poll is a list of them. */
export function readingsOf(
  payload: string | Uint8Array,
  source: OrderSource,
  { spellings, listPath }: Pick<QuarantineRetryOptions, 'spellings' | 'listPath'>,
): Read[] {
  const bytes = typeof payload === 'string' ? Buffer.from(payload) : payload;
  const raw = typeof payload === 'string' ? payload : Buffer.from(payload).toString('utf8');
  const single = { raw, reading: readOrderText(raw, spellings) };
  if (source === 'webhook' || !('unreadable' in single.reading)) return [single];
  const read = (list: RecordList, index: number): Read => {
    const text = recordText(bytes, list, index);
    return { raw: text, reading: readOrderText(text, spellings) };
  };
  const list = listIn(bytes, listPath, (inside, index) => {
    const { reading } = read(inside, index);
    return 'unreadable' in reading ? undefined : reading;
  });
  return list ? Array.from({ length: list.length }, (_, index) => read(list, index)) : [single];
}

function listIn(
  bytes: Uint8Array,
  listPath: string,
  read: (list: RecordList, index: number) => OrderReading | undefined,
): RecordList | undefined {
  try {
    return chooseOrderList(scanRecords(bytes), { listPath, read });
  } catch {
    return undefined;
  }
}
