import { createHash } from 'node:crypto';
import type { Daemon } from '../../../src/daemon/daemon.ts';
import { compareOrders, MIRRORED_ROWS, type MirroredRow } from '../../../src/demo/demo-pos.ts';
import { isBackwards, isKnownStatus } from '../../../src/orders/merging/order.ts';
import type { CatalogProduct } from '../../../src/sandbox/catalog.ts';
import type { Shop } from './shop.ts';
import type { SimulatedPos } from './simulated-pos.ts';
import type { SimulatedStore } from './simulated-store.ts';

const MIB = 1024 * 1024;
const DAY_MS = 86_400_000;
/** Allowance for calls that were on their way when the platform began to block. */
const ON_THE_WAY_MS = 4_000;
/** Duration of the platform's block after a 403. */
const BLOCK_MS = 300_000;
/** At night, tillsync is taken to know all orders if its last successful poll is not older than this. */
const POLLED_WITHIN_MS = 900_000;
/** Maximum number of further calls in a block; tillsync tries again one and three minutes after the block began. */
const PROBES_MAX = 3;

/**
 * Uses of a refused refresh token until the operator has looked: at once, one and eleven minutes later, and once after a
 * night in which the store was switched off.
 */
const USES_PER_REFUSAL = 4;
/** Alarms that are expected: about this machine's disk, products without an id of the shop, and words of the shop. */
const EXPECTED_ALARMS = ['storage.', 'catalog.unmapped', 'orders.status-unknown'];

/** Events that explain uses of dead tokens. */
export interface Excuses {
  revocations: number;
  lostRefreshes: number;
  /** Number of holidays, each of which may be longer than a refresh token lives. */
  holidays: number;
}

/** Returns a sentence for each fault at the end of a calm hour; empty if all is well. */
export function faultsOf(
  store: SimulatedStore,
  daemon: Daemon,
  pos: SimulatedPos,
  history: Shop['history'],
  excuses: Excuses,
): string[] {
  const { control } = store.sandbox;
  const rows = daemon.services.mirror.read((db) => db.prepare<[], MirroredRow>(MIRRORED_ROWS).all());
  return [
    ...compareOrders(control.orders(), rows).differences,
    ...productDifferences(daemon, control.products()),
    ...pos.unheard(),
    ...pos.faults,
    ...feedFaults(daemon, pos, history, store.profile.keptDays !== null),
    ...limitFaults(store),
    ...tokenFaults(store, excuses),
    ...alarmFaults(daemon),
    ...diskFaults(store, control.orders().length),
  ];
}

/**
 * Returns the POS's values that the platform lacks at night, when nothing was sold for hours and nothing is on its
 * way; undefined if something still is.
 */
export function nightFaults(store: SimulatedStore, pos: SimulatedPos): string[] | undefined {
  const { daemon, clock } = store;
  if (!daemon) return undefined;
  const { mirror, outbox } = daemon.services;
  const { pending, sending, needsRead, held, rejected } = outbox.counts();
  const isPolled = clock.nowMs() - (mirror.polls.lastOkMs() ?? 0) < POLLED_WITHIN_MS;
  const isQuiet = pending + sending + needsRead + held + rejected === 0 && isPolled;
  return isQuiet && pos.isUpToDate(mirror.orders.newestSeq()) ? pos.unheard() : undefined;
}

/** Returns one digest of the platform's calls and the mirror's content; equal for equal seeds. */
export function digestOf(store: SimulatedStore, daemon: Daemon): string {
  const hash = createHash('sha256');
  hash.update(JSON.stringify(store.sandbox.control.calls()));
  hash.update(JSON.stringify(store.sandbox.control.deliveries()));
  for (const table of ['orders', 'order_items', 'order_events', 'stocks', 'skus', 'freshness', 'outbox']) {
    const rows = daemon.services.mirror.read((db) => db.prepare(`SELECT * FROM ${table}`).all());
    hash.update(JSON.stringify(rows));
  }
  return hash.digest('hex').slice(0, 16);
}

