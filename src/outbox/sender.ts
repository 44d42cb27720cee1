import { type FreshnessBoard, type FreshnessState, freshnessOfFailure } from '../core/alarm.ts';
import { asTillsyncError, failureCode, hasCode, type TillsyncError } from '../core/errors.ts';
import type { Log } from '../core/log.ts';
import { LOCKED_OUT_LOOK_MS, patientSignal, rest, retryDelayMs, Waker } from '../core/loop.ts';
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
} from './batch.ts';
import type { Claim, SendRules, SettlementReport } from './calls.ts';
import type { Answer, BatchItem, ChangeKind } from './change.ts';
import type { MirrorStores, Stores } from './stores.ts';

const SUBJECT = 'outbox.push';

/** How sending fares, told of both kinds of changes as one: well only when neither is in trouble. */
export class PushFreshness {
  readonly #board: FreshnessBoard;
  readonly #troubles = new Map<ChangeKind, FreshnessState>();

  constructor(board: FreshnessBoard) {
    this.#board = board;
  }

  /** The platform answered a call for each of its items. */
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

  /** Changes wait that nobody may send before a person acts. */
  lockedOut(kind: ChangeKind): void {
    const message =
      'Changes wait until the platform has been given new tokens. Hand them in with: {tillsync} auth set';
    this.#report(kind, 'locked-out', message);
  }

  /** Nothing of the kind waits any more, so nothing of it is in trouble. */
  idle(kind: ChangeKind): void {
    if (this.#troubles.delete(kind) && this.#troubles.size === 0) this.#board.report(SUBJECT, 'ok', '');
  }

  #report(kind: ChangeKind, state: FreshnessState, message: string, failure?: string): void {
    const before = this.#troubles.get(kind);
    this.#troubles.set(kind, state);
    // Only a call is a try; that a person is still waited for is no news.
    if (state === 'locked-out' && before === 'locked-out') return;
    this.#board.report(SUBJECT, state, message, failure);
  }
}

/** More doubtful items than this are sent again rather than asked for one by one. */
const ASK_MAX = 10;
/** After so many sends an item that stays in doubt is given to a person. */
const DOUBTFUL_SENDS_MAX = 3;
/** Alone refused, one after the other, before the end of the call is tried: then the platform refuses everything. */
const HOPELESS_AFTER = 3;
/** Sent so often without an answer for it, a change is no longer taken for the victim of a short fault. */
const SUSPECT_AFTER = 2;
/** Of one call, so many parts may fail: then it is more than a few of its items. */
const FAILURES_MAX = 16;
/** What fails alone while others of its call are taken is given to a person after so many times and so long. */
const FAILS_ALONE_MAX = 3;
const FAILS_ALONE_MS = 3_600_000;
const FAILS_ALONE = 'Sent several times, at last alone; the platform fails on it and takes others.';

/** Why a change is given to a person that the platform neither took nor refused in so many words. */
const DOUBTS: Record<Exclude<Verification, 'applied'> | 'unreadable', string> = {
  differs: 'Sent several times; the platform does not say why it has another value.',
  unseen: 'Sent several times; the platform does not say that it took it, and the product does not show it.',
  unreadable: 'Sent several times; the platform does not say that it took it, nor show the product.',
};

type PushPlatform = Pick<
  PlatformClient,
  'productPut' | 'productStockPut' | 'productBatch' | 'productStockBatch' | 'productGet'
>;

/** Sends the items of one call and collects what became of each. */
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
   * Never rejects: whatever is not known to have been taken or refused is to be sent again, since all values are
   * absolute. `isOutage`: the call before failed. `trouble`: why the sender should rest, when something beyond single items
   * went wrong.
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
   * A call that is refused whole is sent in halves, in the order of the items, until the bad ones are `alone`. So is one
   * that fails again and again, once a part of it was taken: in an outage the parts that are tried first are smaller
   * each time, so that it costs one call more and a bad item is found all the same. Throws what is not about the items.
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
        // Then it is not the items.
        if (failures > FAILURES_MAX || (!isAnyTaken && doubts > HOPELESS_AFTER)) throw error;
        continue;
      }
      isAnyTaken = true;
      await this.#settleDoubtful(unclear);
    }
    if (!isAnyTaken && doubts >= HOPELESS_AFTER) throw last;
  }

  /** Those of which the answer does not say whether they were taken. */
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

  /** Reads what the answer left open; what cannot be told is sent again, a few times. */
  async #settleDoubtful(doubtful: readonly BatchItem[]): Promise<void> {
    for (const item of doubtful.slice(0, ASK_MAX)) {
      const verdict = await this.#verify(item);
      if (verdict === 'applied') this.#note(item, 'done');
      else if (item.attempts + 1 >= DOUBTFUL_SENDS_MAX) this.#note(item, 'rejected', DOUBTS[verdict]);
    }
  }

  /** `unreadable`: the platform refuses to show the product, which says nothing of the change that was sent. */
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
      ...{ changeId, state },
      ...(message !== undefined && { message }),
      ...(isAlone && { isAlone }),
    });
  }
}

