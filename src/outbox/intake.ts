import type Database from 'better-sqlite3';
import { type Clock, isoUtc } from '../core/time.ts';
import { valueKeys } from './batch.ts';
import {
  type Candidate,
  type ChangeBody,
  type ChangeFault,
  type ChangeKind,
  literalAddress,
  literalTarget,
  type ProductChange,
  type Resolution,
  type StockChange,
  type Target,
} from './change.ts';
import { MirrorValues } from './claims.ts';
import { GUARDS_OFF, type GuardSettings, guardPrice, guardZeroItems, type Hold } from './guard-rails.ts';
import { type Basis, type ChangeSource, LineRows, type NewRow, OutboxLine, RefusedChanges } from './queue.ts';

/** A change that was read and resolved, or an item that could not be read and has nobody to be told. */
export type IntakeItem = { reference?: string | null } & (
  | { kind: 'stock'; change: StockChange; resolution: Resolution }
  | { kind: 'product'; change: ProductChange; resolution: Resolution }
  | { kind: ChangeKind; fault: ChangeFault; value: unknown }
);

export interface AcceptOptions {
  source: ChangeSource;
  guards: GuardSettings;
  /** Holds the whole hand-over, such as an inventory that lacks too much. */
  hold?: Hold | undefined;
  /**
   * Holds every stock that goes to zero: for one part of a hand-over that, taken as a whole, takes too many to
   * zero (`holdFor`).
   */
  zeroHold?: Hold | undefined;
  /** Newest event of the order feed when it was handed over, where that was not now. */
  asOfSeq?: number;
}

export interface Acceptance {
  changeId: number;
  state: 'pending' | 'held' | 'rejected';
  /** Why it is held or rejected; null when it waits. */
  message: string | null;
  candidates: Candidate[];
}

type Readable = Exclude<IntakeItem, { fault: ChangeFault }>;

/** Takes changes into the outbox. What it returned is on the disk when the transaction around it is. */
export class OutboxIntake {
  readonly #db: Database.Database;
  readonly #clock: Clock;
  readonly #line: OutboxLine;
  readonly #values: MirrorValues;
  readonly #rows: LineRows;
  readonly #refused: RefusedChanges;
  readonly #takeVersions: Database.Statement<[number], number>;
  readonly #orderSeq: Database.Statement<[], number>;
  readonly #zeroedAt: Database.Statement<[string], string>[];
  readonly #zeroedSince: Database.Statement<[string], number>;

