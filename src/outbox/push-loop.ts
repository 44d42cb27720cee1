import { type FreshnessBoard, type FreshnessState, freshnessOfFailure } from '../core/alarm.ts';
import { asTillsyncError, failureCode, hasCode, type TillsyncError } from '../core/errors.ts';
import type { Log } from '../core/log.ts';
import { gracefulSignal, LOCKED_OUT_LOOK_MS, rest, retryDelayMs, Waker } from '../core/loop.ts';
import type { Clock, Random } from '../core/time.ts';
import { sqlOf } from '../db/sqlite.ts';
import type { PlatformClient } from '../platform/client.ts';
import { BATCH_ITEMS_MAX, type CallOptions, type Endpoint } from '../platform/platform.ts';
import type { ProductChangeItem, StockChangeItem } from '../platform/schemas.ts';
import {
  chooseEndpoint,
  type QueueOutlook,
  readBatchAnswer,
  type Verification,
  verifyApplied,
} from './call-plan.ts';
import type { Answer, BatchItem, ChangeKind } from './change.ts';
import type { Claim, SendRules, SettlementReport } from './dispatch.ts';
import type { MirrorStores, Stores } from './repositories.ts';

const SUBJECT = 'outbox.push';

/** The freshness of sending, one for both kinds of changes: good only if neither is in trouble. */
export class PushFreshness {
  readonly #board: FreshnessBoard;
  readonly #troubles = new Map<ChangeKind, FreshnessState>();

  constructor(board: FreshnessBoard) {
    this.#board = board;
  }

  /** Records that the platform answered a call for each of its items. */
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

  /** Records that no change of the kind waits, so it is not in trouble. */
  idle(kind: ChangeKind): void {
    if (this.#troubles.delete(kind) && this.#troubles.size === 0) this.#board.report(SUBJECT, 'ok', '');
  }

  #report(kind: ChangeKind, state: FreshnessState, message: string, failure?: string): void {
    const before = this.#troubles.get(kind);
    this.#troubles.set(kind, state);
    // Waiting longer for a person is no new state, and only a call is a try.
    if (state === 'locked-out' && before === 'locked-out') return;
    this.#board.report(SUBJECT, state, message, failure);
  }
}

/** Most unclear items that are read one by one; if there are more, all are sent again. */
const ASK_MAX = 10;
/** After this many sendings an unclear item is left to a person. */
const DOUBTFUL_SENDS_MAX = 3;
/** Single refusals in a row after which the last item is tried next, because probably all items are refused. */
const HOPELESS_AFTER = 3;
/** A change sent this often without an answer may itself be the cause, and not a short fault. */
const SUSPECT_AFTER = 2;
/** If more parts of a call fail than this, the cause is not a few items. */
const FAILURES_MAX = 16;
/**
 * A change that fails alone while others of its call succeed is left to a person after this many tries and this long.
 */
const FAILS_ALONE_MAX = 3;
const FAILS_ALONE_MS = 3_600_000;
const FAILS_ALONE = 'Sent several times, at last alone; the platform fails on it and takes others.';

/** Why a change is left to a person although the platform neither accepted nor clearly refused it. */
const DOUBTS: Record<Exclude<Verification, 'applied'> | 'unreadable', string> = {
  differs: 'Sent several times; the platform does not say why it has another value.',
  unseen: 'Sent several times; the platform does not say that it took it, and the product does not show it.',
  unreadable: 'Sent several times; the platform does not say that it took it, nor show the product.',
};

