import type Database from 'better-sqlite3';
import { isoUtc } from '../core/time.ts';
import { sqlOf } from '../db/sqlite.ts';
import type { HookSettings } from '../hooks/hook.ts';
import { statusOf } from '../hooks/hook-cursors.ts';
import type { OrderEvent } from '../orders/order.ts';
import { orderHistory } from '../orders/order-queries.ts';
import { type StockLedger, stockTarget } from '../outbox/stock-ledger.ts';

/** Time lines of one order and of one stock, for a person who asks why. */

/** Something that happened. */
interface Entry {
  /** ISO 8601 UTC; null if the time is not known. */
  at: string | null;
  what: string;
}

/** The events in order of time, and sentences on the present state. */
export interface Explanation {
  entries: Entry[];
  now: string[];
}

const CAME_BY = { webhook: 'a callback', poll: 'a poll' } as const;

interface StepRow {
  sku: string;
  subsidiaryId: string;
  orderId: string;
  seq: number;
  qty: number;
}

/** Explains an order that the mirror has. */
export function explainOrder(
  db: Database.Database,
  {
    orderId,
    hooks,
    ledger,
  }: { orderId: string; hooks: readonly HookSettings[]; ledger: Pick<StockLedger, 'reservedBy'> },
): Explanation {
  const { events, refused } = orderHistory(db, orderId);
  const heardAt = new Map(events.map(({ seq, observedAt }) => [seq, observedAt]));
  const entries: Entry[] = [
    ...events.map(eventEntry),
    ...repeatEntries(db, orderId),
    ...heldEntries(db, orderId),
    ...stepsOfOrder(db, orderId).map((step) => stepEntry(step, heardAt.get(step.seq) ?? null)),
    ...ackEntries(db, orderId),
    ...(refused ? [{ at: refused.at, what: `An acknowledgement was refused: ${refused.message}` }] : []),
    ...feedEntries(db, orderId),
    ...auditEntries(db, `order ${orderId}`),
  ];
  const forgotten = 'SELECT forgotten_at FROM orders WHERE order_id = ?';
  const forgottenAt = sqlOf(db).value<string | null>(forgotten, orderId);
  if (typeof forgottenAt === 'string') entries.push({ at: forgottenAt, what: 'Its customer was forgotten.' });
  const newest = events.at(-1)?.seq ?? 0;
  const now = [...orderNow(db, ledger, orderId), ...hookLines(db, hooks, newest)];
  return { entries: inTime(entries), now: now.length > 0 ? now : ['Nothing of it is open.'] };
}

function eventEntry({ seq, status, previousStatus, source, observedAt }: OrderEvent): Entry {
  const isSame = previousStatus === status;
  const before = previousStatus === null ? '' : `${previousStatus} to `;
  const change = isSame ? `changed, and still ${status}` : `${before}${status}`;
  return { at: observedAt, what: `Heard by ${CAME_BY[source]}: ${change}; event ${seq}.` };
}

/** Returns an entry for notifications that repeated known content. */
function repeatEntries(db: Database.Database, orderId: string): Entry[] {
  const text = `SELECT source, max(received_at) AS at, count(*) AS times FROM order_payloads
    WHERE order_id = ? AND applied = 0 GROUP BY seq, source`;
  const rows = sqlOf(db).rows<{ source: 'webhook' | 'poll'; at: string; times: number }>(text, orderId);
  return rows.map(({ source, at, times }) => ({
    at,
    what: `Heard again by ${CAME_BY[source]}${times > 1 ? `, ${times} times` : ''}: nothing that was new for the status.`,
  }));
}

/** Callbacks that would have led backwards in the order's life. */
function heldEntries(db: Database.Database, orderId: string): Entry[] {
  const text = `SELECT status, known_status AS known, received_at AS receivedAt, resolved_at AS resolvedAt, resolution
    FROM held_notifications WHERE order_id = ?`;
  interface Held {
    status: string | null;
    known: string | null;
    receivedAt: string;
    resolvedAt: string | null;
    resolution: 'confirmed' | 'refuted' | null;
  }
  return sqlOf(db)
    .rows<Held>(text, orderId)
    .flatMap(({ status, known, receivedAt, resolvedAt, resolution }) => [
      {
        at: receivedAt,
        what: `A callback said ${status}, a step back from ${known}: held until a poll says which is right.`,
      },
      ...(resolvedAt === null ? [] : [{ at: resolvedAt, what: `A poll ${resolution} the held ${status}.` }]),
    ]);
}

