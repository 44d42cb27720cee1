import path from 'node:path';
import { systemClock } from '../../../src/core/system-clock.ts';
import type { Random } from '../../../src/core/time.ts';
import type { SandboxControl } from '../../../src/sandbox/control.ts';
import { seededRandom } from '../../support/fake-clock.ts';
import { rowsIn } from '../../support/rows.ts';
import { openWorkplace, SECRET, until, type Workplace } from '../../support/workplace.ts';
import { DaemonLife, type Program, runCommand } from './daemon-life.ts';
import { UpgradeReader } from './upgrade-reader.ts';

/** Fifty callbacks a second. */
const CALLBACK_EVERY_MS = 20;
const OPEN_ORDERS_MAX = 20;
/** Number of further callbacks that the daemon acknowledges before it is killed or stopped: from 5 to 44. */
const [CONFIRMED_MIN, CONFIRMED_MORE] = [5, 40];
/** Number of orders that the store has before it is upgraded. */
const OLD_ORDERS = 5;
const START_MS = 600;
const RESTORE_MS = 500;

export interface UpgradeOutcome {
  faults: string[];
  confirmed: number;
  reads: number;
  kills: number;
}

/** This version, and a made-up later one. */
export interface Versions {
  now: Program;
  later: Program;
}

/**
 * Upgrades a store to a later version, goes back by `restore --before-upgrade`, and upgrades to the later one again.
 * Kills at random moments, while callbacks arrive and a POS reads.
 */
export async function upgradeThereAndBack(seed: number, versions: Versions): Promise<UpgradeOutcome> {
  const random = seededRandom(seed);
  const place = await openWorkplace(seed, { webhookRetry: { delaysMs: [30, 60] } });
  const { storage, sandbox, config } = place;
  const mirror = path.join(storage, 'mirror.db');
  for (let i = 0; i < OLD_ORDERS; i++) sandbox.control.createOrder();
  // Exchanges the first token now, because a kill during the exchange locks a store out; crash-loop.test.ts tests that.
  const synced = await place.command('sync', 'orders');
  if (synced.code !== 0) throw new Error(`sync orders ended with ${synced.code}: ${synced.stderr}`);
  const old = rowsIn<{ id: string }>(mirror, 'SELECT order_id AS id FROM orders').map(({ id }) => id);
  sandbox.control.setWebhook({ callbackUrl: config.webhook.callbackUrl, secret: SECRET, active: true });
  const customers = new AbortController();
  const reader = new UpgradeReader(storage, 0);
  const arriving = arrive(place, random, customers.signal);
  const steps = new Steps(place, random, versions);
  try {
    await steps.live('now');
    await steps.live('later');
    await steps.goBack();
    await steps.live('now');
    const life = steps.start('later');
    await life.running();
    await steps.untilConfirmed();
    customers.abort();
    await arriving;
    await sandbox.control.settled();
    const read = await untilRead(place, reader);
    const faults = [...read.faults];
    if ((await life.stop()) !== 0) faults.push('SIGTERM ended the last daemon otherwise than with 0');
    faults.push(...mirrorFaults(mirror, old, read.acked), ...lostOrders(place));
    return { faults, confirmed: confirmedBy(sandbox.control), reads: read.reads, kills: steps.kills };
  } finally {
    customers.abort();
    reader.kill();
    steps.end();
    await place.close();
  }
}

const confirmedBy = (control: SandboxControl) =>
  control.deliveries().filter(({ outcome }) => outcome === 'confirmed').length;

class Steps {
  readonly #place: Workplace;
  readonly #random: Random;
  readonly #versions: Versions;
  #life: DaemonLife | undefined;
  kills = 0;

  constructor(place: Workplace, random: Random, versions: Versions) {
    this.#place = place;
    this.#random = random;
    this.#versions = versions;
  }

  start(version: keyof Versions): DaemonLife {
    this.#life = new DaemonLife(this.#versions[version].start(['run'], this.#place.env));
    return this.#life;
  }

