import { type FreshnessBoard, type FreshnessState, freshnessOfFailure } from '../../core/alarm.ts';
import {
  asTillsyncError,
  type ErrorCode,
  failureCode,
  hasCode,
  type TillsyncError,
} from '../../core/errors.ts';
import type { Log } from '../../core/log.ts';
import { gracefulSignal, LOCKED_OUT_LOOK_MS, pieceMs, rest, retryDelayMs, Waker } from '../../core/loop.ts';
import type { Clock, Random } from '../../core/time.ts';
import { sqlOf } from '../../db/sqlite.ts';
import type { PlatformClient } from '../../platform/client.ts';
import { BATCH_ITEMS_MAX, type CallOptions, type Endpoint } from '../../platform/platform.ts';
import type { ProductChangeItem, StockChangeItem } from '../../platform/schemas.ts';
import type { Answer, BatchItem, ChangeKind } from '../intake/change.ts';
import {
  chooseEndpoint,
  type QueueOutlook,
  readBatchAnswer,
  type Verification,
  verifyApplied,
} from './call-plan.ts';
import type { Claim, SendRules, SettlementReport } from './dispatch.ts';
import type { MirrorStores, Stores } from './repositories.ts';

const SUBJECT = 'outbox.push';

/** Freshness of sending, shared by both kinds of changes. It is good only if neither kind is in trouble. */
export class PushFreshness {
  readonly #board: FreshnessBoard;
  readonly #troubles = new Map<ChangeKind, FreshnessState>();

  constructor(board: FreshnessBoard) {
    this.#board = board;
  }

