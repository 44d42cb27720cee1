import type Database from 'better-sqlite3';
import { isoUtc } from '../core/time.ts';
import { hasRole } from '../db/marks.ts';
import { sqlOf } from '../db/sqlite.ts';
import { type Delivery, deliveriesOfOrder } from '../hooks/deliveries.ts';
import type { HookSettings } from '../hooks/hook.ts';
import { statusOf } from '../hooks/hook-cursors.ts';
import { waitingStatus } from '../orders/merging/held-callbacks.ts';
import { incompleteReason } from '../orders/merging/incomplete-orders.ts';
import { unlistedOrder } from '../orders/merging/listed-orders.ts';
import type { OrderEvent } from '../orders/merging/order.ts';
import { orderHistory } from '../orders/reading/order-queries.ts';
import { type StockLedger, stockTarget } from '../outbox/ledger/stock-ledger.ts';

/** Builds time lines that show a person how an order or a stock got its present state. No customer is named. */

/** Something that happened, as an entry of the time line. */
interface Entry {
  /** When it happened, ISO 8601 UTC; null if unknown. */
  at: string | null;
  what: string;
}

/** A time line, and sentences about the present state. */
export interface Explanation {
  entries: Entry[];
  now: string[];
}

/** A branch of this hub with its last report. */
export interface ReportingBranch {
  /** Permanent id of the branch in the hub's tables. */
  branch: string;
  name: string;
  seenAt: string | null;
  /**
   * The branch's last report. `mark`: number of the newest feed entry that the branch's mirror has. `waiting`: number
   * of changes and acknowledgements that wait at the branch for the hub.
   */
  report: { mark: number; waiting: number } | null;
}

const CAME_BY = { webhook: 'a callback', poll: 'a poll' } as const;

interface StepRow {
  sku: string;
  subsidiaryId: string;
  orderId: string;
  seq: number;
  qty: number;
}

interface OrderSubject {
  orderId: string;
  hooks: readonly HookSettings[];
  /** The branches, if this tillsync is a hub; otherwise empty. */
  branches: readonly ReportingBranch[];
  ledger: Pick<StockLedger, 'reservedBy'>;
}

/** Explains an order that is in the mirror. */
export function explainOrder(
  db: Database.Database,
  { orderId, hooks, branches, ledger }: OrderSubject,
): Explanation {
  const { events, refused } = orderHistory(db, orderId);
  const heardAt = new Map(events.map(({ seq, observedAt }) => [seq, observedAt]));
  const entries: Entry[] = [
    ...events.map(eventEntry),
    ...repeatEntries(db, orderId),
    ...heldEntries(db, orderId),
    ...stepsOfOrder(db, orderId).map((step) => stepEntry(step, heardAt.get(step.seq) ?? null)),
    ...ackEntries(db, orderId, branches),
    ...unlistedEntries(db, orderId),
    ...(refused ? [{ at: refused.at, what: `An acknowledgement was refused: ${refused.message}` }] : []),
    ...feedEntries(db, orderId, branches),
    ...deliveriesOfOrder(db, orderId).map(deliveryEntry),
    ...auditEntries(db, `order ${orderId}`),
  ];
  const forgotten = 'SELECT forgotten_at FROM _orders WHERE order_id = ?';
  const forgottenAt = sqlOf(db).value<string | null>(forgotten, orderId);
  if (typeof forgottenAt === 'string') entries.push({ at: forgottenAt, what: 'Its customer was forgotten.' });
  const newest = events.at(-1)?.seq ?? 0;
  const now = [
    ...orderNow(db, ledger, orderId),
    ...branchesNow(db, orderId, branches),
    ...hookLines(db, hooks, newest),
  ];
  return { entries: inTime(entries), now: now.length > 0 ? now : ['Nothing of it is open.'] };
}

function unlistedEntries(db: Database.Database, orderId: string): Entry[] {
  const order = unlistedOrder(db, orderId);
  if (!order) return [];
  return [
    { at: order.listedAt, what: "Last in the platform's list." },
    { at: order.since, what: "No longer in the platform's list of its day. It is kept." },
  ];
}