  /**
   * Runs the daemon twice. It is killed first at a random moment of its start, then after it has worked for a while.
   */
  async live(version: keyof Versions): Promise<void> {
    const first = this.start(version);
    await systemClock.sleep(this.#random.next() * START_MS);
    await this.#kill(first);
    const second = this.start(version);
    await second.running();
    await this.untilConfirmed();
    await this.#kill(second);
  }

  /** Waits until the daemon has acknowledged some more callbacks. */
  async untilConfirmed(): Promise<void> {
    const { control } = this.#place.sandbox;
    const wanted = confirmedBy(control) + CONFIRMED_MIN + Math.floor(this.#random.next() * CONFIRMED_MORE);
    await until(`${wanted} callbacks are acknowledged`, () => confirmedBy(control) >= wanted);
  }

  async #kill(life: DaemonLife): Promise<void> {
    if (life.ended) throw new Error(`The daemon ended by itself:\n${life.log}`);
    life.kill();
    await life.dead();
    this.kills += 1;
  }

  /**
   * Restores the mirror of this version. If the restore is killed, a second one must succeed, or must say that the
   * mirror is of this version already.
   */
  async goBack(): Promise<void> {
    const words = ['restore', '--before-upgrade', '--json'];
    const begun = this.#versions.now.start(words, this.#place.env);
    const isKilled = new AbortController();
    void systemClock.sleep(this.#random.next() * RESTORE_MS, isKilled.signal).then(() => {
      if (!isKilled.signal.aborted) begun.kill('SIGKILL');
    });
    const first = await runCommand(begun);
    isKilled.abort();
    if (first.code === 0) return;
    const fail = ({ code, stderr }: typeof first, which: string) => {
      throw new Error(`The ${which} restore --before-upgrade ended with ${code}: ${stderr}`);
    };
    if (first.code !== null) fail(first, 'first');
    this.kills += 1;
    const second = await runCommand(this.#versions.now.start(words, this.#place.env));
    const isDone = second.code === 0 || (second.code === 2 && second.stderr.includes('of this version'));
    if (!isDone) fail(second, 'second');
  }

  end(): void {
    this.#life?.kill();
  }
}

/** Plays customers: makes new orders, and advances some that are open. */
async function arrive({ sandbox }: Workplace, random: Random, signal: AbortSignal): Promise<void> {
  const { control } = sandbox;
  const open: string[] = [];
  while (!signal.aborted) {
    const at = Math.floor(random.next() * open.length);
    const moved = open[at];
    if (moved !== undefined && (open.length >= OPEN_ORDERS_MAX || random.next() < 0.6)) {
      if (control.advanceOrder(moved) === undefined) open.splice(at, 1);
    } else {
      open.push(control.createOrder().internalOrderId);
    }
    await systemClock.sleep(CALLBACK_EVERY_MS, signal);
  }
}

/** Waits until the mirror has all orders and all acknowledgements; returns what the POS saw. */
async function untilRead(place: Workplace, reader: UpgradeReader) {
  const mirror = path.join(place.storage, 'mirror.db');
  const isAllThere = () => {
    if (place.differences().length > 0) return false;
    const acks = acksIn(mirror);
    return place.sandbox.control.orders().every(({ internalOrderId }) => acks.has(internalOrderId));
  };
  const waited = await until('all orders are there and acknowledged', isAllThere, 10_000).then(
    () => [],
    (error: Error) => [error.message, ...place.differences().slice(0, 5)],
  );
  const { reads, errors, acked } = await reader.stop();
  return { reads, acked, faults: [...waited, ...errors] };
}

const acksIn = (mirror: string) =>
  new Set(rowsIn<{ id: string }>(mirror, 'SELECT order_id AS id FROM order_acks').map(({ id }) => id));

/** Returns a sentence for each order whose callback was acknowledged and that is not in the mirror. */
function lostOrders({ sandbox, mirrorRows }: Workplace): string[] {
  const there = new Set(mirrorRows().map((row) => row.order_id));
  return sandbox.control
    .deliveries()
    .filter(({ outcome, orderId }) => outcome === 'confirmed' && !there.has(orderId))
    .map(({ orderId }) => `order ${orderId} was acknowledged and is lost`);
}

function mirrorFaults(mirror: string, old: readonly string[], acked: readonly string[]): string[] {
  const orders = new Set(
    rowsIn<{ id: string }>(mirror, 'SELECT order_id AS id FROM orders').map(({ id }) => id),
  );
  const acks = acksIn(mirror);
  const doubled = rowsIn<{ id: string; status: string }>(
    mirror,
    `SELECT order_id AS id, status FROM (SELECT order_id, status,
       lag(status) OVER (PARTITION BY order_id ORDER BY seq) AS before FROM order_events) WHERE status = before`,
  );
  return [
    ...old.filter((id) => !orders.has(id)).map((id) => `order ${id} of the older version is gone`),
    ...acked.filter((id) => !acks.has(id)).map((id) => `the acknowledgement of ${id} is lost`),
    ...doubled.map(({ id, status }) => `${status} of ${id} is doubled`),
    ...rowsIn<{ integrity_check: string }>(mirror, 'PRAGMA integrity_check')
      .map((row) => row.integrity_check)
      .filter((verdict) => verdict !== 'ok'),
  ];
}
