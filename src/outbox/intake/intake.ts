import type Database from 'better-sqlite3';
import type { BranchDirectory, CatalogLookup, CatalogMapping } from '../../catalog/product.ts';
import { subsidiaryOf } from '../../catalog/unmapped.ts';
import { TillsyncError } from '../../core/errors.ts';
import { type Clock, isoUtc } from '../../core/time.ts';
import { seen } from '../../db/seen.ts';
import { type Sql, sqlOf } from '../../db/sqlite.ts';
import { newestSeqAt } from '../../orders/reading/mirror-file.ts';
import { MovedIds } from '../ledger/moved-ids.ts';
import { Reservations } from '../ledger/reservations.ts';
import {
  comeBackMs,
  PassedOver,
  PRIORITY_OTHERS,
  priorityOf,
  type Versions,
  valueKeys,
  WAITING_MAX,
} from '../sending/call-plan.ts';
import { KnownValues } from '../sending/known-values.ts';
import { type NewChange, OutboxQueue } from '../sending/queue.ts';
import type { Rival } from '../sending/wanted.ts';
import {
  type AckResult,
  type Change,
  type ChangeBody,
  type ChangeSource,
  countedLater,
  literalAddress,
  literalTarget,
  type OutboxChange,
  type ProductChange,
  type Resolution,
  readChange,
  type StockChange,
  type SubmittedChange,
  stockNameOf,
  type Target,
  withCountTime,
} from './change.ts';
import {
  aboveZeroNeeded,
  type GuardReason,
  type GuardSettings,
  goesToZero,
  guardPrice,
  guardZeroItems,
  guardZeroShare,
} from './guards.ts';
import { type InboxAck, type InboxBatch, type InboxChange, WIRE_NAMES } from './inbox.ts';
import { articleOf, resolveChange } from './resolve.ts';
import type { ArticleRow, Row } from './same-article.ts';

export interface OutboxIntakeOptions {
  db: Database.Database;
  clock: Clock;
  catalog: CatalogLookup;
  branches: BranchDirectory;
  /** Name of this branch at its hub; left out if there is no hub. */
  ownName?: string | undefined;
  /** Zone of counts' times that name none. */
  timezone?: string | undefined;
}

/** Reasons why a guard holds stocks that go to zero, by branch (`''` if unknown). */
export type ZeroHolds = ReadonlyMap<string, GuardReason>;

/** Number of stocks that newly go to zero in each branch. */
type ZerosByBranch = ReadonlyMap<string, number>;

/** Whether a value that is there already was submitted later than an item. */
export type IsLater = (there: Rival) => boolean;

interface AcceptOptions {
  source: ChangeSource;
  /** Who submitted the changes, if more is known than the interface. */
  origin?: string | undefined;
  guards: GuardSettings;
  /** Reason to hold the whole submission, such as an inventory that lacks too many stocks. */
  hold?: GuardReason | undefined;
  /**
   * Reasons to hold the stocks that go to zero, from `holdsFor`. Set for each part of a large submission that is
   * judged as a whole.
   */
  zeroHolds?: ZeroHolds | undefined;
  /** Newest event of the order feed at the time of submission, if the changes were submitted earlier than now. */
  asOfSeq?: number;
  /** Whether this value was submitted later than the items. */
  isLater?: IsLater | undefined;
  /** Branch in whose turn the changes without a branch are sent. */
  branch?: string | undefined;
  /**
   * Time of submission (ISO 8601 UTC), set if the inbox may still contain earlier rows. These rank below this
   * submission when they are copied later.
   */
  beforeInbox?: string | undefined;
  /**
   * What happens to changes for which a branch's queue is full: `refuse` throws `rate-limited` and accepts nothing,
   * `stop` accepts the changes before the first of them, `PassedOver` skips them. Left out: no limit.
   */
  whenFull?: 'refuse' | 'stop' | PassedOver;
}