function eventEntry({ seq, status, previousStatus, source, observedAt }: OrderEvent): Entry {
  const by = CAME_BY[source];
  const what =
    previousStatus === status
      ? `Heard by ${by}: changed, and still ${status}; event ${seq}.`
      : previousStatus === null
        ? `Heard by ${by}: ${status}; event ${seq}.`
        : `Heard by ${by}: ${previousStatus} to ${status}; event ${seq}.`;
  return { at: observedAt, what };
}

/** Returns one entry per event and source for the payloads whose content was known already. */
function repeatEntries(db: Database.Database, orderId: string): Entry[] {
  const text = `SELECT source, max(received_at) AS at, count(*) AS times FROM _order_payloads
    WHERE order_id = ? AND applied = 0 GROUP BY seq, source`;
  const rows = sqlOf(db).rows<{ source: 'webhook' | 'poll'; at: string; times: number }>(text, orderId);
  return rows.map(({ source, at, times }) => ({
    at,
    what:
      times > 1
        ? `Heard again by ${CAME_BY[source]}, ${times} times: nothing that was new for the status.`
        : `Heard again by ${CAME_BY[source]}: nothing that was new for the status.`,
  }));
}

/** Returns entries for callbacks that contradict what was known, and for what resolved them. */
function heldEntries(db: Database.Database, orderId: string): Entry[] {
  const text = `SELECT status, known_status AS known, received_at AS receivedAt, resolved_at AS resolvedAt, resolution
    FROM _held_notifications WHERE order_id = ?`;
  interface Held {
    status: string | null;
    known: string | null;
    receivedAt: string;
    resolvedAt: string | null;
    resolution: 'confirmed' | 'refuted' | 'believed' | null;
  }
  return sqlOf(db)
    .rows<Held>(text, orderId)
    .flatMap(({ status, known, receivedAt, resolvedAt, resolution }) => {
      const said = `A callback said ${status}, which contradicts ${known}: held until a poll says which is right.`;
      const held = { at: receivedAt, what: said };
      if (resolvedAt === null || resolution === null) return [held];
      const what = {
        confirmed: `A poll confirmed the held ${status}.`,
        refuted: `A poll refuted the held ${status}.`,
        believed: `No poll came, and a second callback went on from the held ${status}: both are believed.`,
      }[resolution];
      return [held, { at: resolvedAt, what }];
    });
}

function stepsOfOrder(db: Database.Database, orderId: string): StepRow[] {
  return sqlOf(db).rows<StepRow>(`${STEPS} WHERE order_id = ? AND qty <> 0 ORDER BY seq, sku`, orderId);
}

const STEPS = 'SELECT sku, subsidiary_id AS subsidiaryId, order_id AS orderId, seq, qty FROM _stock_steps';

function stepEntry({ sku, subsidiaryId, qty, seq }: StepRow, at: string | null): Entry {
  const isOld = seq === 0;
  const what =
    qty > 0
      ? isOld
        ? `Took ${qty} of sku ${sku} in ${subsidiaryId}.`
        : `Took ${qty} of sku ${sku} in ${subsidiaryId}; event ${seq}.`
      : isOld
        ? `Gave ${-qty} back to sku ${sku} in ${subsidiaryId}.`
        : `Gave ${-qty} back to sku ${sku} in ${subsidiaryId}; event ${seq}.`;
  return { at, what };
}

function ackEntries(db: Database.Database, orderId: string, branches: readonly ReportingBranch[]): Entry[] {
  const sql = sqlOf(db);
  const acks = sql.rows<{
    branch: string;
    at: string;
    source: string;
    waitsSince: string | null;
    without: string | null;
  }>(
    'SELECT branch, acked_at AS at, source, waits_since AS waitsSince, without FROM _order_acks WHERE order_id = ?',
    orderId,
  );
  const waiting = hasRole(db, 'hub')
    ? sql.rows<{ branch: string; at: string }>(
        'SELECT branch, acked_at AS at FROM _waiting_acks WHERE order_id = ?',
        orderId,
      )
    : [];
  const named = (branch: string) => nameOf(branches, branch);
  return [
    ...acks.map(({ branch, at, source, waitsSince, without }) => {
      const ack =
        source === 'branch'
          ? `Branch ${named(branch)} handed up that its POS acknowledged it.`
          : branch === ''
            ? `Acknowledged by the POS, by ${source}.`
            : `Acknowledged by the POS of store ${branch}, by ${source}.`;
      const awaited = waitsSince === null ? '' : ' Counts of its products are awaited.';
      const lines = without === null ? [] : (JSON.parse(without) as number[]);
      const left =
        lines.length === 0 ? '' : ` It is still to be booked: the POS left out line ${lines.join(', ')}.`;
      return { at, what: `${ack}${left}${awaited}` };
    }),
    ...waiting.map(({ branch, at }) => ({
      at,
      what: `Branch ${named(branch)} acknowledged it, which counts once the order is of that branch.`,
    })),
  ];
}

