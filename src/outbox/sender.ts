import { type FreshnessBoard, type FreshnessState, freshnessOfFailure } from '../core/alarm.ts';
import { asTillsyncError, hasCode, type TillsyncError } from '../core/errors.ts';
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
    const { code, message, hint } = asTillsyncError(error);
    if (code === 'aborted') return;
    this.#report(kind, freshnessOfFailure(code), [message, hint].filter(Boolean).join(' '));
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

  #report(kind: ChangeKind, state: FreshnessState, message: string): void {
    const before = this.#troubles.get(kind);
    this.#troubles.set(kind, state);
    // Only a call is a try; that a person is still waited for is no news.
    if (state === 'locked-out' && before === 'locked-out') return;
    this.#board.report(SUBJECT, state, message);
  }
}

/** More doubtful items than this are sent again rather than asked for one by one. */
const ASK_MAX = 10;
/** After so many sends an item that stays in doubt is given to a person. */
const DOUBTFUL_SENDS_MAX = 3;
/** Alone refused, one after the other, before it is taken that the platform refuses everything. */
const HOPELESS_AFTER = 3;

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
   * absolute. `trouble`: why the sender should rest, when something beyond single items went wrong.
   */
  async run(items: readonly BatchItem[]): Promise<{ answers: Answer[]; trouble: unknown }> {
    const trouble = await this.#sendOrSplit(items);
    const message =
      trouble === undefined
        ? 'The answer did not say whether it was taken; it is sent again.'
        : `Not known to have arrived (${asTillsyncError(trouble).message}); it is sent again.`;
    for (const item of items) if (!this.#answers.has(item.changeId)) this.#note(item, 'retry', message);
    return { answers: [...this.#answers.values()], trouble };
  }

  /** A call that is refused whole is sent in halves, in the order of the items, until the bad ones are alone. */
  async #sendOrSplit(items: readonly BatchItem[]): Promise<unknown> {
    const groups = [items];
    const refused: [BatchItem, message: string][] = [];
    let isAnyTaken = false;
    for (let group = groups.shift(); group; group = groups.shift()) {
      try {
        await this.#send(group);
        isAnyTaken = true;
      } catch (error) {
        if (!isRefusal(error)) return error;
        const [item] = group;
        if (group.length > 1) {
          const middle = Math.ceil(group.length / 2);
          groups.unshift(group.slice(0, middle), group.slice(middle));
        } else if (item) refused.push([item, error.message]);
        // Then it is not the items.
        if (!isAnyTaken && refused.length >= HOPELESS_AFTER) return error;
      }
    }
    for (const [item, message] of refused) this.#note(item, 'rejected', message);
    return undefined;
  }

  async #send(items: readonly BatchItem[]): Promise<void> {
    const { endpoint, call } = this.#how;
    const [first] = items;
    if (endpoint === 'single' && items.length === 1 && first) {
      const answer =
        this.#kind === 'stock'
          ? await this.#platform.productStockPut(first.body as StockChangeItem, call)
          : await this.#platform.productPut(first.body as ProductChangeItem, call);
      if (answer === 'applied') this.#note(first, 'done');
      else await this.#settleDoubtful(items);
      return;
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
    await this.#settleDoubtful(items.filter((_, i) => answers[i]?.state === 'unclear'));
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

  #note({ changeId }: BatchItem, state: Answer['state'], message?: string): void {
    this.#answers.set(changeId, { changeId, state, ...(message !== undefined && { message }) });
  }
}

/** Whether the platform refuses what was sent, and would again; it may also only have been too slow (408, 425). */
export function isRefusal(error: unknown): error is TillsyncError {
  return hasCode(error, 'platform-refused') && !error.retryable;
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
  /** The newest reading of the catalogue in which waiting changes were looked for. */
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
  async claim(max: number): Promise<Pick<Claim, 'callId' | 'items'>> {
    const { stores, kind, rules, lastPollOkMs, clock } = this.#options;
    for (;;) {
      const polledMs = rules.skipUnchanged ? lastPollOkMs() : null;
      const skipUnchanged = polledMs !== null && Math.abs(clock.nowMs() - polledMs) < ORDERS_KNOWN_MS;
      if (kind === 'stock') while (await stores.write((at) => at.calls.catchUp(rules)));
      await this.#findTargets();
      const claim = await stores.write((at) => {
        if (!this.#areTargetsFound(at)) return undefined;
        return at.calls.claim(kind, max, { ...rules, skipUnchanged, sendAsIs: this.#sendsAsIs(at) });
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
  #sendsAsIs({ lookup }: Stores): boolean {
    const { kind, rules, hasBranches } = this.#options;
    return kind === 'stock' && rules.holdBack ? false : !hasBranches || lookup.isComplete;
  }

  /** Whether nothing of the catalogue was read whole since targets were looked for. */
  #areTargetsFound(at: Stores): boolean {
    const mayComeYet = this.#options.hasBranches && !at.lookup.isComplete;
    return mayComeYet || newestSweep(at) === this.#targetsOf;
  }

  /**
   * Changes that were to be sent by their own words may have targets after a reading of the catalogue. They are put
   * where they belong before anything else is sent, so that an older one never arrives after a newer one.
   */
  async #findTargets(): Promise<void> {
    const { stores } = this.#options;
    if (stores.read((at) => this.#areTargetsFound(at))) return;
    const newest = stores.read(newestSweep);
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
    const { callId, items } = await this.claim(endpoint === 'batch' ? BATCH_ITEMS_MAX : 1);
    if (callId === null) return await this.#rest(this.#lookEveryMs, signal);
    const patient = patientSignal(signal, clock);
    const call = { signal: patient.signal, onSend: patient.onSend, onWait: beat };
    const { answers, trouble } = await new PushCall(platform, kind, { endpoint, call }).run(items);
    patient.end();
    const report = await this.#settleAtLast(callId, answers, signal);
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
    await rest(clock, retryDelayMs(this.#failures, trouble, random), signal, beat);
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

function newestSweep({ db }: Stores): string {
  return sqlOf(db).value<string | null>('SELECT max(completed_at) FROM sweeps') ?? '';
}

/** With the time from handing it over to that. */
function withDelay({ db }: Stores, answer: Answer): Answer & { delayMs: number | null } {
  const times = 'SELECT created_at AS createdAt, settled_at AS settledAt FROM outbox WHERE change_id = ?';
  const { createdAt = '', settledAt = null } =
    sqlOf(db).row<{ createdAt: string; settledAt: string | null }>(times, answer.changeId) ?? {};
  const delayMs = Date.parse(settledAt ?? '') - Date.parse(createdAt);
  return { ...answer, delayMs: Number.isNaN(delayMs) ? null : Math.max(0, delayMs) };
}