export interface Acceptance {
  changeId: number;
  /** `superseded`: a count that was made later is there already. */
  state: 'pending' | 'held' | 'rejected' | 'superseded';
  /** Reason why the change is held, rejected or superseded; null if it, or a newer value of its target, waits or was sent. */
  message: string | null;
  candidates: CatalogMapping[];
}

/** An item with its resolved target. `resolution` is null if the item is unreadable. */
interface Placed {
  item: SubmittedChange;
  resolution: Resolution | null;
  target: Target;
  /** Time at which the change sets the stock to zero; null for any other change. */
  zeroedAt: string | null;
  hold: GuardReason | undefined;
}

const BASIS: Record<Exclude<Resolution['state'], 'rejected'>, OutboxChange['basis']> = {
  resolved: 'mirror',
  'as-is': 'as-is',
  'needs-read': 'needs-read',
};
const HANDED_OVER = seen('hand-over');
/** Target that unreadable items get. */
export const UNREADABLE: Target = {
  key: 'unreadable',
  conflictKey: 'unreadable',
  sku: null,
  subsidiaryId: null,
};

/** Accepts changes into the outbox. They are durable when the surrounding transaction is. */
export class OutboxIntake {
  readonly #options: OutboxIntakeOptions;
  readonly #sql: Sql;
  readonly #queue: OutboxQueue;
  readonly #values: KnownValues;
  readonly #reservations: Reservations;
  readonly #moved: MovedIds;
  /** Resolutions of changes before they are accepted, as found in one state of the database. */
  #found: { state: string; of: Map<object, Resolution> } = { state: '', of: new Map() };

  constructor(options: OutboxIntakeOptions) {
    this.#options = options;
    this.#reservations = new Reservations(options);
    this.#sql = sqlOf(options.db);
    this.#queue = new OutboxQueue(options.db);
    this.#values = new KnownValues(options.db);
    this.#moved = new MovedIds({ ...options, queue: this.#queue, values: this.#values });
  }

  /**
   * Resolves a change's target in the mirror. `alreadyRead` means that its product was just read from the platform.
   */
  resolve(change: Change, alreadyRead = false): Resolution {
    const holdsBack = () => this.#reservations.holdsBack;
    return resolveChange(this.#withoutOwnName(change), { ...this.#options, alreadyRead, holdsBack });
  }

  /**
   * Removes from a change the name that this branch has at its hub, because a change with that name means the same
   * stock as a change without a branch.
   */
  #withoutOwnName<T extends SubmittedChange>(item: T): T {
    const { db, ownName } = this.#options;
    if (ownName === undefined || !('change' in item) || item.kind !== 'stock') return item;
    const own = { subsidiaryId: null, externalId: ownName };
    const isOther = (name?: string) =>
      name !== undefined && name !== ownName && name !== subsidiaryOf(db, own, [own]);
    const { subsidiaryId, subsidiaryExternalId, ...change } = item.change;
    return isOther(subsidiaryId) || isOther(subsidiaryExternalId) ? item : { ...item, change };
  }