  constructor({ db, clock }: { db: Database.Database; clock: Clock }) {
    this.#db = db;
    this.#clock = clock;
    this.#line = new OutboxLine(db);
    this.#values = new MirrorValues(db);
    this.#rows = new LineRows(db);
    this.#refused = new RefusedChanges(db);
    this.#takeVersions = db
      .prepare<[number], number>(
        "UPDATE marks SET value = value + ? WHERE name = 'outbox.version' RETURNING value",
      )
      .pluck();
    this.#orderSeq = db
      .prepare<[], number>(
        "SELECT coalesce((SELECT seq FROM sqlite_sequence WHERE name = 'order_events'), 0)",
      )
      .pluck();
    const zeroed = "SELECT zeroed_at FROM outbox WHERE kind = 'stock' AND";
    this.#zeroedAt = [
      `${zeroed} target = ? AND state = 'pending' AND held_guard IS NULL AND zeroed_at IS NOT NULL`,
      `${zeroed} conflict_key = ? AND state = 'sending' AND zeroed_at IS NOT NULL`,
    ].map((query) => db.prepare<[string], string>(query).pluck());
    this.#zeroedSince = db
      .prepare<[string], number>('SELECT count(*) FROM outbox WHERE zeroed_at >= ? AND held_guard IS NULL')
      .pluck();
  }

  /** One acceptance for each item, in order; a bad one takes nothing from its neighbours. */
  accept(items: readonly IntakeItem[], options: AcceptOptions): Acceptance[] {
    const at = isoUtc(this.#clock.nowMs());
    return this.#db
      .transaction(() => {
        this.#line.begin();
        const firstId = (this.#takeVersions.get(items.length) ?? items.length) - items.length + 1;
        const asOfSeq = options.asOfSeq ?? this.#orderSeq.get() ?? 0;
        const zeros = this.#judgeZeros(items, options, at);
        return items.map((item, i): Acceptance => {
          const base = {
            changeId: firstId + i,
            version: firstId + i,
            kind: item.kind,
            source: options.source,
            reference: item.reference ?? null,
            createdAt: at,
            asOfSeq,
          };
          if ('fault' in item) return this.#refuse(base, item.value, item.fault.message, unreadTarget);
          const { change, resolution } = item;
          if (resolution.state === 'rejected') {
            const target = literalTarget(change);
            const body = bodyFor(item, literalAddress(change));
            const refused = this.#refuse(base, body, resolution.message, target);
            this.#refused.outlived({ ...base, target: target.key }, body, at);
            return { ...refused, candidates: resolution.candidates };
          }
          return this.#take(base, item, resolution, zeros.get(i), options);
        });
      })
      .immediate();
  }

  /** Targets of the stocks among `items` that would go to zero and are not there yet. Writes nothing. */
  freshZeros(items: readonly IntakeItem[]): string[] {
    const verdicts = this.#judgeZeros(items, { source: 'cli', guards: GUARDS_OFF, zeroHold: PROBE }, '');
    return [...verdicts].flatMap(([i, { hold }]) => {
      const item = items[i];
      return hold && item && 'change' in item && item.resolution.state !== 'rejected'
        ? [targetOf(item, item.resolution).key]
        : [];
    });
  }

  /** Why so many stocks at once may not go to zero; undefined: they may. */
  holdFor(freshZeros: number, guards: GuardSettings): Hold | undefined {
    if (guards.zeroItemsMax === 0 || freshZeros === 0) return undefined;
    const since = isoUtc(this.#clock.nowMs() - guards.zeroItemsWindowMs);
    const withinWindow = this.#zeroedSince.get(since) ?? 0;
    return guardZeroItems({ inHandOver: freshZeros, withinWindow }, guards);
  }

  #take(
    base: Pick<NewRow, 'changeId' | 'version' | 'kind' | 'source' | 'reference' | 'createdAt' | 'asOfSeq'>,
    item: Readable,
    resolution: Exclude<Resolution, { state: 'rejected' }>,
    zero: ZeroVerdict | undefined,
    options: AcceptOptions,
  ): Acceptance {
    const needsRead = resolution.state === 'needs-read';
    const target = targetOf(item, resolution);
    const address = needsRead ? literalAddress(item.change) : resolution.address;
    const body = bodyFor(item, address);
    const hold = options.hold ?? zero?.hold ?? this.#judgePrice(body, target, options.guards);
    const row: NewRow = {
      ...base,
      target: target.key,
      conflictKey: target.conflictKey,
      sku: target.sku,
      subsidiaryId: target.subsidiaryId,
      basis: BASIS[resolution.state],
      body: '',
      heldGuard: hold?.guard ?? null,
      message: hold?.message ?? null,
      zeroedAt: zero?.zeroedAt ?? null,
    };
    const changeId = this.#line.putNewest(row, body);
    return { changeId, state: hold ? 'held' : 'pending', message: hold?.message ?? null, candidates: [] };
  }

  #refuse(
    base: Pick<NewRow, 'changeId' | 'createdAt'>,
    body: unknown,
    message: string,
    target: Target,
  ): Acceptance {
    this.#rows.insert.run({
      ...base,
      target: target.key,
      conflictKey: target.conflictKey,
      body: JSON.stringify(body) ?? 'null',
      fields: '',
      state: 'rejected',
      message,
      settledAt: base.createdAt,
      priority: 1,
      basis: 'as-is',
      sku: null,
      subsidiaryId: target.subsidiaryId,
      heldGuard: null,
      zeroedAt: null,
    });
    return { changeId: base.changeId, state: 'rejected', message, candidates: [] };
  }

  #judgePrice(body: ChangeBody, target: Target, guards: GuardSettings): Hold | undefined {
    if (guards.priceFactorMax === 0 || !('price' in body) || body.price === undefined) return undefined;
    return target.sku === null ? undefined : guardPrice(this.#values.priceOf(target.sku), body.price, guards);
  }

  /** Which items set a stock to zero that is not yet, or not yet about to be; and whether they are too many. */
  #judgeZeros(items: readonly IntakeItem[], options: AcceptOptions, at: string): Map<number, ZeroVerdict> {
    const verdicts = new Map<number, ZeroVerdict>();
    const fresh = new Map<string, number[]>();
    for (const [i, item] of items.entries()) {
      if (!('change' in item) || item.kind !== 'stock' || item.change.qty !== 0) continue;
      if (item.resolution.state === 'rejected') continue;
      const target = targetOf(item, item.resolution);
      const zeroedAt = this.#zeroedAt.map((query) => query.get(target.key)).find((at) => at !== undefined);
      if (zeroedAt !== undefined) verdicts.set(i, { zeroedAt, hold: undefined });
      else if (!this.#values.isZero(target.sku, target.subsidiaryId)) {
        const places = fresh.get(target.key);
        if (places) places.push(i);
        else fresh.set(target.key, [i]);
      }
    }
    if (fresh.size === 0) return verdicts;
    const hold = options.zeroHold ?? this.holdFor(fresh.size, options.guards);
    for (const i of [...fresh.values()].flat()) verdicts.set(i, { zeroedAt: at, hold });
    return verdicts;
  }
}

/** Marks what would be judged. */
const PROBE: Hold = { guard: 'zero-items', message: '' };

function targetOf(item: Readable, resolution: Exclude<Resolution, { state: 'rejected' }>): Target {
  return resolution.state === 'needs-read' ? literalTarget(item.change) : resolution.target;
}

interface ZeroVerdict {
  zeroedAt: string;
  hold: Hold | undefined;
}

const BASIS: Record<Exclude<Resolution['state'], 'rejected'>, Basis> = {
  resolved: 'mirror',
  'as-is': 'as-is',
  'needs-read': 'needs-read',
};

const unreadTarget: Target = {
  key: 'unreadable',
  conflictKey: 'unreadable',
  sku: null,
  productId: null,
  subsidiaryId: null,
};

/** The change in the platform's item shape, named by `address`. */
export function bodyFor({ change }: Pick<Readable, 'change'>, address: object): ChangeBody {
  // Only ever added to: an object from which a key was deleted is slow to turn into JSON.
  const body: Record<string, unknown> = { ...address };
  for (const field of valueKeys(change)) body[field] = change[field as keyof typeof change];
  return body as unknown as ChangeBody;
}