  /** Records that a call succeeded and the platform answered for each item. */
  answered(kind: ChangeKind): void {
    this.#troubles.delete(kind);
    if (this.#troubles.size === 0) this.#board.ok(SUBJECT);
  }

  failed(kind: ChangeKind, error: unknown): void {
    const known = asTillsyncError(error);
    const { code, message, hint } = known;
    if (code === 'aborted') return;
    const words = [message, hint].filter(Boolean).join(' ');
    this.#report(kind, freshnessOfFailure(code), words, failureCode(known));
  }

  /** Records that changes wait until a person brings new tokens. */
  lockedOut(kind: ChangeKind): void {
    const message =
      'Changes wait until the platform has been given new tokens. Hand them in with: {tillsync} auth set';
    this.#report(kind, 'locked-out', message);
  }

  /** Records that no change of this kind waits, so that its last failure no longer counts. */
  idle(kind: ChangeKind): void {
    if (this.#troubles.delete(kind) && this.#troubles.size === 0) this.#board.report(SUBJECT, 'ok', '');
  }

  #report(kind: ChangeKind, state: FreshnessState, message: string, failure?: string): void {
    const before = this.#troubles.get(kind);
    this.#troubles.set(kind, state);
    // `locked-out` is reported only once, because no call was tried since then.
    if (state === 'locked-out' && before === 'locked-out') return;
    this.#board.report(SUBJECT, state, message, failure);
  }
}

/**
 * A change that fails alone while others of its call succeed is rejected, for a person to decide, as soon as it has
 * failed this many times over at least this time.
 */
const FAILS_ALONE_MAX = 3;
const FAILS_ALONE_MS = 3_600_000;
const FAILS_ALONE = 'Sent several times, at last alone; the platform fails on it and takes others.';

/** Pause between an idle loop's checks for changes of other processes. */
const LOOK_EVERY_MS = 500;
/** Pause before the outcomes of a call are written again after the disk failed. */
const SETTLE_AGAIN_MS = 2_000;
/**
 * If the last good poll of orders is older than this, the mirror's stock may be outdated, so no value counts as
 * unchanged.
 */
const ORDERS_KNOWN_MS = 900_000;
/**
 * Maximum number of failures from which a pause is computed while polls of orders succeed, by error code. Three
 * failures give 10 to 20 seconds, five give 40 to 80. For codes that are not listed, all failures count.
 */
const REACHED_FAILURES_MAX: Partial<Record<ErrorCode, number>> = {
  'platform-unreachable': 3,
  'platform-failed': 3,
  'platform-garbled': 3,
  'platform-refused': 5,
};
/** While polls of orders succeed, a pause lasts at least this share of the time since sending began to fail. */
const REACHED_PART = 0.1;
/** Maximum number of changes whose targets are resolved in one transaction. */
const TARGETS_AT_ONCE = 500;

export interface PushLoopOptions {
  kind: ChangeKind;
  platform: PushPlatform & Pick<PlatformClient, 'delayMs'>;
  stores: MirrorStores;
  rules: Omit<SendRules, 'sendAsIs'>;
  /** Whether branches are configured. If so, changes with unknown targets wait for the first complete sweep. */
  hasBranches: boolean;
  /** Time of the last complete poll of orders, by the wall clock; null before the first one. */
  lastPollOkMs: () => number | null;
  /**
   * `sends`: this process sends. `elsewhere`: another process does. `locked-out`: only a person can bring new tokens.
   */
  status: () => 'sends' | 'elsewhere' | 'locked-out';
  freshness: PushFreshness;
  /** Reads scarce stocks on the platform before they are sent. Left out if no stock is read. */
  looker?:
    | {
        readonly lookBelow: number;
        look(
          places: Claim['toLook'],
          call: CallOptions,
          isUrgent: () => boolean,
          atMost?: number,
        ): Promise<void>;
      }
    | undefined;
  /** Called after each call with the outcomes of its changes. */
  onSettled?:
    | ((kind: ChangeKind, settled: readonly (Answer & { delayMs: number | null })[]) => void)
    | undefined;
  clock: Clock;
  random: Random;
  log: Log;
  /** Longest time that a change waits for others to fill its call. */
  lingerMs: number;
  /** Pause between checks for changes of other processes; has a default. */
  lookEveryMs?: number | undefined;
  beat: () => void;
}

const ENDPOINTS: Record<ChangeKind, { batch: Endpoint; single: Endpoint }> = {
  stock: { batch: 'product.stock.batch', single: 'product.stock.put' },
  product: { batch: 'product.batch', single: 'product.put' },
};

/**
 * Sends one kind of changes, one call at a time. Changes are claimed only when a call can be sent at once, so each
 * call has the newest values, with sold-out changes first.
 *
 * Its states:
 * - elsewhere: another process sends; this one looks again after `LOOK_EVERY_MS`
 * - locked out: changes wait until a person brings new tokens
 * - idle: nothing waits; it rests until `wake`, or until the next look for changes of other processes
 * - lingering: changes wait, for at most `lingerMs`, for others that fill their call
 * - waiting for a place: the rate budget has none yet; a change that comes meanwhile may choose the other endpoint
 * - looking: scarce stocks are read on the platform, and their changes stay in line until then
 * - sending: the changes of one call are claimed as `sending`, sent, and settled; a crash leaves them `sending`, and
 *   the next process puts them back in line
 * - failing: the call failed as a whole; a pause that grows with each failure ends with the first success
 */
export class PushLoop {
  readonly #options: PushLoopOptions;
  readonly #waker: Waker;
  readonly #lookEveryMs: number;
  #failures = 0;
  /** Time of the first failed call since the last successful one, by the wall clock. */
  #failingSinceMs: number | undefined;
  /** Changes that failed alone while others of their call succeeded, by id. */
  readonly #failing = new Map<number, { times: number; sinceMonoMs: number }>();
  /**
   * State for which waiting changes were last resolved: the newest sweep, and whether changes with unknown targets are
   * sent with their own ids.
   */
  #targetsOf: string | undefined;

  constructor(options: PushLoopOptions) {
    this.#options = options;
    this.#lookEveryMs = options.lookEveryMs ?? LOOK_EVERY_MS;
    this.#waker = new Waker(options.clock);
  }

  /** Must be called when changes may have been queued. */
  wake(): void {
    this.#waker.wake();
  }