type PushPlatform = Pick<
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
   * Never rejects: an unknown outcome is sent again, because all values are absolute. `isOutage`: the previous call
   * failed. `trouble` is why the sender should pause, if more than single items failed.
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
   * Sends a call. If it is refused whole, sends halves, in order, until the bad items are `alone`. A call that keeps
   * failing is split too, once a part of it was accepted. In an outage the first parts get smaller each time, so that
   * it costs one more call and still finds a bad item. Throws errors that no item causes.
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
        // So many failures are not caused by the items.
        if (failures > FAILURES_MAX || (!isAnyTaken && doubts > HOPELESS_AFTER)) throw error;
        continue;
      }
      isAnyTaken = true;
      await this.#settleDoubtful(unclear);
    }
    if (!isAnyTaken && doubts >= HOPELESS_AFTER) throw last;
  }

  /** Returns the items whose outcome is not in the answer. */
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

  /** Reads the products of unclear items. If still unclear, they are sent again a few times. */
  async #settleDoubtful(doubtful: readonly BatchItem[]): Promise<void> {
    for (const item of doubtful.slice(0, ASK_MAX)) {
      const verdict = await this.#verify(item);
      if (verdict === 'applied') this.#note(item, 'done');
      else if (item.attempts + 1 >= DOUBTFUL_SENDS_MAX) this.#note(item, 'rejected', DOUBTS[verdict]);
    }
  }

  /**
   * `unreadable` means that the platform refuses to show the product, which says nothing about the sent
   * change.
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

/** Whether the platform refuses the content and would again. (408 and 425 may only mean too slow.) */
export function isRefusal(error: unknown): error is TillsyncError {
  return hasCode(error, 'platform-refused') && !error.retryable;
}

/** Whether a failure may be caused by one item, in the platform or in a proxy before it. */
function isFailure(error: unknown): error is TillsyncError {
  return (
    hasCode(error, 'platform-failed') ||
    (hasCode(error, 'platform-garbled') && Number(error.httpStatus) >= 400)
  );
}

function notArrived(error: unknown): string {
  return `Not known to have arrived (${asTillsyncError(error).message}); it is sent again.`;
}

/** Splits a call into a beginning, a middle and an end; the outer parts get smaller with each sending. */
function inParts(items: readonly BatchItem[], sentBefore: number): (readonly BatchItem[])[] {
  const size = Math.ceil(items.length / 2 ** Math.max(0, sentBefore + 1 - SUSPECT_AFTER));
  const end = Math.max(size, items.length - size);
  return [items.slice(0, size), items.slice(size, end), items.slice(end)].filter(({ length }) => length > 0);
}

/** An idle loop checks this often, because another process may queue changes too. */
const LOOK_EVERY_MS = 500;
/** How often writing the outcomes of a call is retried, so that no change stays in `sending` for ever. */
const SETTLE_AGAIN_MS = 2_000;
/**
 * Without a good poll of orders for this time, the mirror's stock may be outdated, and no value counts as unchanged.
 */
const ORDERS_KNOWN_MS = 900_000;
/** Changes whose targets are resolved per transaction. */
const TARGETS_AT_ONCE = 500;

export interface PushLoopOptions {
  kind: ChangeKind;
  platform: PushPlatform & Pick<PlatformClient, 'delayMs'>;
  stores: MirrorStores;
  rules: Omit<SendRules, 'sendAsIs'>;
  /** Whether a first sweep may still come; until then changes with only their own ids wait. */
  hasBranches: boolean;
  /** Wall clock of the last complete poll of orders; null before the first. */
  lastPollOkMs: () => number | null;
  /** Whether this process sends; `elsewhere` if another one does, `locked-out` if only a person can help. */
  status: () => 'sends' | 'elsewhere' | 'locked-out';
  freshness: PushFreshness;
  /** Reads scarce stocks on the platform before they are sent; left out if they are sent unread. */
  looker?:
    | {
        readonly lookBelow: number;
        look(places: Claim['toLook'], call: CallOptions, isUrgent: () => boolean): Promise<void>;
      }
    | undefined;
  /** Called after each call with the outcomes of its changes. */
  onSettled?:
    | ((kind: ChangeKind, settled: readonly (Answer & { delayMs: number | null })[]) => void)
    | undefined;
  clock: Clock;
  random: Random;
  log: Log;
  /** How long a change may wait for others to fill its call. */
  lingerMs: number;
  /** Interval of checks for changes from other processes; has a default for a store. */
  lookEveryMs?: number | undefined;
  beat: () => void;
}