  /** Reads when counts were made, as `withCountTime`. Must be called before items of a POS or a person are accepted. */
  dated<T extends SubmittedChange>(items: readonly T[]): T[] {
    const how = { nowMs: this.#options.clock.nowMs(), timezone: this.#options.timezone };
    return items.map((item) => withCountTime(item, how) as T);
  }

  /** Follows all moved ids. Must come before a count is put where its id leads: another's count may still wait there. */
  followIds(): void {
    while (this.#moved.follow());
  }

  /** Returns what each row is about. `accept` resolves no row again if nothing was written since. */
  articlesOf<T extends Row>(items: readonly T[]): ArticleRow<T>[] {
    const all = () => {
      const state = this.#databaseState();
      if (this.#found.state !== state) this.#found = { state, of: new Map() };
      const { of } = this.#found;
      return items.map((row): ArticleRow<T> => {
        const resolve = (change: Change) => {
          const resolution = this.resolve(change);
          if ('change' in row) of.set(row.change, resolution);
          return resolution;
        };
        const { key, productKey, unplaced } = articleOf(
          this.#withoutOwnName(row),
          resolve,
          this.#options.branches,
        );
        return { row, key, productKey, unplaced };
      });
    };
    // In one transaction, because each read outside one locks the file anew, which takes as long as the read.
    return this.#options.db.inTransaction ? all() : this.#options.db.transaction(all).deferred();
  }

  /** Returns a text that differs after every write of any connection. */
  #databaseState(): string {
    return `${this.#sql.value('SELECT total_changes()')} ${this.#sql.value('PRAGMA data_version')}`;
  }

  /** Returns one acceptance per accepted item, in order. A bad item does not affect its neighbours. */
  accept(items: readonly SubmittedChange[], options: AcceptOptions): Acceptance[] {
    return this.acceptSome(items, options).accepted;
  }

  /** Accepts items like `accept`, and also returns their versions and the items that were not accepted. */
  acceptSome(
    items: readonly SubmittedChange[],
    options: AcceptOptions,
  ): { accepted: Acceptance[]; versions: Versions; left: SubmittedChange[] } {
    const createdAt = this.#now();
    return this.#sql.transaction(() => {
      this.followIds();
      const all = this.#placed(items);
      const placed = options.whenFull === undefined ? all : this.#fitting(all, options, options.whenFull);
      const isTaken = new Set(placed);
      const takeVersions = "UPDATE marks SET value = value + ? WHERE name = 'outbox.version' RETURNING value";
      const lastId = this.#sql.value(takeVersions, placed.length) ?? placed.length;
      const { source, origin = source, asOfSeq = this.#reservations.newestSeq, guards } = options;
      // A branch's clock may differ, and its changes come in the order in which it was handed them.
      const lateBy = source === 'branch' ? () => undefined : this.#lateBy(items);
      const newestAt = newestSeqAt(
        this.#options.db,
        items.map(({ asOfSeq, countedAt, handedAt }) =>
          asOfSeq === undefined ? (countedAt ?? handedAt) : null,
        ),
        createdAt,
      );
      if (options.beforeInbox !== undefined && placed.length > 0) {
        const note = "INSERT INTO _seen (kind, name, first_at) VALUES ('hand-over', ? || '-' || ?, ?)";
        this.#sql.run(note, String(lastId - placed.length + 1), String(lastId), options.beforeInbox);
      }
      // Must follow the INSERT of the note, because `begin` reads the last rowid.
      this.#queue.begin();
      const fresh = this.#freshZeros(placed);
      const zeros = [...fresh.values()].flat();
      const [first] = zeros;
      // If this submission is for one branch, earlier zeros of other branches do not count.
      const within = first && options.branch !== undefined ? this.#branchOf(first, options) : undefined;
      const holds = options.zeroHolds ?? this.holdsFor(byBranch(fresh.values()), guards, within);
      for (const each of zeros) {
        each.zeroedAt = createdAt;
        each.hold = holds.get(each.target.subsidiaryId ?? '');
      }
      const accepted = placed.map((each, i) => {
        const { kind, reference = null } = each.item;
        const { key: target, conflictKey, sku, subsidiaryId } = each.target;
        const changeId = lastId - placed.length + 1 + i;
        const branch = this.#branchOf(each, options);
        const name = stockNameOf(each.item);
        const change = {
          changeId,
          version: changeId,
          kind,
          source,
          origin,
          reference,
          createdAt,
          named: name && JSON.stringify(name),
          asOfSeq:
            each.item.asOfSeq ?? Math.min(asOfSeq, newestAt(each.item.countedAt ?? each.item.handedAt)),
          countedAt: each.item.countedAt ?? null,
          handedAt: each.item.handedAt ?? createdAt,
          target,
          conflictKey,
          sku,
          subsidiaryId,
          branch,
        };
        return this.#take(change, each, options, options.isLater ?? lateBy(each.item));
      });
      const versions = { first: lastId - placed.length + 1, last: lastId };
      // The items as they were given, by which the caller finds them again.
      const left = items.filter((_, i) => !isTaken.has(all[i] as Placed));
      return { accepted, versions, left };
    });
  }

  /**
   * Returns a function that returns a test for values that were handed over past the inbox after an item was put there;
   * undefined if there are none.
   */
  #lateBy(items: readonly SubmittedChange[]): (item: SubmittedChange) => IsLater | undefined {
    if (items.every(({ handedAt }) => !handedAt)) return () => undefined;
    // Times in the future are ignored, because they were noted before the clock was set back.
    const later = this.#sql.rows<Versions & { handedAt: string }>(
      `SELECT CAST(name AS INTEGER) AS first, CAST(substr(name, instr(name, '-') + 1) AS INTEGER) AS last,
         first_at AS handedAt
       FROM ${HANDED_OVER} AND first_at <= ? ORDER BY first`,
      this.#now(),
    );
    const last = later.at(-1)?.last ?? 0;
    return ({ handedAt }) => {
      const next = handedAt ? later.find((each) => each.handedAt > handedAt) : undefined;
      return next && (({ version }) => next.first <= version && version <= last);
    };
  }

  /** Records that the inbox was empty at `at`, which means that all rows inserted before that time are copied. */
  inboxWasEmpty(at: string): void {
    this.#sql.run(`DELETE FROM ${HANDED_OVER} AND first_at <= ?`, at);
    this.#reservations.inboxWasEmpty(at);
  }

  /**
   * Whether a submission or acknowledgement up to `at` was noted, because the inbox might still contain earlier rows.
   */
  mayComeLate(at: string): boolean {
    const late = `SELECT 1 FROM ${HANDED_OVER} AND first_at <= ? LIMIT 1`;
    return this.#sql.value(late, at) !== undefined || this.#reservations.waitsForInbox(at);
  }

  /** Returns the error for a branch's full queue, with the time to retry. */
  fullLine(branch: string): TillsyncError {
    const which = { kind: 'stock', priority: PRIORITY_OTHERS, sendAsIs: 1 } as const;
    const retryAfterMs = comeBackMs(this.#queue.branches(which).length);
    return new TillsyncError(
      'rate-limited',
      `Of branch ${branch || '-'} ${WAITING_MAX} changes wait to be sent, and no more are taken before some of them have left.`,
      {
        hint: `Hand over what was not taken again in ${retryAfterMs / 1000} seconds. What is sold out is always taken.`,
        retryAfterMs,
      },
    );
  }

  /** Returns the items that their branches' queues have room for. */
  #fitting(
    placed: readonly Placed[],
    options: AcceptOptions,
    whenFull: NonNullable<AcceptOptions['whenFull']>,
  ): Placed[] {
    const passed = typeof whenFull === 'object' ? whenFull : undefined;
    const rooms = new Map<string, number>();
    const added = new Set<string>();
    const fitting: Placed[] = [];
    for (const each of placed) {
      const { item, resolution, target } = each;
      const isWaitingNow = 'change' in item && resolution?.state !== 'rejected';
      const branch = isWaitingNow ? this.#branchOf(each, options) : '';
      const key = `${item.kind} ${target.key}`;
      if (isWaitingNow && passed?.has(branch, key)) continue;
      fitting.push(each);
      if (!isWaitingNow || priorityOf(item.change) !== PRIORITY_OTHERS) continue;
      const room = rooms.get(branch) ?? this.#queue.roomOf(branch, placed.length);
      rooms.set(branch, room);
      // There is room for all items, even if each has its own target.
      if (room >= placed.length) continue;
      if (added.has(key) || this.#queue.isWaiting(item.kind, target.key)) continue;
      if (room > 0) {
        added.add(key);
        rooms.set(branch, room - 1);
        continue;
      }
      if (whenFull === 'refuse') throw this.fullLine(branch);
      fitting.pop();
      if (!passed) break;
      passed.add(branch, key);
    }
    return fitting;
  }

  /** Returns the branch in whose turn a change is sent. */
  #branchOf({ item, target }: Placed, options: Pick<AcceptOptions, 'branch'>): string {
    const { branches } = this.#options;
    const named =
      'change' in item && 'subsidiaryExternalId' in item.change
        ? item.change.subsidiaryExternalId
        : undefined;
    const ofName = named === undefined ? undefined : (branches.idOf(named) ?? named);
    return target.subsidiaryId ?? ofName ?? options.branch ?? branches.ownId ?? '';
  }

  /** Returns the targets of stocks that `items` would newly set to zero, with their branches. Writes nothing. */
  freshZeros(items: readonly SubmittedChange[]): Map<string, string> {
    const fresh = this.#freshZeros(this.#placed(items));
    return new Map([...fresh].map(([target, [first]]) => [target, first?.target.subsidiaryId ?? '']));
  }

  /**
   * Returns for each branch why a guard holds its stocks that go to zero. Stocks that were set to zero earlier in the
   * window count too; with `within`, only those of that branch.
   */
  holdsFor(zeros: ZerosByBranch, guards: GuardSettings, within?: string): ZeroHolds {
    const holds = new Map<string, GuardReason>();
    if (zeros.size === 0) return holds;
    const inHandOver = [...zeros.values()].reduce((sum, each) => sum + each, 0);
    const withinWindow = guards.zeroItemsMax === 0 ? 0 : this.#zeroedWithin(guards, within);
    const ofAll = guardZeroItems({ inHandOver, withinWindow }, guards);
    for (const [branch, count] of zeros) {
      const hold = ofAll ?? (branch === '' ? undefined : this.#shareHold(branch, count, guards));
      if (hold) holds.set(branch, hold);
    }
    return holds;
  }

  /** Returns the number of stocks that were set to zero within the window, in one branch or in all. */
  #zeroedWithin({ zeroItemsWindowMs }: GuardSettings, branch?: string): number {
    const since = isoUtc(this.#options.clock.nowMs() - zeroItemsWindowMs);
    const zeroed =
      'SELECT count(*) FROM _outbox WHERE zeroed_at >= @since AND held_guard IS NULL AND branch = coalesce(@branch, branch)';
    return this.#sql.value(zeroed, { since, branch: branch ?? null }) ?? 0;
  }

  #shareHold(branch: string, inHandOver: number, guards: GuardSettings): GuardReason | undefined {
    if (guards.zeroShareMax === 0) return undefined;
    const zeros = inHandOver + this.#zeroedWithin(guards, branch);
    const needed = aboveZeroNeeded(zeros, guards);
    if (needed === undefined) return undefined;
    const since = isoUtc(this.#options.clock.nowMs() - guards.zeroItemsWindowMs);
    // A stock that was set to zero within the window counts as above zero, as it was before.
    const gone = `SELECT count(*) FROM _outbox o JOIN _stocks s ON s.sku = o.sku AND s.subsidiary_id = o.subsidiary_id
      WHERE o.zeroed_at >= @since AND o.held_guard IS NULL AND o.branch = @branch AND CAST(s.qty AS REAL) <= 0`;
    const goneQty = this.#sql.value(gone, { since, branch }) ?? 0;
    // Stops counting at the needed number, because a branch may have 100,000 stocks.
    const above =
      'SELECT count(*) FROM (SELECT 1 FROM _stocks WHERE subsidiary_id = ? AND CAST(qty AS REAL) > 0 LIMIT +?)';
    const aboveZero = goneQty + (this.#sql.value<number>(above, branch, needed) ?? 0);
    return guardZeroShare({ branch, zeros, aboveZero }, guards);
  }

  #take(
    common: Omit<NewChange, 'basis' | 'body' | 'message' | 'heldGuard' | 'zeroedAt'>,
    { item, resolution, zeroedAt, hold: zeroHold }: Placed,
    { hold: all, guards }: AcceptOptions,
    isLater: IsLater | undefined,
  ): Acceptance {
    const { changeId } = common;
    if ('fault' in item || resolution === null || resolution.state === 'rejected') {
      const isRead = 'change' in item;
      const { message } = isRead ? (resolution as { message: string }) : item.fault;
      const body = isRead ? bodyFor(item.change, literalAddress(item.change)) : item.value;
      const refused = { ...common, basis: 'as-is', message, heldGuard: null, zeroedAt: null } as const;
      this.#queue.putRejected({ ...refused, body }, false);
      if (isRead) this.#queue.supersedeRejected({ ...refused, body: body as ChangeBody }, common.createdAt);
      const candidates = resolution?.state === 'rejected' ? resolution.candidates : [];
      return { changeId, state: 'rejected', message, candidates };
    }
    const address = 'address' in resolution ? resolution.address : literalAddress(item.change);
    const basis = BASIS[resolution.state];
    const open = { message: null, heldGuard: null, zeroedAt: null };
    let given = { ...common, body: bodyFor(item.change, address), basis, ...open };
    if (common.countedAt !== null) {
      const rest = this.#queue.restOfCount(given, given);
      if ('overruledBy' in rest) {
        const { changeId: by } = rest.overruledBy;
        const message = countedLater(given, rest.overruledBy);
        this.#queue.putSuperseded(given, by, message);
        return { changeId, state: 'superseded', message, candidates: [] };
      }
      given = { ...given, ...rest };
    }
    if (isLater) {
      const rest = this.#queue.restOf(given, { key: given.target, conflictKey: given.conflictKey }, isLater);
      if ('overruledBy' in rest) {
        this.#queue.putSuperseded(given, rest.overruledBy);
        return { changeId: rest.overruledBy, state: 'pending', message: null, candidates: [] };
      }
      const { body, asOfSeq, countedAt, handedAt, named } = rest;
      given = { ...given, body, asOfSeq, countedAt, handedAt, named };
    }
    const { body } = given;
    const hold = all ?? zeroHold ?? this.#judgePrice(body, common.sku, guards);
    const message = hold?.message ?? null;
    const heldGuard = hold?.guard ?? null;
    const carriedBy = this.#queue.putNewest({ ...given, message, zeroedAt, heldGuard });
    return { changeId: carriedBy, state: hold ? 'held' : 'pending', message, candidates: [] };
  }

  #placed(items: readonly SubmittedChange[]): Placed[] {
    const known =
      this.#found.state === this.#databaseState() ? this.#found.of : new Map<object, Resolution>();
    // What is accepted now changes the database.
    this.#found = { state: '', of: new Map() };
    return items.map((given) => {
      const item = this.#withoutOwnName(given);
      const open = { item, zeroedAt: null, hold: undefined };
      if ('fault' in item) return { ...open, resolution: null, target: UNREADABLE };
      const resolution = ('change' in given ? known.get(given.change) : undefined) ?? this.resolve(item);
      const target = 'target' in resolution ? resolution.target : literalTarget(item.change);
      return { ...open, resolution, target };
    });
  }

  /** Returns why a guard holds a price; undefined if no guard does or the product is unknown. */
  #judgePrice(body: ChangeBody, sku: string | null, guards: GuardSettings): GuardReason | undefined {
    if (guards.priceFactorMax === 0 || !('price' in body) || body.price === undefined || sku === null) {
      return undefined;
    }
    return guardPrice(this.#values.priceOf(sku), body.price, guards);
  }

  /**
   * Judges a change whose product was found only now. Returns a guard's reason to hold it, and the time at which the
   * change set a stock to zero.
   */
  judgeFound(
    { body, target, sku, subsidiaryId, zeroedAt: before }: OutboxChange,
    guards: GuardSettings,
  ): { hold: GuardReason | undefined; zeroedAt: string | null } {
    const isZero = 'qty' in body && goesToZero(body.qty);
    const zeroedAt = before ?? (isZero ? this.#zeroedAt(target) : undefined) ?? null;
    if (!isZero || zeroedAt !== null || this.#values.isZero(sku, subsidiaryId)) {
      return { hold: this.#judgePrice(body, sku, guards), zeroedAt };
    }
    const within = this.#options.branches.areApart ? (subsidiaryId ?? undefined) : undefined;
    const branch = subsidiaryId ?? '';
    const hold = this.holdsFor(new Map([[branch, 1]]), guards, within).get(branch);
    return { hold, zeroedAt: this.#now() };
  }

  /**
   * Returns the items that newly set a stock to zero, by target. If a change that waits or is being sent already does
   * so for the target, the items are left out and get the time of that change.
   */
  #freshZeros(items: readonly Placed[]): Map<string, Placed[]> {
    const fresh = new Map<string, Placed[]>();
    for (const each of items) {
      const { item, resolution, target } = each;
      if (!('change' in item) || item.kind !== 'stock' || !goesToZero(item.change.qty)) continue;
      // An unknown product may not be sold online at all. Its change is judged when the product is found.
      if (resolution?.state === 'rejected' || resolution?.state === 'needs-read') continue;
      each.zeroedAt = this.#zeroedAt(target.key) ?? null;
      if (each.zeroedAt === null && !this.#values.isZero(target.sku, target.subsidiaryId)) {
        fresh.set(target.key, [...(fresh.get(target.key) ?? []), each]);
      }
    }
    return fresh;
  }

  #zeroedAt(target: string): string | undefined {
    const zeroed = "SELECT zeroed_at FROM _outbox WHERE kind = 'stock' AND zeroed_at IS NOT NULL AND";
    return (
      this.#sql.value<string>(`${zeroed} target = ? AND state = 'pending' AND held_guard IS NULL`, target) ??
      this.#sql.value<string>(`${zeroed} conflict_key = ? AND state = 'sending'`, target)
    );
  }

  #now(): string {
    return isoUtc(this.#options.clock.nowMs());
  }
}