  async run(signal: AbortSignal): Promise<void> {
    const { beat, status, log, kind, freshness, clock, random } = this.#options;
    while (!signal.aborted) {
      beat();
      const now = status();
      if (now === 'elsewhere') await this.#rest(this.#lookEveryMs, signal);
      else {
        try {
          if (now === 'sends') await this.#once(signal);
          else {
            if (this.outlook().waiting > 0) freshness.lockedOut(kind);
            await this.#rest(LOCKED_OUT_LOOK_MS, signal);
          }
        } catch (error) {
          if (signal.aborted) return;
          this.#failures += 1;
          log.warn({ kind, err: error }, 'sending changes failed; they stay in line');
          await rest(clock, retryDelayMs(this.#failures, error, random), signal, beat);
        }
      }
    }
  }

  /**
   * Returns the length of the queue, by which the endpoint is chosen. Changes that a sweep may have resolved count
   * too.
   */
  outlook(): QueueOutlook {
    const { stores, kind } = this.#options;
    return stores.read((at) => {
      const sendAsIs = this.#sendsAsIs(at) || !this.#areTargetsFound(at);
      return at.dispatcher.outlook(kind, { sendAsIs });
    });
  }

  /** Claims the next changes for one call. */
  async claim(max: number): Promise<Pick<Claim, 'callId' | 'items' | 'toLook'>> {
    const { stores, kind, rules, lastPollOkMs, looker, clock } = this.#options;
    const lookBelow = kind === 'stock' ? looker?.lookBelow : 0;
    for (;;) {
      const polledMs = rules.skipUnchanged ? lastPollOkMs() : null;
      const skipUnchanged = polledMs !== null && Math.abs(clock.nowMs() - polledMs) < ORDERS_KNOWN_MS;
      if (kind === 'stock') while (await stores.writeDerived((at) => at.dispatcher.catchUp(rules)));
      await this.#findTargets();
      const claim = await stores.write((at) => {
        if (!this.#areTargetsFound(at)) return undefined;
        return at.dispatcher.claim(kind, max, {
          ...rules,
          skipUnchanged,
          lookBelow,
          sendAsIs: this.#sendsAsIs(at),
        });
      });
      if (claim) return claim;
    }
  }

  /** Writes the outcomes of a call's changes. */
  async settle(callId: number, answers: readonly Answer[]): Promise<SettlementReport> {
    const { stores, kind, onSettled } = this.#options;
    const report = await stores.write(({ dispatcher }) => dispatcher.settle(callId, answers));
    try {
      onSettled?.(
        kind,
        stores.read((at) => answers.map((answer) => withDelay(at, answer))),
      );
    } catch {
      // The outcomes are written, so a failed metric does not matter.
    }
    return report;
  }

  /**
   * Whether changes with unknown targets are sent with their own ids. No change is before the first sweep of configured
   * branches, and no count while a branch holds back, because orders cannot be subtracted from an unknown stock.
   */
  #sendsAsIs({ lookup, reservations }: Stores): boolean {
    const { kind, rules, hasBranches } = this.#options;
    const holds = kind === 'stock' && (rules.holdBack === true || reservations.holdsBack);
    return !holds && (!hasBranches || lookup.isComplete);
  }

  /**
   * Whether waiting changes were resolved since the last sweep; also true before the first complete sweep, for which
   * they wait.
   */
  #areTargetsFound(at: Stores): boolean {
    const mayComeYet = this.#options.hasBranches && !at.lookup.isComplete;
    return mayComeYet || this.#targetsNow(at) === this.#targetsOf;
  }

  #targetsNow(at: Stores): string {
    const newest = sqlOf(at.db).value<string | null>('SELECT max(completed_at) FROM _sweeps') ?? '';
    return `${newest} ${this.#sendsAsIs(at)}`;
  }