const ENDPOINTS: Record<ChangeKind, { batch: Endpoint; single: Endpoint }> = {
  stock: { batch: 'product.stock.batch', single: 'product.stock.put' },
  product: { batch: 'product.batch', single: 'product.put' },
};

/**
 * Sends one kind of changes, one call at a time. Changes are claimed only when a call may be sent at once, so each
 * call has the newest values, sold out first, and as many as possible.
 */
export class PushLoop {
  readonly #options: PushLoopOptions;
  readonly #waker: Waker;
  readonly #lookEveryMs: number;
  #failures = 0;
  /** Changes that failed alone while others of their call were accepted. */
  readonly #failing = new Map<number, { times: number; sinceMonoMs: number }>();
  /** The newest sweep used to resolve waiting changes, and whether they may be sent with their own ids. */
  #targetsOf: string | undefined;

  constructor(options: PushLoopOptions) {
    this.#options = options;
    this.#lookEveryMs = options.lookEveryMs ?? LOOK_EVERY_MS;
    this.#waker = new Waker(options.clock);
  }

  /** Called when changes may have been queued. */
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
   * Returns the length of the queue, by which the endpoint is chosen. Changes that may have a target by now are
   * included.
   */
  outlook(): QueueOutlook {
    const { stores, kind } = this.#options;
    return stores.read((at) => {
      const sendAsIs = this.#sendsAsIs(at) || !this.#areTargetsFound(at);
      return at.calls.outlook(kind, { sendAsIs });
    });
  }