function nameOf(branches: readonly ReportingBranch[], branch: string): string {
  return branches.find((each) => each.branch === branch)?.name ?? branch;
}

interface FeedRow {
  branch: string;
  n: number;
  at: string;
  published: number;
}

/** Returns the order's entries in the feeds of the hub's branches. */
function feedRows(db: Database.Database, orderId: string): FeedRow[] {
  if (!hasRole(db, 'hub')) return [];
  const text = 'SELECT branch, n, written_at AS at, published FROM _feed WHERE order_id = ? ORDER BY feed_id';
  return sqlOf(db).rows<FeedRow>(text, orderId);
}

function feedEntries(db: Database.Database, orderId: string, branches: readonly ReportingBranch[]): Entry[] {
  return feedRows(db, orderId).map(({ branch, n, at, published }) => {
    const name = nameOf(branches, branch);
    const what = published
      ? `Given to nats-server for branch ${name}, as its number ${n}.`
      : `Written down for branch ${name}, as its number ${n}.`;
    return { at, what };
  });
}

/**
 * Returns sentences about the link: at a hub, whether branches have the order's newest feed entry; at a branch, that
 * the order's acknowledgement still waits to be sent to the hub.
 */
function branchesNow(db: Database.Database, orderId: string, branches: readonly ReportingBranch[]): string[] {
  const newest = new Map(feedRows(db, orderId).map(({ branch, n }) => [branch, n]));
  const sent = 'SELECT branch FROM _sent_orders WHERE order_id = ? ORDER BY moved';
  const told = (hasRole(db, 'hub') ? sqlOf(db).values<string>(sent, orderId) : []).map((branch) => {
    const found = branches.find((each) => each.branch === branch);
    const name = found?.name ?? branch;
    const n = newest.get(branch);
    if (n === undefined) return `It went to branch ${name} long ago.`;
    if (!found?.report || found.seenAt === null) return `Branch ${name} has not reported yet.`;
    const { mark } = found.report;
    return mark >= n
      ? `Branch ${name} has it, as it reported at ${found.seenAt}.`
      : `Branch ${name} reported last at ${found.seenAt}, when it had number ${mark}; this is its number ${n}.`;
  });
  const waiting = 'SELECT order_id FROM _up_acks WHERE order_id = ?';
  const isOnItsWay = hasRole(db, 'branch') && sqlOf(db).value<string>(waiting, orderId) !== undefined;
  return !isOnItsWay ? told : [...told, 'Its acknowledgement waits to go up to the hub.'];
}

function deliveryEntry({ hook, seq, at, tries, taken, answer }: Delivery): Entry {
  const what = !taken
    ? `Hook ${hook} has not taken event ${seq}, tried so often: ${tries}. ${answer}`
    : tries > 1
      ? `Hook ${hook} took event ${seq} at try ${tries}: ${answer}.`
      : `Hook ${hook} took event ${seq}: ${answer}.`;
  return { at, what };
}

function auditEntries(db: Database.Database, subject: string): Entry[] {
  const rows = sqlOf(db).rows<{ at: string; who: string; action: string; detail: string | null }>(
    'SELECT at, who, action, detail FROM _audit WHERE subject = ?',
    subject,
  );
  return rows.map(({ at, who, action, detail }) => ({
    at,
    what: detail === null ? `Done by ${who}: ${action}.` : `Done by ${who}: ${action}, ${detail}.`,
  }));
}

/** Returns the lines for which no stock is known. A line of a product with several skus has no sku, but takes of each. */
function linesOfNoStock(db: Database.Database, orderId: string): { line: number; name: string | null }[] {
  const sql = sqlOf(db);
  const found = sql.value<string>('SELECT places FROM _ledger_orders WHERE order_id = ?', orderId) ?? '{}';
  const placed = Object.keys(JSON.parse(found)).map((key) => JSON.parse(key) as (string | null)[]);
  const text = `SELECT line, product_name AS name, product_external_id AS id FROM order_items
    WHERE order_id = ? AND sku IS NULL ORDER BY line`;
  return sql
    .rows<{ line: number; name: string | null; id: string | null }>(text, orderId)
    .filter(({ name, id }) => !placed.some(([, known, of]) => known === id && (id !== null || of === name)));
}