  /**
   * Resolves waiting changes with unknown targets after a sweep. They are moved to their targets before anything else
   * is sent, so that an older value never arrives after a newer one.
   */
  async #findTargets(): Promise<void> {
    const { stores } = this.#options;
    if (stores.read((at) => this.#areTargetsFound(at))) return;
    const newest = stores.read((at) => this.#targetsNow(at));
    let last: number | undefined = 0;
    while (last !== undefined) {
      const after: number = last;
      last = await stores.write((at) => {
        const { admin, intake } = at;
        const kept = admin.unresolved('as-is', { after, limit: TARGETS_AT_ONCE });
        for (const each of kept) {
          const resolution = intake.resolve(each);
          if (resolution.state !== 'needs-read') admin.retarget(each, resolution);
          else if (!this.#sendsAsIs(at)) admin.askFor(each);
        }
        return kept.at(-1)?.changeId;
      });
    }
    this.#targetsOf = newest;
  }

  async #once(signal: AbortSignal): Promise<void> {
    const { kind, platform, freshness } = this.#options;
    if (this.outlook().waiting === 0) {
      freshness.idle(kind);
      return await this.#rest(this.#lookEveryMs, signal);
    }
    await this.#linger(signal);
    const [batch, single] = await Promise.all([
      platform.delayMs(ENDPOINTS[kind].batch),
      platform.delayMs(ENDPOINTS[kind].single),
    ]);
    if (signal.aborted) return;
    const freeInMs = { batch, single };
    const endpoint = chooseEndpoint(this.outlook(), freeInMs);
    if (endpoint === 'none') return;
    if (freeInMs[endpoint] > 0) return await this.#rest(freeInMs[endpoint], signal);
    await this.#send(endpoint, signal);
  }

  async #send(endpoint: 'batch' | 'single', signal: AbortSignal): Promise<void> {
    const { kind, platform, freshness, log, clock, beat } = this.#options;
    const { callId, items, toLook } = await this.claim(endpoint === 'batch' ? BATCH_ITEMS_MAX : 1);
    if (callId === null && toLook.length > 0) return await this.#look(toLook, signal);
    if (callId === null) return await this.#rest(this.#lookEveryMs, signal);
    const patient = gracefulSignal(signal, clock);
    const call = { signal: patient.signal, onSend: patient.onSend, onWait: beat };
    const { answers, trouble } = await new PushCall(platform, kind, { endpoint, call }).run(
      items,
      this.#failures > 0,
    );
    patient.end();
    const outcomes = answers.map((answer) => this.#givenUpAtLast(answer, trouble));
    const report = await this.#settleAtLast(callId, outcomes, signal);
    if (trouble === undefined) {
      log.info({ kind, ...report }, 'changes sent');
      freshness.answered(kind);
      this.#failures = 0;
      this.#failingSinceMs = undefined;
      // One stock is read after each call. Otherwise scarce counts would wait as long as others are sent.
      if (toLook.length > 0 && !signal.aborted) await this.#look(toLook, signal, 1);
      return;
    }
    log.warn({ kind, ...report }, 'changes sent');
    freshness.failed(kind, trouble);
    if (signal.aborted) return;
    this.#failures += 1;
    this.#failingSinceMs ??= clock.nowMs();
    await this.#pause(trouble, items, signal);
  }

  /** Reads scarce stocks on the platform, so that the next claim can send their counts. */
  async #look(places: Claim['toLook'], signal: AbortSignal, atMost = places.length): Promise<void> {
    const { clock, beat, looker } = this.#options;
    const patient = gracefulSignal(signal, clock);
    try {
      const how = { signal: patient.signal, onWait: beat };
      await looker?.look(places, how, () => this.outlook().urgent, atMost);
    } finally {
      patient.end();
    }
  }

  /**
   * Pauses after a failed call. The pause gets shorter as soon as a poll of orders succeeds, so that the end of the
   * outage is noticed soon. Example: after 30 minutes of failures, 3 minutes.
   */
  async #pause(trouble: unknown, items: readonly BatchItem[], signal: AbortSignal): Promise<void> {
    const { clock, random, beat, lastPollOkMs } = this.#options;
    const beginMonoMs = clock.monotonicMs();
    const sinceMs = this.#failingSinceMs ?? clock.nowMs();
    const countedMax = REACHED_FAILURES_MAX[asTillsyncError(trouble).code] ?? this.#failures;
    const longMs = retryDelayMs(this.#failures, trouble, random);
    const countedMs = retryDelayMs(Math.min(this.#failures, countedMax), trouble, random);
    const shortMs = Math.min(longMs, Math.max(countedMs, REACHED_PART * (clock.nowMs() - sinceMs)));
    const isReached = () => (lastPollOkMs() ?? 0) > sinceMs;
    // If each change of the call failed alone before, the changes may be the cause, so a new change ends the pause.
    const isAlone = items.every(({ changeId }) => this.#failing.has(changeId));
    for (;;) {
      const leftMs = beginMonoMs + (isReached() ? shortMs : longMs) - clock.monotonicMs();
      if (leftMs <= 0 || signal.aborted) return;
      if (isAlone) await this.#rest(pieceMs(clock, leftMs), signal);
      else await rest(clock, pieceMs(clock, leftMs), signal, beat);
      if (isAlone && this.outlook().waiting > items.length) return;
    }
  }

  /** Rejects a change that failed alone often enough while others succeeded, so that a person decides about it. */
  #givenUpAtLast(answer: Answer, trouble: unknown): Answer {
    const { changeId, state, isAlone } = answer;
    if (state !== 'retry') this.#failing.delete(changeId);
    if (!isAlone || trouble !== undefined) return answer;
    const nowMonoMs = this.#options.clock.monotonicMs();
    const { times, sinceMonoMs } = this.#failing.get(changeId) ?? { times: 0, sinceMonoMs: nowMonoMs };
    this.#failing.set(changeId, { times: times + 1, sinceMonoMs });
    if (times + 1 < FAILS_ALONE_MAX || nowMonoMs - sinceMonoMs < FAILS_ALONE_MS) return answer;
    this.#failing.delete(changeId);
    return { changeId, state: 'rejected', message: FAILS_ALONE };
  }

  /**
   * Writes outcomes, and retries until it succeeds. A change without a written outcome would stay `sending` and block
   * newer ones.
   */
  async #settleAtLast(
    callId: number,
    answers: readonly Answer[],
    signal: AbortSignal,
  ): Promise<SettlementReport> {
    const { kind, log, clock, beat } = this.#options;
    for (let isFirst = true; ; isFirst = false) {
      try {
        return await this.settle(callId, answers);
      } catch (error) {
        // The next sender requeues the call's changes.
        if (signal.aborted) throw error;
        if (isFirst) log.error({ kind, err: error }, 'what a call brought cannot be written yet');
        beat();
        await clock.sleep(SETTLE_AGAIN_MS, signal);
      }
    }
  }

  /** Waits until a call is full, a sold-out change is queued, or `lingerMs` has passed. */
  async #linger(signal: AbortSignal): Promise<void> {
    const { clock, lingerMs } = this.#options;
    const endMonoMs = clock.monotonicMs() + lingerMs;
    while (!signal.aborted && clock.monotonicMs() < endMonoMs) {
      const { waiting, urgent } = this.outlook();
      if (urgent || waiting >= BATCH_ITEMS_MAX) return;
      await this.#rest(endMonoMs - clock.monotonicMs(), signal);
    }
  }

  /**
   * Waits until changes may have been queued, or for `ms`; at least one millisecond, so that rounding never causes a
   * busy loop.
   */
  async #rest(ms: number, signal: AbortSignal): Promise<void> {
    await this.#waker.rest(Math.max(1, ms), signal, this.#options.beat);
  }
}

/** Returns the answer with the milliseconds from submission to settlement; null if the change is not settled. */
function withDelay({ db }: Stores, answer: Answer): Answer & { delayMs: number | null } {
  const times = 'SELECT created_at AS createdAt, settled_at AS settledAt FROM _outbox WHERE change_id = ?';
  const { createdAt = '', settledAt = null } =
    sqlOf(db).row<{ createdAt: string; settledAt: string | null }>(times, answer.changeId) ?? {};
  const delayMs = Date.parse(settledAt ?? '') - Date.parse(createdAt);
  return { ...answer, delayMs: Number.isNaN(delayMs) ? null : Math.max(0, delayMs) };
}

/**
 * Maximum number of items with an unclear outcome that are read one by one. The others are sent again without a read.
 */
const ASK_MAX = 10;
/** Number of sendings after which an unclear item is left to a person. */
const DOUBTFUL_SENDS_MAX = 3;
/**
 * If this many single items in a row are refused, the last item of the call is sent next. If it is refused too,
 * probably every item would be.
 */
const HOPELESS_AFTER = 3;
/** A change sent this often without an answer may be the cause of the failure itself. */
const SUSPECT_AFTER = 2;
/** If more parts of a call fail than this, a few bad items cannot be the cause. */
const FAILURES_MAX = 16;
/** Messages of changes that are left to a person although the platform neither accepted nor clearly refused them. */
const DOUBTS: Record<Exclude<Verification, 'applied'> | 'unreadable', string> = {
  differs: 'Sent several times; the platform does not say why it has another value.',
  unseen: 'Sent several times; the platform does not say that it took it, and the product does not show it.',
  unreadable: 'Sent several times; the platform does not say that it took it, nor show the product.',
};

export type PushPlatform = Pick<
  PlatformClient,
  'productPut' | 'productStockPut' | 'productBatch' | 'productStockBatch' | 'productGet'
>;

/** Sends the items of one call and collects the outcome of each. */
export class PushCall {
  readonly #platform: PushPlatform;
  readonly #kind: ChangeKind;
  readonly #how: { endpoint: 'batch' | 'single'; call: CallOptions };
  readonly #answers = new Map<number, Answer>();