/** Whether the platform refuses what was sent, and would again; it may also only have been too slow (408, 425). */
export function isRefusal(error: unknown): error is TillsyncError {
  return hasCode(error, 'platform-refused') && !error.retryable;
}

/** Whether something failed that may be one item's doing: the platform itself, or somebody before it. */
function isFailure(error: unknown): error is TillsyncError {
  return (
    hasCode(error, 'platform-failed') ||
    (hasCode(error, 'platform-garbled') && Number(error.httpStatus) >= 400)
  );
}

function notArrived(error: unknown): string {
  return `Not known to have arrived (${asTillsyncError(error).message}); it is sent again.`;
}

/** The whole call, or a part of its beginning, what lies between, and a part of its end, smaller with each time. */
function inParts(items: readonly BatchItem[], sentBefore: number): (readonly BatchItem[])[] {
  const size = Math.ceil(items.length / 2 ** Math.max(0, sentBefore + 1 - SUSPECT_AFTER));
  const end = Math.max(size, items.length - size);
  return [items.slice(0, size), items.slice(size, end), items.slice(end)].filter(({ length }) => length > 0);
}

/** Another process may put changes in the queue too, so an idle one is looked at this often. */
const LOOK_EVERY_MS = 500;
/** What a call brought is tried to be written this often, so that nothing stays under way for ever. */
const SETTLE_AGAIN_MS = 2_000;
/** Orders of a longer silence may have taken of a stock what the mirror still has: nothing is unchanged then. */
const ORDERS_KNOWN_MS = 900_000;
/** Changes whose targets are looked for in one transaction. */
const TARGETS_AT_ONCE = 500;

export interface PushLoopOptions {
  kind: ChangeKind;
  platform: PushPlatform & Pick<PlatformClient, 'delayMs'>;
  stores: MirrorStores;
  rules: Omit<SendRules, 'sendAsIs'>;
  /** Whether a first sweep may still come: until then targets by their own words wait. */
  hasBranches: boolean;
  /** Wall clock of the last complete poll of the orders; null: none yet. */
  lastPollOkMs: () => number | null;
  /** Whether this process sends: `elsewhere` while another one does, `locked-out` while only a person can help. */
  status: () => 'sends' | 'elsewhere' | 'locked-out';
  freshness: PushFreshness;
  /** Asks for scarce stocks first; left out: nobody does. */
  looker?:
    | {
        readonly lookBelow: number;
        look(places: Claim['toLook'], call: CallOptions, isUrgent: () => boolean): Promise<void>;
      }
    | undefined;
  /** Called after each call with what became of its changes. */
  onSettled?:
    | ((kind: ChangeKind, settled: readonly (Answer & { delayMs: number | null })[]) => void)
    | undefined;
  clock: Clock;
  random: Random;
  log: Log;
  /** How long a change may wait for company. */
  lingerMs: number;
  /** How often it looks for what another process did; without it, as a store needs it. */
  lookEveryMs?: number | undefined;
  beat: () => void;
}

const ENDPOINTS: Record<ChangeKind, { batch: Endpoint; single: Endpoint }> = {
  stock: { batch: 'product.stock.batch', single: 'product.stock.put' },
  product: { batch: 'product.batch', single: 'product.put' },
};

/**
 * Sends one kind of changes, one call under way at a time. Changes are claimed only when a call may leave at
 * once, so each call carries the newest values, sold out first, and as many as there are.
 */
export class PushLoop {
  readonly #options: PushLoopOptions;
  readonly #waker: Waker;
  readonly #lookEveryMs: number;
  #failures = 0;
  /** Changes that failed alone while others of their call were taken. */
  readonly #failing = new Map<number, { times: number; sinceMonoMs: number }>();
  /** The newest reading of the catalogue in which waiting changes were looked for, and whether they leave as they are. */
  #targetsOf: string | undefined;

  constructor(options: PushLoopOptions) {
    this.#options = options;
    this.#lookEveryMs = options.lookEveryMs ?? LOOK_EVERY_MS;
    this.#waker = new Waker(options.clock);
  }