function byBranch(fresh: Iterable<readonly Placed[]>): ZerosByBranch {
  const zeros = new Map<string, number>();
  for (const [first] of fresh) {
    const branch = first?.target.subsidiaryId ?? '';
    zeros.set(branch, (zeros.get(branch) ?? 0) + 1);
  }
  return zeros;
}

/** Returns the change in the platform's form, with the ids in `address`. */
export function bodyFor(change: StockChange | ProductChange, address: object): ChangeBody {
  // Adds keys to a new object, because an object with a deleted key is slow to serialise.
  const body: Record<string, unknown> = { ...address };
  for (const field of valueKeys(change)) body[field] = change[field as keyof typeof change];
  return body as unknown as ChangeBody;
}

interface InboxIngested {
  accepted: Acceptance[];
  acks: AckResult[];
  /** Rows that were copied and can be deleted in the inbox. */
  taken: Pick<InboxBatch, 'changes' | 'acks'>;
  /** Reason why the rest of the batch was not copied; null if everything was. */
  full: TillsyncError | null;
}

/**
 * Age at which notes of copied rows are deleted even if the deletion of the rows was never recorded, and at which
 * refused acknowledgements are deleted.
 */
const FORGET_AFTER_MS = 30 * 24 * 3_600_000;
const FORGET_ROWS = `DELETE FROM ${seen('inbox-row')}`;
const FORGET_ROW = `${FORGET_ROWS} AND name = ?`;