function productDifferences({ services }: Daemon, platform: readonly CatalogProduct[]): string[] {
  const text = (value: unknown) => JSON.stringify(value);
  const bySku = (a: { sku: unknown }, b: { sku: unknown }) => Number(a.sku) - Number(b.sku);
  const byBranch = (a: { subsidiaryId: string }, b: { subsidiaryId: string }) =>
    a.subsidiaryId.localeCompare(b.subsidiaryId);
  const mirrored = new Map(
    services.stores
      .read(({ catalogQueries }) => catalogQueries.products({ limit: 10_000 }))
      .map((product) => [product.productId, product]),
  );
  const there = new Set(platform.map(({ id }) => id));
  const gone = [...mirrored.values()].filter(
    ({ productId, vanishedAt }) => !vanishedAt && !there.has(productId),
  );
  const differences = platform.flatMap(({ id, name, category, show, children }) => {
    const there = {
      name,
      category,
      show,
      vanishedAt: null,
      skus: children.toSorted(bySku).map(({ sku, stocks, integrations, ...rest }) => ({
        sku: String(sku),
        ...rest,
        stocks: stocks.toSorted(byBranch),
        integrations: integrations.toSorted(byBranch),
      })),
    };
    const product = mirrored.get(id);
    const here = product && {
      name: product.name,
      category: product.category,
      show: product.show,
      vanishedAt: product.vanishedAt,
      skus: product.skus.toSorted(bySku).map(({ stocks, integrations, ...rest }) => ({
        sku: rest.sku,
        barcode: rest.barcode,
        price: rest.price,
        withDiscount: fromBit(rest.withDiscount),
        discount: rest.discount,
        show: rest.show,
        stocks: stocks.toSorted(byBranch).map(({ subsidiaryId, qty, show: shown }) => ({
          subsidiaryId,
          qty,
          show: shown,
        })),
        integrations: integrations.toSorted(byBranch),
      })),
    };
    return text(there) === text(here) ? [] : [`product ${id} is ${text(there)} there and ${text(here)} here`];
  });
  return [...differences, ...gone.map(({ productId }) => `product ${productId} is gone there and not here`)];
}

function fromBit(value: unknown): unknown {
  return value === 0 || value === 1 ? value === 1 : value;
}

function feedFaults(
  { services }: Daemon,
  pos: SimulatedPos,
  history: Shop['history'],
  areForgotten: boolean,
): string[] {
  const faults: string[] = [];
  const last = new Map<string, string>();
  let before = 0;
  for (;;) {
    const events = services.mirror.orders.eventsAfter(before, 1_000);
    for (const { seq, orderId, status, previousStatus, source } of events) {
      if (seq <= before) faults.push(`event ${seq} follows ${before}`);
      before = seq;
      // The previous event of the order may have been deleted by age.
      if (!areForgotten && (last.get(orderId) ?? null) !== previousStatus) {
        faults.push(`event ${seq} takes ${orderId} from ${previousStatus}, which was ${last.get(orderId)}`);
      }
      if (source === 'webhook' && isBackwards(previousStatus, status)) {
        faults.push(`event ${seq}: a webhook took ${orderId} back from ${previousStatus} to ${status}`);
      }
      if (isPast(history.get(orderId), previousStatus, status)) {
        faults.push(`event ${seq} (${source}) took ${orderId} back from ${previousStatus} to ${status}`);
      }
      last.set(orderId, String(status));
      const seen = pos.events.get(seq);
      if (seen !== undefined && seen !== `${orderId} ${status}`) faults.push(`event ${seq} was ${seen} once`);
    }
    if (events.length === 0) break;
  }
  for (const seq of pos.events.keys()) if (seq > before) faults.push(`event ${seq} was seen and is gone`);
  for (const [orderId, status] of last) {
    const now = services.mirror.orders.get(orderId)?.status;
    if (now !== status) faults.push(`the last event of ${orderId} says ${status}, the order ${now}`);
  }
  return faults;
}

/**
 * Whether the order had left the status `to` for good before it reached `from`. A status that the order had twice, or
 * an unknown one, proves nothing.
 */
function isPast(history: readonly string[] = [], from: string | null, to: string | null): boolean {
  const [left, reached] = [to, from].map((status) => {
    if (status === null || !isKnownStatus(status)) return -1;
    const at = history.indexOf(status);
    return at === history.lastIndexOf(status) ? at : -1;
  }) as [number, number];
  return left >= 0 && left < reached;
}