  /** A hint that changes were put in the queue. */
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

  /** What waits, for the choice of endpoint; what may have a target by now, too. */
  outlook(): QueueOutlook {
    const { stores, kind } = this.#options;
    return stores.read((at) => {
      const sendAsIs = this.#sendsAsIs(at) || !this.#areTargetsFound(at);
      return at.calls.outlook(kind, { sendAsIs });
    });
  }

  /** Takes the next changes out of the queue, for one call. */
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

  /** Writes what became of the changes of a call. */
  async settle(callId: number, answers: readonly Answer[]): Promise<SettlementReport> {
    const { stores, kind, onSettled } = this.#options;
    const report = await stores.write(({ calls }) => calls.settle(callId, answers));
    try {
      onSettled?.(
        kind,
        stores.read((at) => answers.map((answer) => withDelay(at, answer))),
      );
    } catch {
      // It is settled; that it could not be counted changes nothing.
    }
    return report;
  }

  /** What orders took of a stock can be told only where the catalogue says which one is meant. */
  #sendsAsIs({ lookup, reservations }: Stores): boolean {
    const { kind, rules, hasBranches } = this.#options;
    const holds = kind === 'stock' && (rules.holdBack === true || reservations.holdsBack);
    return !holds && (!hasBranches || lookup.isComplete);
  }

  /** Whether nothing of the catalogue was read whole since targets were looked for. */
  #areTargetsFound(at: Stores): boolean {
    const mayComeYet = this.#options.hasBranches && !at.lookup.isComplete;
    return mayComeYet || this.#targetsNow(at) === this.#targetsOf;
  }

  #targetsNow(at: Stores): string {
    const newest = sqlOf(at.db).value<string | null>('SELECT max(completed_at) FROM sweeps') ?? '';
    return `${newest} ${this.#sendsAsIs(at)}`;
  }

  /**
   * Changes that were to be sent by their own words may have targets after a reading of the catalogue. They are put
   * where they belong before anything else is sent, so that an older one never arrives after a newer one.
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
    const patient = patientSignal(signal, clock);
    // What leaves without a look goes first.
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
    // What fails alone tells nothing of what is handed over meanwhile.
    const endMonoMs = clock.monotonicMs() + restMs;
    for (let leftMs = restMs; leftMs >= 1; leftMs = endMonoMs - clock.monotonicMs()) {
      await this.#rest(leftMs, signal);
      if (signal.aborted || this.outlook().waiting > items.length) return;
    }
  }

  /** What fails alone while others of its call are taken is no outage: when that lasts, it is for a person. */
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

  /** Keeps at it: a change whose outcome is not written would stay under way, and hold back all newer ones. */
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
        // Whoever sends next puts it back in the queue.
        if (signal.aborted) throw error;
        if (isFirst) log.error({ kind, err: error }, 'what a call brought cannot be written yet');
        beat();
        await clock.sleep(SETTLE_AGAIN_MS, signal);
      }
    }
  }

  /** Waits for company, until there is enough of it or something is sold out. */
  async #linger(signal: AbortSignal): Promise<void> {
    const { clock, lingerMs } = this.#options;
    const endMonoMs = clock.monotonicMs() + lingerMs;
    while (!signal.aborted && clock.monotonicMs() < endMonoMs) {
      const { waiting, urgent } = this.outlook();
      if (urgent || waiting >= BATCH_ITEMS_MAX) return;
      await this.#rest(endMonoMs - clock.monotonicMs(), signal);
    }
  }

  /** Waits, until a hint that there is something to send. */
  async #rest(ms: number, signal: AbortSignal): Promise<void> {
    const { clock, beat } = this.#options;
    const endMonoMs = clock.monotonicMs() + ms;
    await this.#waker.until(() => clock.nowMs() + endMonoMs - clock.monotonicMs(), signal, beat);
  }
}

/** With the time from handing it over to that. */
function withDelay({ db }: Stores, answer: Answer): Answer & { delayMs: number | null } {
  const times = 'SELECT created_at AS createdAt, settled_at AS settledAt FROM outbox WHERE change_id = ?';
  const { createdAt = '', settledAt = null } =
    sqlOf(db).row<{ createdAt: string; settledAt: string | null }>(times, answer.changeId) ?? {};
  const delayMs = Date.parse(settledAt ?? '') - Date.parse(createdAt);
  return { ...answer, delayMs: Number.isNaN(delayMs) ? null : Math.max(0, delayMs) };
}