function stepsOfOrder(db: Database.Database, orderId: string): StepRow[] {
  return sqlOf(db).rows<StepRow>(`${STEPS} WHERE order_id = ? AND qty <> 0 ORDER BY seq, sku`, orderId);
}

const STEPS = 'SELECT sku, subsidiary_id AS subsidiaryId, order_id AS orderId, seq, qty FROM stock_steps';

function stepEntry({ sku, subsidiaryId, qty, seq }: StepRow, at: string | null): Entry {
  const where = `sku ${sku} in ${subsidiaryId}`;
  const what = qty > 0 ? `Took ${qty} of ${where}` : `Gave ${-qty} back to ${where}`;
  return { at, what: `${what}${seq === 0 ? '' : `; event ${seq}`}.` };
}

function ackEntries(db: Database.Database, orderId: string): Entry[] {
  const sql = sqlOf(db);
  const acks = sql.rows<{ branch: string; at: string; source: string; waitsSince: string | null }>(
    'SELECT branch, acked_at AS at, source, waits_since AS waitsSince FROM order_acks WHERE order_id = ?',
    orderId,
  );
  const waiting = sql.rows<{ branch: string; at: string }>(
    'SELECT branch, acked_at AS at FROM waiting_acks WHERE order_id = ?',
    orderId,
  );
  return [
    ...acks.map(({ branch, at, source, waitsSince }) => ({
      at,
      what: `Acknowledged by the POS${branch === '' ? '' : ` of store ${branch}`}, by ${source}.${waitsSince === null ? '' : ' Counts of its products are awaited.'}`,
    })),
    ...waiting.map(({ branch, at }) => ({
      at,
      what: `Branch ${branch} acknowledged it, which counts once the order is of that branch.`,
    })),
  ];
}

/** Returns, at a hub, the order's entries in the feeds of branches. */
function feedEntries(db: Database.Database, orderId: string): Entry[] {
  const rows = sqlOf(db).rows<{ branch: string; n: number; at: string; published: number }>(
    'SELECT branch, n, written_at AS at, published FROM feed WHERE order_id = ?',
    orderId,
  );
  return rows.map(({ branch, n, at, published }) => ({
    at,
    what: `${published ? 'Given to nats-server' : 'Written down'} for branch ${branch}, as its number ${n}.`,
  }));
}

function auditEntries(db: Database.Database, subject: string): Entry[] {
  const rows = sqlOf(db).rows<{ at: string; who: string; action: string; detail: string | null }>(
    'SELECT at, who, action, detail FROM audit WHERE subject = ?',
    subject,
  );
  return rows.map(({ at, who, action, detail }) => ({
    at,
    what: `${action}, by ${who}${detail === null ? '' : `: ${detail}`}`,
  }));
}

