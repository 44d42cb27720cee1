import { setImmediate } from 'node:timers/promises';
import { counted, hasCode, type TillsyncError } from '../../core/errors.ts';
import { isoUtc } from '../../core/time.ts';
import type { AuditAction, AuditEvent } from '../../db/audit.ts';
import type {
  Acknowledgement,
  AckResult,
  ChangeSource,
  OutboxEntry,
  SubmittedChange,
} from '../intake/change.ts';
import { type Guard, type GuardReason, type GuardSettings, goesToZero } from '../intake/guards.ts';
import { type Acceptance, type IsLater, UNREADABLE, type ZeroHolds } from '../intake/intake.ts';
import { type ArticleRow, oneRowEach, type Row, type RowsOptions } from '../intake/same-article.ts';
import type { HoldBackSetting } from '../ledger/hold-back.ts';
import { type Versions, valueKeys } from './call-plan.ts';
import type { ManyChanges } from './outbox-admin.ts';
import type { OutboxCounts, OutboxFilter } from './outbox-queries.ts';
import type { MirrorStores, Stores } from './repositories.ts';
import { type UndoFilter, type UndoLine, undoLines } from './undo.ts';

interface OutboxOptions {
  stores: MirrorStores;
  guards: GuardSettings;
  /** `stock.hold_back_unbooked`. */
  holdBack: HoldBackSetting;
}

/** Maximum number of changes per transaction. */
const PART = 500;

/** Accepts changes of all interfaces except the inbox, and people's decisions about changes. */
export class OutboxService {
  readonly #options: OutboxOptions;
  readonly #listeners = new Set<() => void>();
  #inboxFirst: () => Promise<boolean> = async () => false;

  constructor(options: OutboxOptions) {
    this.#options = options;
  }

  /**
   * Calls `listener` when this process has queued changes, so that they are sent soon. Returns a function that
   * removes the listener.
   */
  onQueued(listener: () => void): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  /**
   * Sets the function that copies the inbox before this process accepts changes or acknowledgements, because the
   * inbox's rows were submitted earlier. `ingest` returns false if rows may be left.
   */
  afterInbox(ingest: () => Promise<boolean>): void {
    this.#inboxFirst = ingest;
  }