function orderNow(db: Database.Database, ledger: Pick<StockLedger, 'reservedBy'>, orderId: string): string[] {
  const sql = sqlOf(db);
  const toBook = sql.value<string | null>(
    'SELECT to_book_since FROM _orders JOIN orders_to_book USING (order_id) WHERE order_id = ?',
    orderId,
  );
  const incomplete = incompleteReason(db, orderId);
  const ofNobody = 'SELECT 1 FROM _unassigned_orders WHERE order_id = ? AND branch IS NULL';
  const unassigned = hasRole(db, 'hub') ? sql.value<number>(ofNobody, orderId) : undefined;
  const lines = linesOfNoStock(db, orderId);
  const places = new Map(
    stepsOfOrder(db, orderId).map((step) => [JSON.stringify([step.sku, step.subsidiaryId]), step]),
  );
  const held = waitingStatus(db, orderId);
  return [
    ...(held === undefined
      ? []
      : [
          `A callback says ${held.status}, which contradicts ${held.known}: it waits for a poll, and nothing of it counts until then.`,
        ]),
    ...(toBook === undefined ? [] : ['The POS has not booked it yet.']),
    ...(incomplete === null ? [] : [`It is not complete: ${incomplete}`]),
    ...(unassigned === undefined ? [] : ['No branch has its store, so it went to none.']),
    ...lines.map(
      ({ line, name }) => `Line ${line} (${name ?? '-'}) has no sku in the catalogue, so it takes no stock.`,
    ),
    ...[...places.values()].flatMap((place) =>
      ledger.reservedBy(place).some((order) => order.orderId === orderId)
        ? [
            `It is subtracted from the last count of sku ${place.sku} in ${place.subsidiaryId}, which cannot contain it.`,
          ]
        : [],
    ),
  ];
}

function hookLines(db: Database.Database, hooks: readonly HookSettings[], newest: number): string[] {
  const ofOrders = hooks.filter(({ events }) => events.includes('order'));
  return ofOrders.map((hook) => {
    const { name, seq, lastFailure } = statusOf(db, hook, 'order');
    if (seq !== null && seq >= newest) return `Hook ${name} has got it, or was not to.`;
    const waits =
      seq === null ? `Hook ${name} waits before it.` : `Hook ${name} waits before it, at event ${seq}.`;
    return lastFailure === null ? waits : `${waits} Its last failure: ${lastFailure}`;
  });
}

export interface StockExplanation extends Explanation {
  sku: string;
  subsidiaryId: string;
}

interface StockSubject {
  sku: string;
  /** Branch whose stock is explained; undefined for all branches. */
  of: { subsidiaryId: string | null } | undefined;
  /** The branches, if this tillsync is a hub; otherwise empty. */
  branches: readonly ReportingBranch[];
  ledger: Pick<StockLedger, 'ofStock' | 'reservedBy'>;
}

/** Explains a sku's stocks: their counts, orders and sent quantities, and how each wanted quantity is computed. */
export function explainStocks(
  db: Database.Database,
  { sku, of, branches, ledger }: StockSubject,
): StockExplanation[] {
  return subsidiariesOf(db, sku)
    .filter((subsidiaryId) => of === undefined || of.subsidiaryId === subsidiaryId)
    .map((subsidiaryId) => {
      const branch = branches.find((each) => each.branch === branchOf(db, subsidiaryId));
      return { sku, subsidiaryId, ...explainStock(db, ledger, { sku, subsidiaryId }, branch) };
    });
}

/** Returns the permanent id of the hub's branch with this subsidiary; the given id itself if no branch has it. */
function branchOf(db: Database.Database, subsidiaryId: string): string {
  if (!hasRole(db, 'hub')) return subsidiaryId;
  const text = 'SELECT branch FROM _feed_branches WHERE subsidiary_id = ?';
  return sqlOf(db).value<string>(text, subsidiaryId) ?? subsidiaryId;
}