function orderNow(db: Database.Database, ledger: Pick<StockLedger, 'reservedBy'>, orderId: string): string[] {
  const sql = sqlOf(db);
  const toBook = sql.value<string | null>(
    'SELECT to_book_since FROM orders_to_book WHERE order_id = ?',
    orderId,
  );
  const incomplete = sql.value<string>('SELECT reason FROM incomplete_orders WHERE order_id = ?', orderId);
  const unassigned = sql.value<string>('SELECT order_id FROM unassigned_orders WHERE order_id = ?', orderId);
  const sentTo = sql.values<string>(
    'SELECT branch FROM sent_orders WHERE order_id = ? ORDER BY moved',
    orderId,
  );
  const lines = sql.rows<{ line: number; name: string | null }>(
    'SELECT line, product_name AS name FROM order_items WHERE order_id = ? AND sku IS NULL ORDER BY line',
    orderId,
  );
  const places = new Map(
    stepsOfOrder(db, orderId).map((step) => [`sku ${step.sku} in ${step.subsidiaryId}`, step]),
  );
  return [
    ...(toBook === undefined ? [] : ['The POS has to book it: it is in orders_to_book.']),
    ...(incomplete === undefined ? [] : [`It is not complete: ${incomplete}`]),
    ...(unassigned === undefined ? [] : ['No branch has its store, so it went to none.']),
    ...(sentTo.length === 0 ? [] : [`It went to: ${sentTo.join(', ')}.`]),
    ...lines.map(
      ({ line, name }) =>
        `Line ${line} (${name ?? 'no name'}) has no sku in the catalogue, so it takes no stock.`,
    ),
    ...[...places].flatMap(([name, place]) =>
      ledger.reservedBy(place).some((order) => order.orderId === orderId)
        ? [`It is subtracted from the last count of ${name}, which cannot contain it.`]
        : [],
    ),
  ];
}

function hookLines(db: Database.Database, hooks: readonly HookSettings[], newest: number): string[] {
  return hooks.map((hook) => {
    const { name, seq, lastFailure } = statusOf(db, hook);
    if (seq !== null && seq >= newest) return `Hook ${name} has got it, or was not to.`;
    const why = lastFailure === null ? '' : ` Its last failure: ${lastFailure}`;
    return `Hook ${name} waits before it${seq === null ? '' : `, at event ${seq}`}.${why}`;
  });
}

/** Returns the subsidiaries in which the platform or the POS has a stock of the sku. */
export function subsidiariesOf(db: Database.Database, sku: string): string[] {
  const text = `SELECT subsidiary_id FROM stocks WHERE sku = @sku
    UNION SELECT subsidiary_id FROM stock_counts WHERE sku = @sku ORDER BY 1`;
  return sqlOf(db).values<string>(text, { sku });
}

/** Explains a stock by its counts, orders and sent quantities, and how its wanted quantity comes about. */
export function explainStock(
  db: Database.Database,
  ledger: Pick<StockLedger, 'ofStock' | 'reservedBy'>,
  place: { sku: string; subsidiaryId: string },
): Explanation {
  const { sku, subsidiaryId } = place;
  const sql = sqlOf(db);
  const heardAt = (seq: number) =>
    sql.value<string>('SELECT observed_at FROM order_events WHERE seq = ?', seq);
  const steps = sql.rows<StepRow>(
    `${STEPS} WHERE sku = ? AND subsidiary_id = ? AND qty <> 0 ORDER BY seq`,
    sku,
    subsidiaryId,
  );
  const subtracted = new Set(ledger.reservedBy(place).map(({ orderId }) => orderId));
  const entries = [
    ...steps.map(({ seq, orderId, qty }) => ({
      at: heardAt(seq) ?? null,
      what: `Order ${codeOf(db, orderId)} ${qty > 0 ? `took ${qty}` : `gave ${-qty} back`}${subtracted.has(orderId) ? '; subtracted from the last count, which cannot contain it' : ''}.`,
    })),
    ...changeEntries(db, stockTarget(place)),
    ...lookEntries(db, place),
  ];
  return { entries: inTime(entries), now: stockNow(db, ledger, place) };
}

function codeOf(db: Database.Database, orderId: string): number | string {
  return sqlOf(db).value<number | null>('SELECT code FROM orders WHERE order_id = ?', orderId) ?? orderId;
}

interface ChangeRow {
  changeId: number;
  body: string;
  state: string;
  message: string | null;
  createdAt: string;
  settledAt: string | null;
  origin: string;
  reference: string | null;
  heldGuard: string | null;
  sentQty: number | null;
}