  /** Calls the listeners. Must be called when another part of the program has queued a change. */
  queued(): void {
    for (const listener of this.#listeners) listener();
  }

  /**
   * Accepts changes in one durable transaction, and returns one acceptance per item, in order. Throws `rate-limited`,
   * and accepts nothing, if a branch's queue is full. `origin` is who submitted; `all` and `zeros` are reasons of
   * guards to hold all changes, or the stocks that go to zero.
   */
  async submit(
    items: readonly SubmittedChange[],
    source: ChangeSource,
    how: { origin?: string; all?: GuardReason | undefined; zeros?: ZeroHolds | undefined } = {},
  ): Promise<Acceptance[]> {
    const { accepted } = await this.#submit(this.dated(items), source, {
      ...how,
      beforeInbox: await this.#ingestInbox(),
    });
    return accepted;
  }

  /** Reads when counts were made. An item whose time cannot be used becomes faulty. */
  dated<T extends SubmittedChange>(items: readonly T[]): T[] {
    return items.every(({ countedAt }) => countedAt == null)
      ? [...items]
      : this.#options.stores.read(({ intake }) => intake.dated(items));
  }

  /** Copies the inbox. If rows may be left in it, returns the time before the copy. */
  async #ingestInbox(): Promise<string | undefined> {
    const began = isoUtc(this.#options.stores.clock.nowMs());
    return (await this.#inboxFirst()) ? undefined : began;
  }

  async #submit(
    items: readonly SubmittedChange[],
    source: ChangeSource,
    how: {
      origin?: string;
      all?: GuardReason | undefined;
      zeros?: ZeroHolds | undefined;
      beforeInbox: string | undefined;
      begun?: Begun;
    },
  ): Promise<{ accepted: Acceptance[]; versions: Versions }> {
    const { stores, guards, holdBack } = this.#options;
    const result = await stores.write(({ reservations, intake, queries }) => {
      reservations.begin(holdBack);
      const { origin, all: hold, zeros: zeroHolds, beforeInbox, begun } = how;
      const since = begun && { asOfSeq: begun.asOfSeq, isLater: laterThan(begun, queries.newestVersion()) };
      const whenFull = 'refuse';
      const settings = { source, origin, guards, hold, zeroHolds, whenFull, beforeInbox } as const;
      return intake.acceptSome(items, { ...settings, ...since });
    });
    this.queued();
    return result;
  }

  /**
   * Accepts one large submission in transactions of 500 changes, so that others can write in between. The guards judge
   * the submission as a whole; `hold` is a reason to hold all of it. If the disk fails, the parts accepted so far stay.
   * If a branch's queue is full, `makeRoom` gets the changes that were accepted since its last call. What others submit
   * in between is newer than the rest.
   */
  async submitMany(
    items: readonly SubmittedChange[],
    source: ChangeSource,
    how: {
      origin?: string;
      hold?: GuardReason | undefined;
      onProgress?: (done: number, total: number) => void;
      makeRoom?: (full: TillsyncError, taken: readonly Acceptance[]) => Promise<void>;
    } = {},
  ): Promise<Acceptance[]> {
    const { hold: all, onProgress, makeRoom, ...more } = how;
    const { stores } = this.#options;
    const dated = this.dated(items);
    const beforeInbox = await this.#ingestInbox();
    const begun: Begun = stores.read(({ queries, reservations }) => ({
      version: queries.newestVersion(),
      asOfSeq: reservations.newestSeq,
      own: [],
    }));
    const zeros = items.length > PART ? await this.zeroHolds(items) : undefined;
    const accepted: Acceptance[] = [];
    let waitedFor = 0;
    while (accepted.length < items.length) {
      const part = dated.slice(accepted.length, accepted.length + PART);
      try {
        const taken = await this.#submit(part, source, { ...more, all, zeros, beforeInbox, begun });
        accepted.push(...taken.accepted);
        begun.own.push(taken.versions);
      } catch (error) {
        if (!hasCode(error, 'rate-limited') || !makeRoom || waitedFor === accepted.length) throw error;
        await makeRoom(error, accepted.slice(waitedFor));
        waitedFor = accepted.length;
      }
      onProgress?.(accepted.length, items.length);
    }
    return accepted;
  }

  /**
   * Makes one row of each article of a file or request, as `oneRowEach` does, after resolving each row in the mirror.
   */
  async oneRowEach<T extends Row>(items: readonly T[], options: RowsOptions): Promise<(T | Row)[]> {
    if (items.length < 2) return [...items];
    const placed: ArticleRow<T>[] = [];
    for (let start = 0; start < items.length; start += PART) {
      const part = items.slice(start, start + PART);
      placed.push(...this.#options.stores.read(({ intake }) => intake.articlesOf(part)));
      // Lets other work of the event loop run.
      await setImmediate();
    }
    return oneRowEach(placed, options);
  }

  /** Returns why guards would hold the stocks that go to zero if all `items` were submitted at once. */
  async zeroHolds(items: readonly SubmittedChange[]): Promise<ZeroHolds> {
    const { stores, guards } = this.#options;
    const zeros = items.filter(
      (item) => item.kind === 'stock' && 'change' in item && goesToZero(item.change.qty),
    );
    const branchOf = new Map<string, string>();
    for (let start = 0; start < zeros.length; start += PART) {
      const part = zeros.slice(start, start + PART);
      const fresh = stores.read(({ intake }) => intake.freshZeros(part));
      for (const [target, branch] of fresh) branchOf.set(target, branch);
      // Lets other work of the event loop run.
      await setImmediate();
    }
    const count = new Map<string, number>();
    for (const branch of branchOf.values()) count.set(branch, (count.get(branch) ?? 0) + 1);
    return stores.read(({ intake }) => intake.holdsFor(count, guards));
  }

  /** Adds the steps of new orders to the ledger, so that reads of stocks are up to date. */
  async catchUp(): Promise<void> {
    const { stores, holdBack } = this.#options;
    while (await stores.writeDerived(({ dispatcher }) => dispatcher.catchUp({ holdBack })));
  }

  /**
   * Records durably that the POS has booked these orders. `by` is an operator who acknowledges in place of the POS.
   */
  async acknowledge(
    acks: readonly Acknowledgement[],
    source: ChangeSource,
    by?: string,
  ): Promise<AckResult[]> {
    const beforeInbox = await this.#ingestInbox();
    const { stores } = this.#options;
    const results = await stores.write(({ reservations, audit }) => {
      const results = reservations.acknowledge(acks, source, { beforeInbox });
      const fresh = results
        .filter(({ state }) => state === 'new' || state === 'unheard')
        .map(({ orderId }) => orderId);
      if (by !== undefined && fresh.length > 0) {
        audit.note({ who: by, action: 'order.ack', ...ordersNamed(fresh) });
      }
      return results;
    });
    this.queued();
    return results;
  }

  list(filter: OutboxFilter): OutboxEntry[] {
    return this.#options.stores.read(({ queries }) => queries.list(filter));
  }

  /** Returns a page of settled changes, and the newest `settledSeq`. */
  settledAfter(after: number, filter: OutboxFilter): { changes: OutboxEntry[]; newest: number } {
    return this.#options.stores.read(({ queries }) => ({
      newest: queries.newestSettled(),
      changes: queries.settledAfter(after, filter),
    }));
  }

  get(changeId: number): OutboxEntry | undefined {
    return this.#options.stores.read(({ queries }) => queries.get(changeId));
  }

  /** Returns the change, or the change that replaced it in the end. */
  follow(changeId: number): OutboxEntry | undefined {
    return this.#options.stores.read(({ queries }) => queries.follow(changeId));
  }

  counts(): OutboxCounts {
    return this.#options.stores.read(({ queries }) => queries.counts());
  }

  /** Submits a rejected change again, as a new change. */
  retry(changeId: number, by: string): Promise<void> {
    return this.#decide('outbox.retry', by, changeId, ({ admin }) => {
      const acceptance = admin.retry(changeId, by);
      return `again as change ${acceptance.changeId}`;
    });
  }

  /** Discards a change that waits, is held by a guard or was rejected. */
  discard(changeId: number, by: string): Promise<void> {
    return this.#decide('outbox.discard', by, changeId, ({ admin }) => {
      admin.discard(changeId);
      return undefined;
    });
  }

  /**
   * Discards many changes in transactions of 500, so that tens of thousands keep nobody from reading or writing. The
   * audit log notes it with the first. Returns how many were discarded.
   */
  async discardAll(which: ManyChanges, who: string): Promise<number> {
    const { stores } = this.#options;
    const ids = stores.read(({ admin }) => admin.idsOf(which));
    const subject =
      'guard' in which
        ? `guard ${which.guard}`
        : `all rejected${which.origin === undefined ? '' : ` of ${which.origin}`}`;
    let discarded = 0;
    for (let start = 0; start < ids.length; start += PART) {
      const part = ids.slice(start, start + PART);
      discarded += await stores.write(({ admin, audit }) => {
        if (start === 0) {
          audit.note({ who, action: 'outbox.discard', subject, detail: counted(ids.length, 'change') });
        }
        return admin.discardStill(part, which);
      });
      // Lets other work of the event loop run.
      await setImmediate();
    }
    this.queued();
    return discarded;
  }

  /** Returns the lines that would undo a submission. Writes nothing. */
  undoLines(filter: UndoFilter): UndoLine[] {
    return this.#options.stores.read(({ db, intake }) =>
      undoLines(db, filter, (name) => {
        const resolution = intake.resolve({ kind: 'stock', change: { ...name, qty: 0 } });
        return resolution.state === 'resolved' ? resolution.target.key : undefined;
      }),
    );
  }

  /** Submits the earlier values as one submission. `what` names the undone submission in the audit log. */
  async undo(lines: readonly UndoLine[], who: string, what: string): Promise<Acceptance[]> {
    const reference = `undo of ${what}`;
    const items = lines.flatMap(({ item }) => (item ? [{ ...item, reference }] : []));
    const accepted = await this.submitMany(items, 'cli', { origin: who });
    await this.#options.stores.write(({ audit }) => {
      const detail = `${counted(items.length, 'earlier value')} handed over again`;
      audit.note({ who, action: 'outbox.undo', subject: what, detail });
    });
    return accepted;
  }

  /** Releases held changes. Returns how many a person's decision let go, those that a newer value overtook among them. */
  async release(which: { changeId: number } | { guard: Guard | null }, by: string): Promise<number> {
    if ('changeId' in which) {
      const { changeId } = which;
      await this.#decide('outbox.release', by, changeId, ({ admin }) => {
        admin.release(which);
        return undefined;
      });
      return 1;
    }
    const { stores } = this.#options;
    const released = await stores.write(({ admin, audit }) => {
      const count = admin.release(which);
      const subject = which.guard === null ? 'all that is held' : `guard ${which.guard}`;
      const detail = counted(count, 'change');
      if (count > 0) audit.note({ who: by, action: 'outbox.release', subject, detail });
      return count;
    });
    this.queued();
    return released;
  }

  /** Applies a decision and writes its audit record in one transaction. */
  async #decide(
    action: AuditAction,
    who: string,
    changeId: number,
    decide: (stores: Stores) => string | undefined,
  ): Promise<void> {
    const { stores } = this.#options;
    await stores.write((all) => {
      const change = all.queries.get(changeId);
      const outcome = decide(all);
      const detail = [change && describe(change), outcome].filter(Boolean).join('; ');
      all.audit.note({ who, action, subject: `change ${changeId}`, detail });
    });
    this.queued();
  }
}