/**
 * Copies inbox rows into the outbox, each once, although two files cannot change in one transaction. The mirror notes
 * a row together with its change; the row is then deleted in the inbox, and the note after it. After a crash, a noted
 * row is not copied again. Each call is one transaction of the mirror.
 */
export class InboxIntake {
  readonly #sql: Sql;
  readonly #clock: Clock;
  readonly #intake: OutboxIntake;
  readonly #reservations: Reservations;

  constructor(
    { db, clock }: { db: Database.Database; clock: Clock },
    intake: OutboxIntake,
    reservations: Reservations,
  ) {
    this.#sql = sqlOf(db);
    this.#clock = clock;
    this.#intake = intake;
    this.#reservations = reservations;
  }

  /**
   * Copies changes first, then acknowledgements, which say that earlier counts include the order. Both stay in the
   * inbox if their branch's queue is full. `passed` has the skipped rows.
   */
  ingest(batch: Omit<InboxBatch, 'alive'>, guards: GuardSettings, passed = new PassedOver()): InboxIngested {
    return this.#sql.transaction(() => {
      const at = isoUtc(this.#clock.nowMs());
      const note =
        "INSERT INTO _seen (kind, name, first_at) VALUES ('inbox-row', ?, ?) ON CONFLICT DO NOTHING";
      const isNew = ({ key }: { key: string }) => this.#sql.run(note, key, at).changes > 0;
      const changes = batch.changes.filter(isNew);
      const items = this.#intake.dated(changes.map(handedOver));
      const { accepted, left } = this.#intake.acceptSome(items, {
        source: 'inbox',
        guards,
        whenFull: passed,
      });
      const isLeft = new Set(left);
      const stay = new Set<{ key: string }>(
        changes.filter((_, i) => isLeft.has(items[i] as SubmittedChange)),
      );
      // An acknowledgement says that earlier counts include the order, so it waits while such counts are not copied
      // yet.
      const mayBook = ({ orderId }: InboxAck) =>
        passed.isNone || this.#reservations.isOfOthers(orderId, passed.branches);
      for (const ack of batch.acks) if (!mayBook(ack)) stay.add(ack);
      for (const { key } of stay) this.#sql.run(FORGET_ROW, key);
      const goes = (row: { key: string }) => !stay.has(row);
      // An acknowledgement with a value that is too long is dropped, because no order has an id this long.
      const acked = batch.acks
        .filter(goes)
        .filter(isNew)
        .filter(({ tooLong }) => tooLong === null);
      const acks = this.#reservations.acknowledge(acked, 'inbox');
      this.#reservations.noteRefused(acks, acked);
      const taken = { changes: batch.changes.filter(goes), acks: batch.acks.filter(goes) };
      const [branch] = passed.branches;
      return { accepted, acks, taken, full: branch === undefined ? null : this.#intake.fullLine(branch) };
    });
  }

  /** Deletes the notes of rows that the inbox no longer has. */
  forget(batch: Pick<InboxBatch, 'changes' | 'acks'>): void {
    this.#sql.transaction(() => {
      for (const { key } of [...batch.changes, ...batch.acks]) this.#sql.run(FORGET_ROW, key);
      const before = isoUtc(this.#clock.nowMs() - FORGET_AFTER_MS);
      this.#sql.run(`${FORGET_ROWS} AND first_at < ?`, before);
      this.#sql.run('DELETE FROM refused_acks WHERE refused_at < ?', before);
    });
  }

  /**
   * Deletes the notes of all copied rows. Must be called only if the inbox has no rows and no damaged file was
   * renamed, so that no noted row can come again.
   */
  forgetAll(): void {
    this.#sql.run(FORGET_ROWS);
  }
}

/**
 * Returns a row as a submitted item. A bad row that the inbox's checks could not refuse becomes a rejected change,
 * because the POS learns of it in no other way.
 */
function handedOver({ kind, value, reference, handedAt, tooLong }: InboxChange): SubmittedChange {
  if (tooLong !== null) {
    const { column, bytes, maxBytes } = tooLong;
    const message = `${WIRE_NAMES[column] ?? column} has ${bytes} bytes; no more than ${maxBytes} are taken.`;
    return { kind, fault: { code: 'bad-value', column, message }, value, reference };
  }
  return { ...readChange(kind, value), value, reference, handedAt };
}