/** Returns the subsidiaries for which the platform or the POS has a stock of the sku. */
function subsidiariesOf(db: Database.Database, sku: string): string[] {
  const text = `SELECT subsidiary_id FROM _stocks WHERE sku = @sku
    UNION SELECT subsidiary_id FROM _stock_counts WHERE sku = @sku ORDER BY 1`;
  return sqlOf(db).values<string>(text, { sku });
}

function explainStock(
  db: Database.Database,
  ledger: StockSubject['ledger'],
  place: { sku: string; subsidiaryId: string },
  branch: ReportingBranch | undefined,
): Explanation {
  const { sku, subsidiaryId } = place;
  const sql = sqlOf(db);
  const heardAt = (seq: number) =>
    sql.value<string>('SELECT observed_at FROM order_events WHERE seq = ?', seq);
  const steps = sql.rows<StepRow>(
    `${STEPS} WHERE sku = ? AND subsidiary_id = ? AND qty <> 0 ORDER BY seq DESC LIMIT ${SHOWN_MAX}`,
    sku,
    subsidiaryId,
  );
  const subtracted = new Set(ledger.reservedBy(place).map(({ orderId }) => orderId));
  const changes = changesOf(db, stockTarget(place));
  const entries = [
    ...steps.toReversed().map(({ seq, orderId, qty }) => {
      const code = codeOf(db, orderId);
      const step = qty > 0 ? `Order ${code} took ${qty}.` : `Order ${code} gave ${-qty} back.`;
      const why = subtracted.has(orderId) ? ' The last count cannot contain it, so it is taken off.' : '';
      return { at: heardAt(seq) ?? null, what: `${step}${why}` };
    }),
    ...changes.toReversed().flatMap((change) => [
      { at: change.createdAt, what: handedOver(change, branch) },
      { at: change.settledAt, what: becameOf(change) },
    ]),
    ...lookEntries(db, place),
  ];
  const isCut = steps.length === SHOWN_MAX || changes.length === SHOWN_MAX;
  const now = [
    ...stockNow(db, ledger, place),
    ...reportedNow(branch),
    ...(isCut ? [`Of changes and of orders only the newest ${SHOWN_MAX} are shown.`] : []),
  ];
  return { entries: inTime(entries), now };
}

function codeOf(db: Database.Database, orderId: string): number | string {
  return sqlOf(db).value<number | null>('SELECT code FROM _orders WHERE order_id = ?', orderId) ?? orderId;
}

/** Maximum number of changes, and of steps of orders, in the time line of a stock. Older ones are left out. */
const SHOWN_MAX = 200;

interface ChangeRow {
  changeId: number;
  body: string;
  state: 'pending' | 'sending' | 'done' | 'rejected' | 'superseded';
  message: string | null;
  createdAt: string;
  settledAt: string | null;
  source: string;
  origin: string;
  reference: string | null;
  countedAt: string | null;
  heldGuard: string | null;
  sentQty: number | null;
}

/** Returns the changes of a stock, newest first. */
function changesOf(db: Database.Database, target: string): ChangeRow[] {
  const text = `SELECT change_id AS changeId, body, state, message, created_at AS createdAt, settled_at AS settledAt,
      source, coalesce(origin, source) AS origin, reference, counted_at AS countedAt, held_guard AS heldGuard, sent_qty AS sentQty
    FROM _outbox WHERE kind = 'stock' AND target = ? AND state <> 'counted' ORDER BY change_id DESC LIMIT ${SHOWN_MAX}`;
  return sqlOf(db).rows<ChangeRow>(text, target);
}

function handedOver(
  { changeId, body, source, origin, reference, countedAt }: ChangeRow,
  branch: ReportingBranch | undefined,
): string {
  const { qty, show } = JSON.parse(body) as { qty?: number; show?: boolean };
  const values = [
    ...(qty === undefined ? [] : [`${qty}`]),
    ...(show === undefined ? [] : [`show ${show}`]),
  ].join(', ');
  const dated = countedAt === null ? '' : ` Counted at ${countedAt}.`;
  if (source === 'branch') {
    return `The count of branch ${branch?.name ?? '-'} came up: ${values}; change ${changeId}.${dated}`;
  }
  return reference === null
    ? `Handed over by ${origin}: ${values}; change ${changeId}.${dated}`
    : `Handed over by ${origin} under reference ${reference}: ${values}; change ${changeId}.${dated}`;
}