  constructor(
    platform: PushPlatform,
    kind: ChangeKind,
    how: { endpoint: 'batch' | 'single'; call: CallOptions },
  ) {
    this.#platform = platform;
    this.#kind = kind;
    this.#how = how;
  }

  /**
   * Sends the items; the promise never rejects. An item with an unknown outcome gets `retry`; sending it again is
   * harmless, because values are absolute. `isOutage` means that the previous call failed. `trouble` is the error for
   * which the sender should pause; undefined if only single items failed.
   */
  async run(items: readonly BatchItem[], isOutage = false): Promise<{ answers: Answer[]; trouble: unknown }> {
    const alone = new Map<BatchItem, TillsyncError>();
    const trouble = await this.#sendOrSplit(items, alone, isOutage).then(
      () => undefined,
      (error: unknown) => error,
    );
    for (const [item, error] of alone) {
      if (trouble === undefined && isRefusal(error)) this.#note(item, 'rejected', error.message);
      else this.#note(item, 'retry', notArrived(error), true);
    }
    const message =
      trouble === undefined
        ? 'The answer did not say whether it was taken; it is sent again.'
        : notArrived(trouble);
    for (const item of items) if (!this.#answers.has(item.changeId)) this.#note(item, 'retry', message);
    return { answers: [...this.#answers.values()], trouble };
  }

  /**
   * Sends a call. If the platform refuses it, or if it failed several times, sends halves of it until each bad item is
   * in a call of its own, and adds it to `alone`. During an outage, small parts from both ends of the list come first,
   * so that a bad item is found with few calls. Throws errors that no item causes.
   */
  async #sendOrSplit(
    items: readonly BatchItem[],
    alone: Map<BatchItem, TillsyncError>,
    isOutage: boolean,
  ): Promise<void> {
    const sentBefore = Math.max(...items.map(({ attempts }) => attempts));
    const groups = isOutage ? inParts(items, sentBefore) : [items];
    let isAnyTaken = false;
    let doubts = 0;
    let failures = 0;
    let last: TillsyncError | undefined;
    while (groups.length > 0) {
      const isFromEnd = !isAnyTaken && doubts >= HOPELESS_AFTER;
      const group = (isFromEnd ? groups.pop() : groups.shift()) ?? [];
      let unclear: readonly BatchItem[];
      try {
        unclear = await this.#send(group);
      } catch (error) {
        if (!isRefusal(error) && !(isFailure(error) && sentBefore >= SUSPECT_AFTER)) throw error;
        last = error;
        const [item] = group;
        const middle = Math.ceil(group.length / 2);
        if (group.length === 1 && item) alone.set(item, error);
        else if (isFromEnd) groups.push(group.slice(0, middle), group.slice(middle));
        else groups.unshift(group.slice(0, middle), group.slice(middle));
        if (isRefusal(error)) doubts += Number(group.length === 1);
        else {
          doubts += HOPELESS_AFTER;
          failures += 1;
        }
        // So many failures, or refusals before any item was accepted, have another cause than single items.
        if (failures > FAILURES_MAX || (!isAnyTaken && doubts > HOPELESS_AFTER)) throw error;
        continue;
      }
      isAnyTaken = true;
      await this.#settleDoubtful(unclear);
    }
    if (!isAnyTaken && doubts >= HOPELESS_AFTER) throw last;
  }

  /** Sends items in one call. Returns the items whose outcome the answer does not say. */
  async #send(items: readonly BatchItem[]): Promise<readonly BatchItem[]> {
    const { endpoint, call } = this.#how;
    const [first] = items;
    if (endpoint === 'single' && items.length === 1 && first) {
      const answer =
        this.#kind === 'stock'
          ? await this.#platform.productStockPut(first.body as StockChangeItem, call)
          : await this.#platform.productPut(first.body as ProductChangeItem, call);
      if (answer !== 'applied') return items;
      this.#note(first, 'done');
      return [];
    }
    const bodies = items.map(({ body }) => body);
    const answer =
      this.#kind === 'stock'
        ? await this.#platform.productStockBatch(bodies as StockChangeItem[], call)
        : await this.#platform.productBatch(bodies as ProductChangeItem[], call);
    const answers = readBatchAnswer(bodies, answer);
    for (const [i, item] of items.entries()) {
      const of = answers[i];
      if (of?.state === 'done') this.#note(item, 'done');
      else if (of?.state === 'rejected') this.#note(item, 'rejected', of.message);
    }
    return items.filter((_, i) => answers[i]?.state === 'unclear');
  }