function limitFaults(store: SimulatedStore): string[] {
  const { control } = store.sandbox;
  const calls = control.calls();
  const blocks = calls.filter(({ fault }) => fault === 'block').map(({ arrivedMs }) => arrivedMs);
  const ofLie = (arrivedMs: number) =>
    blocks.findLast((from) => arrivedMs >= from && arrivedMs < from + BLOCK_MS);
  const probes = new Map<number, number>();
  const faults: string[] = [];
  for (const { endpoint, at, arrivedMs, broken } of control.violations()) {
    // In a block without a reason a few further calls are allowed; only they show whether a permission is missing.
    const from = broken === 'blocked' ? ofLie(arrivedMs) : undefined;
    if (from === undefined) faults.push(`${endpoint} at ${at} broke a limit: ${broken}`);
    else if (arrivedMs - from > ON_THE_WAY_MS) probes.set(from, (probes.get(from) ?? 0) + 1);
  }
  for (const count of probes.values()) {
    if (count > PROBES_MAX) faults.push(`${count} calls were made within one block`);
  }
  const polls = calls.filter(({ endpoint }) => endpoint === 'order.all').length;
  const most = ((store.world.nowMs() - store.profile.startMs) / 120_000) * 1.01 + 5;
  if (polls > most) faults.push(`${polls} polls, where ${Math.floor(most)} may be`);
  return faults;
}

function tokenFaults(store: SimulatedStore, { revocations, lostRefreshes, holidays }: Excuses): string[] {
  const uses = store.sandbox.control.deadRefreshUses();
  const of = (wanted: string) => uses.filter(({ cause }) => cause === wanted).length;
  const faults: string[] = [];
  const check = (cause: string, refusals: number) => {
    const most = refusals * USES_PER_REFUSAL;
    if (of(cause) > most)
      faults.push(`${of(cause)} uses of ${cause} refresh tokens, where ${most} are explained`);
  };
  check('rotated', lostRefreshes);
  // After a lost reply tillsync uses its old token again, and the platform may then revoke the new ones. So each lost
  // reply also explains one use of a revoked token.
  check('revoked', revocations + lostRefreshes);
  check('expired', holidays);
  check('unknown', 0);
  return faults;
}

function alarmFaults({ services, stalledLoops }: Daemon): string[] {
  const flows = services.mirror.health
    .freshness()
    // The simulation makes no backups, because a backup needs a process of its own.
    .filter(({ subject, state, lastOkAt }) => subject !== 'backup' && (state !== 'ok' || lastOkAt === null))
    .map(({ subject, state, message }) => `${subject} is ${state}: ${message}`);
  const alarms = services.mirror.health
    .raised()
    .filter(({ key }) => !EXPECTED_ALARMS.some((expected) => key.startsWith(expected)))
    .map(({ key, message }) => `the alarm ${key} is up: ${message}`);
  const inDoubt = services.mirror.read((db) =>
    db
      .prepare<[], { orderId: string; status: string | null }>(
        'SELECT order_id AS orderId, status FROM _held_notifications WHERE resolved_at IS NULL',
      )
      .all(),
  );
  const { pending, sending, needsRead, held, rejected } = services.outbox.counts();
  const left = pending + sending + needsRead + held + rejected;
  return [
    ...flows,
    ...alarms,
    ...stalledLoops().map((name) => `the loop ${name} stands still`),
    ...inDoubt.map(({ orderId, status }) => `no poll has said whether ${orderId} is ${status}`),
    ...(left > 0 ? [`${left} changes are left in line`] : []),
  ];
}

function diskFaults(store: SimulatedStore, orders: number): string[] {
  const days = Math.max(1, (store.world.nowMs() - store.profile.startMs) / DAY_MS);
  const most: Record<string, number> = {
    // Each order adds its payload and events, and each day adds the values of the POS.
    'mirror.db': 2 * MIB + orders * 16_384 + days * 0.5 * MIB,
    'mirror.db-wal': 17 * MIB,
    'state.db': MIB,
    'state.db-wal': 2 * MIB,
    'inbox/inbox.db': MIB,
  };
  return Object.entries(store.fileBytes()).flatMap(([name, bytes]) =>
    bytes > (most[name] ?? MIB) ? [`${name} has ${bytes} bytes, more than ${most[name] ?? MIB}`] : [],
  );
}