function becameOf({ changeId, state, heldGuard, sentQty, message }: ChangeRow): string {
  const became = {
    pending: `Change ${changeId} waits.`,
    sending: `Change ${changeId} is on its way.`,
    done: `Change ${changeId} is done.`,
    rejected: `Change ${changeId} was rejected.`,
    superseded: `Change ${changeId} was replaced.`,
  }[state];
  return [
    heldGuard === null ? became : `Change ${changeId} is held by the guard ${heldGuard}.`,
    ...(sentQty === null ? [] : [`Sent: ${sentQty}.`]),
    ...(message === null ? [] : [message]),
  ].join(' ');
}

function lookEntries(
  db: Database.Database,
  { sku, subsidiaryId }: { sku: string; subsidiaryId: string },
): Entry[] {
  const rows = sqlOf(db).rows<{ lookedMs: number; missing: number; refused: number }>(
    `SELECT looked_ms AS lookedMs, missing_qty AS missing, look_refused AS refused FROM _stock_notes
     WHERE sku = ? AND subsidiary_id = ? AND looked_ms > 0`,
    sku,
    subsidiaryId,
  );
  return rows.map(({ lookedMs, missing, refused }) => {
    const found =
      missing > 0
        ? `Asked the platform before the last pieces: it has ${missing} less than expected.`
        : 'Asked the platform before the last pieces: it has what was expected.';
    const what = refused ? 'Asked the platform before the last pieces; it did not answer.' : found;
    return { at: isoUtc(lookedMs), what };
  });
}

/** Returns sentences that derive a stock's wanted quantity, with one number each, so that a person can add them up. */
function stockNow(
  db: Database.Database,
  ledger: Pick<StockLedger, 'ofStock'>,
  place: { sku: string; subsidiaryId: string },
): string[] {
  const stock = ledger.ofStock(place);
  const platform = sqlOf(db).row<{ qty: number | null; uncertain: number }>(
    'SELECT qty, uncertain FROM _stocks WHERE sku = ? AND subsidiary_id = ?',
    place.sku,
    place.subsidiaryId,
  );
  const listed =
    platform === undefined
      ? ['The platform was never seen to have this stock.']
      : [
          `When the platform was last read or told, it had ${platform.qty ?? '-'}.`,
          ...(platform.uncertain ? ['A call since then has no clear answer.'] : []),
        ];
  if (stock === undefined) return [...listed, 'The POS has not counted it, so it is left alone.'];
  const { countedQty, reservedQty, unheardQty, safetyQty, wantedQty, expectedQty, callId, callQty } = stock;
  const difference =
    callId !== null
      ? `A call with ${callQty} is under way.`
      : expectedQty === null
        ? 'What the platform has now is not known for certain.'
        : expectedQty === wantedQty
          ? `The platform should have ${expectedQty} now, so nothing is to be sent.`
          : `The platform should have ${expectedQty} now, so ${wantedQty} is to be sent.`;
  return [
    ...listed,
    `Counted by the POS: ${countedQty}.`,
    ...(reservedQty > 0 ? [`Taken off for orders that the count cannot contain: ${reservedQty}.`] : []),
    ...(unheardQty > 0 ? [`Taken off for orders that are not heard of yet: ${unheardQty}.`] : []),
    ...(safetyQty > 0 ? [`Kept back as safety stock: ${safetyQty}.`] : []),
    `Can be offered: ${wantedQty}.`,
    difference,
    ...(stock.holds
      ? []
      : ['Orders are not held back in this branch, since its POS does not acknowledge them.']),
  ];
}

/** Returns a sentence about the last report of the stock's branch, if this tillsync is a hub. */
function reportedNow(branch: ReportingBranch | undefined): string[] {
  if (!branch?.report || branch.seenAt === null) return [];
  const { name, seenAt, report } = branch;
  return report.waiting === 0
    ? [`Branch ${name} has nothing for the hub, as it reported at ${seenAt}.`]
    : [`Waiting at branch ${name} for the hub, as it reported at ${seenAt}: ${report.waiting}.`];
}

/** Sorts entries by time. Entries without a time come last. */
function inTime(entries: readonly Entry[]): Entry[] {
  return entries.toSorted((a, b) => (a.at ?? '9').localeCompare(b.at ?? '9'));
}