/**
 * State when a large submission began: the newest version and event. `own`: versions that its parts have taken since.
 */
interface Begun {
  version: number;
  asOfSeq: number;
  own: Versions[];
}

/** Returns a test for values that others submitted since a submission began; undefined if there are none. */
function laterThan({ version: before, own }: Begun, newest: number): IsLater | undefined {
  const ownCount = own.reduce((sum, { first, last }) => sum + last - first + 1, 0);
  if (newest - before === ownCount) return undefined;
  return ({ version }) =>
    version > before && !own.some(({ first, last }) => first <= version && version <= last);
}

const ORDERS_NAMED = 10;

function ordersNamed(orderIds: readonly string[]): Pick<AuditEvent, 'subject' | 'detail'> {
  const named = orderIds.slice(0, ORDERS_NAMED).join(', ');
  const more = orderIds.length > ORDERS_NAMED ? ', …' : '';
  return { subject: counted(orderIds.length, 'order'), detail: named + more };
}

/**
 * Describes a change for the audit log. The content of an unreadable item is left out, because it may be anything.
 */
function describe({ kind, target, body }: OutboxEntry): string {
  const values = valueKeys(body).map((key) => `${key} ${JSON.stringify(body[key as keyof typeof body])}`);
  return target === UNREADABLE.key ? kind : `${kind} ${target}: ${values.join(', ')}`;
}