  /** Claims the next changes for one call. */
  async claim(max: number): Promise<Pick<Claim, 'callId' | 'items' | 'toLook'>> {
    const { stores, kind, rules, lastPollOkMs, looker, clock } = this.#options;
    const lookBelow = kind === 'stock' ? looker?.lookBelow : 0;
    for (;;) {
      const polledMs = rules.skipUnchanged ? lastPollOkMs() : null;
      const skipUnchanged = polledMs !== null && Math.abs(clock.nowMs() - polledMs) < ORDERS_KNOWN_MS;
      if (kind === 'stock') while (await stores.write((at) => at.calls.catchUp(rules)));
      await this.#findTargets();
      const claim = await stores.write((at) => {
        if (!this.#areTargetsFound(at)) return undefined;
        return at.calls.claim(kind, max, {
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
    const report = await stores.write(({ calls }) => calls.settle(callId, answers));
    try {
      onSettled?.(
        kind,
        stores.read((at) => answers.map((answer) => withDelay(at, answer))),
      );
    } catch {
      // The change is settled; a failed metric does not matter.
    }
    return report;
  }

  /**
   * A change that is sent with its own ids cannot be matched to the stock that orders took from, so nothing
   * would be subtracted.
   */
  #sendsAsIs({ lookup, reservations }: Stores): boolean {
    const { kind, rules, hasBranches } = this.#options;
    const holds = kind === 'stock' && (rules.holdBack === true || reservations.holdsBack);
    return !holds && (!hasBranches || lookup.isComplete);
  }

  /** Whether no new whole sweep has come since targets were resolved. */
  #areTargetsFound(at: Stores): boolean {
    const mayComeYet = this.#options.hasBranches && !at.lookup.isComplete;
    return mayComeYet || this.#targetsNow(at) === this.#targetsOf;
  }

  #targetsNow(at: Stores): string {
    const newest = sqlOf(at.db).value<string | null>('SELECT max(completed_at) FROM sweeps') ?? '';
    return `${newest} ${this.#sendsAsIs(at)}`;
  }

  /**
   * Resolves changes with only their own ids after a sweep. They are moved to their targets before anything else is
   * sent, so that an older value never arrives after a newer one.
   */
  async #findTargets(): Promise<void> {
    const { stores } = this.#options;
    if (stores.read((at) => this.#areTargetsFound(at))) return;
    const newest = stores.read((at) => this.#targetsNow(at));
    let last: number | undefined = 0;
    while (last !== undefined) {
      const after: number = last;
      last = await stores.write((at) => {
        const { decisions, intake } = at;
        const kept = decisions.unresolved('as-is', { after, limit: TARGETS_AT_ONCE });
        for (const each of kept) {
          const resolution = intake.resolve(each);
          if (resolution.state !== 'needs-read') decisions.retarget(each, resolution);
          else if (!this.#sendsAsIs(at)) decisions.askFor(each);
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
    const { kind, platform, freshness, log, clock, random, beat } = this.#options;
    const { callId, items, toLook } = await this.claim(endpoint === 'batch' ? BATCH_ITEMS_MAX : 1);
    const patient = gracefulSignal(signal, clock);
    // Changes that need no read of the platform's quantity are sent first.
    if (callId === null && toLook.length > 0) {
      const how = { signal: patient.signal, onWait: beat };
      try {
        return await this.#options.looker?.look(toLook, how, () => this.outlook().urgent);
      } finally {
        patient.end();
      }
    }
    if (callId === null) {
      patient.end();
      return await this.#rest(this.#lookEveryMs, signal);
    }
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
      return;
    }
    log.warn({ kind, ...report }, 'changes sent');
    freshness.failed(kind, trouble);
    if (signal.aborted) return;
    this.#failures += 1;
    const restMs = retryDelayMs(this.#failures, trouble, random);
    if (!items.every(({ changeId }) => this.#failing.has(changeId))) {
      return await rest(clock, restMs, signal, beat);
    }
    // These changes may fail by a fault of their own, so the wait ends as soon as another change is
    // submitted.
    const endMonoMs = clock.monotonicMs() + restMs;
    for (let leftMs = restMs; leftMs >= 1; leftMs = endMonoMs - clock.monotonicMs()) {
      await this.#rest(leftMs, signal);
      if (signal.aborted || this.outlook().waiting > items.length) return;
    }
  }

  /**
   * A change that fails alone while others succeed is no outage. After enough tries a person has to decide
   * about it.
   */
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
   * Retries until it succeeds, because a change without a written outcome would stay in `sending` and block
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

  /** Waits until a call is full, something is sold out, or the time is over. */
  async #linger(signal: AbortSignal): Promise<void> {
    const { clock, lingerMs } = this.#options;
    const endMonoMs = clock.monotonicMs() + lingerMs;
    while (!signal.aborted && clock.monotonicMs() < endMonoMs) {
      const { waiting, urgent } = this.outlook();
      if (urgent || waiting >= BATCH_ITEMS_MAX) return;
      await this.#rest(endMonoMs - clock.monotonicMs(), signal);
    }
  }

  /** Waits until something may have to be sent. */
  async #rest(ms: number, signal: AbortSignal): Promise<void> {
    const { clock, beat } = this.#options;
    const endMonoMs = clock.monotonicMs() + ms;
    await this.#waker.until(() => clock.nowMs() + endMonoMs - clock.monotonicMs(), signal, beat);
  }
}

/** Adds the time from submission to settlement. */
function withDelay({ db }: Stores, answer: Answer): Answer & { delayMs: number | null } {
  const times = 'SELECT created_at AS createdAt, settled_at AS settledAt FROM outbox WHERE change_id = ?';
  const { createdAt = '', settledAt = null } =
    sqlOf(db).row<{ createdAt: string; settledAt: string | null }>(times, answer.changeId) ?? {};
  const delayMs = Date.parse(settledAt ?? '') - Date.parse(createdAt);
  return { ...answer, delayMs: Number.isNaN(delayMs) ? null : Math.max(0, delayMs) };
}