  /**
   * Reads the products of items with an unclear outcome. An item that stays unclear is sent again, a few times at most.
   */
  async #settleDoubtful(doubtful: readonly BatchItem[]): Promise<void> {
    for (const item of doubtful.slice(0, ASK_MAX)) {
      const verdict = await this.#verify(item);
      if (verdict === 'applied') this.#note(item, 'done');
      else if (item.attempts + 1 >= DOUBTFUL_SENDS_MAX) this.#note(item, 'rejected', DOUBTS[verdict]);
    }
  }

  /**
   * Compares the product on the platform with the sent change. `unreadable` means that the platform refuses to show
   * the product, which says nothing about the change.
   */
  async #verify({ body }: BatchItem): Promise<Verification | 'unreadable'> {
    const query =
      'sku' in body && body.sku !== undefined
        ? { sku: String(body.sku) }
        : { externalId: body.externalId ?? '' };
    try {
      return verifyApplied(body, await this.#platform.productGet(query, this.#how.call));
    } catch (error) {
      if (isRefusal(error)) return 'unreadable';
      throw error;
    }
  }

  #note({ changeId }: BatchItem, state: Answer['state'], message?: string, isAlone = false): void {
    this.#answers.set(changeId, {
      changeId,
      state,
      ...(message !== undefined && { message }),
      ...(isAlone && { isAlone }),
    });
  }
}

/**
 * Whether the platform refuses the content and would refuse it again. HTTP 408 and 425 are no refusals, because they
 * may mean that the call was too slow or early.
 */
export function isRefusal(error: unknown): error is TillsyncError {
  return hasCode(error, 'platform-refused') && !error.retryable;
}

/** Whether a single item may cause the failure, in the platform or in a proxy before it. */
function isFailure(error: unknown): error is TillsyncError {
  return (
    hasCode(error, 'platform-failed') ||
    (hasCode(error, 'platform-garbled') && Number(error.httpStatus) >= 400)
  );
}

function notArrived(error: unknown): string {
  return `Not known to have arrived (${asTillsyncError(error).message}); it is sent again.`;
}

/** Splits a call into beginning, middle and end. The outer parts get smaller each time that the call is sent. */
function inParts(items: readonly BatchItem[], sentBefore: number): (readonly BatchItem[])[] {
  const size = Math.ceil(items.length / 2 ** Math.max(0, sentBefore + 1 - SUSPECT_AFTER));
  const end = Math.max(size, items.length - size);
  return [items.slice(0, size), items.slice(size, end), items.slice(end)].filter(({ length }) => length > 0);
}