function changeEntries(db: Database.Database, target: string): Entry[] {
  const text = `SELECT change_id AS changeId, body, state, message, created_at AS createdAt, settled_at AS settledAt,
      coalesce(origin, source) AS origin, reference, held_guard AS heldGuard, sent_qty AS sentQty
    FROM outbox WHERE kind = 'stock' AND target = ? ORDER BY change_id`;
  return sqlOf(db)
    .rows<ChangeRow>(text, target)
    .flatMap((change) => {
      const { qty, show } = JSON.parse(change.body) as { qty?: number; show?: boolean };
      const values = [
        ...(qty === undefined ? [] : [`${qty}`]),
        ...(show === undefined ? [] : [show ? 'shown' : 'not shown']),
      ].join(', ');
      const by = `${change.origin}${change.reference === null ? '' : `, reference ${change.reference}`}`;
      const name = `Change ${change.changeId}`;
      const sent = change.sentQty === null ? '' : ` ${change.sentQty} was sent.`;
      const why = change.message === null ? '' : ` ${change.message}`;
      return [
        { at: change.createdAt, what: `${values} handed over by ${by}: change ${change.changeId}.` },
        change.settledAt === null
          ? {
              at: null,
              what: `${name} is ${change.heldGuard === null ? change.state : `held by the guard ${change.heldGuard}`}.${why}`,
            }
          : { at: change.settledAt, what: `${name} is ${change.state}.${sent}${why}` },
      ];
    });
}

function lookEntries(
  db: Database.Database,
  { sku, subsidiaryId }: { sku: string; subsidiaryId: string },
): Entry[] {
  const rows = sqlOf(db).rows<{ lookedMs: number; missing: number; refused: number }>(
    `SELECT looked_ms AS lookedMs, missing_qty AS missing, refused FROM stock_looks
     WHERE sku = ? AND subsidiary_id = ? AND looked_ms > 0`,
    sku,
    subsidiaryId,
  );
  return rows.map(({ lookedMs, missing, refused }) => ({
    at: isoUtc(lookedMs),
    what: refused
      ? 'Asked the platform before the last pieces; it did not answer.'
      : `Asked the platform before the last pieces: ${missing > 0 ? `it has ${missing} less than expected` : 'it has what was expected'}.`,
  }));
}

function stockNow(
  db: Database.Database,
  ledger: Pick<StockLedger, 'ofStock'>,
  place: { sku: string; subsidiaryId: string },
): string[] {
  const stock = ledger.ofStock(place);
  const platform = sqlOf(db).row<{ qty: number | null; uncertain: number }>(
    'SELECT qty, uncertain FROM stocks WHERE sku = ? AND subsidiary_id = ?',
    place.sku,
    place.subsidiaryId,
  );
  const listed =
    platform === undefined
      ? 'The platform was never seen to have this stock.'
      : `The platform had ${platform.qty ?? 'no quantity'} when it was last read or told${platform.uncertain ? ', and a call since has no clear answer' : ''}.`;
  if (stock === undefined) return [listed, 'The POS has not counted it, so it is left alone.'];
  const { countedQty, reservedQty, unheardQty, safetyQty, wantedQty, expectedQty, callId, callQty } = stock;
  const less = [
    ...(reservedQty > 0 ? [`${reservedQty} of orders that the count cannot contain`] : []),
    ...(unheardQty > 0 ? [`${unheardQty} that the platform sold in orders not heard of yet`] : []),
    ...(safetyQty > 0 ? [`${safetyQty} kept back as safety stock`] : []),
  ];
  const difference =
    callId !== null
      ? `A call with ${callQty} is under way.`
      : expectedQty === null
        ? 'What the platform has now is not known for certain.'
        : expectedQty === wantedQty
          ? `The platform should have ${expectedQty} now, so nothing is to be sent.`
          : `The platform should have ${expectedQty} now, so ${wantedQty} is to be sent.`;
  return [
    listed,
    `The POS counted ${countedQty}${less.length === 0 ? '' : `, less ${less.join(', less ')}`}: ${wantedQty} can be offered.`,
    difference,
    ...(stock.holds
      ? []
      : ['Orders are not held back in this branch, since its POS does not acknowledge them.']),
  ];
}

/** Entries without a time come last. */
function inTime(entries: readonly Entry[]): Entry[] {
  return entries.toSorted((a, b) => (a.at ?? '9').localeCompare(b.at ?? '9'));
}
