import { type FreshnessBoard, type FreshnessState, freshnessOfFailure } from '../core/alarm.ts';
import { asTillsyncError, hasCode } from '../core/errors.ts';
import type { Log } from '../core/log.ts';
import { patientSignal, pieceMs, retryDelayMs, Waker } from '../core/loop.ts';
import type { Clock, Random } from '../core/time.ts';
import {
  BATCH_ITEMS_MAX,
  type CallOptions,
  type Endpoint,
  type Platform,
  type ProductChangeItem,
  type StockChangeItem,
} from '../platform/platform.ts';
import { Bisection, chooseLane, readBatchAnswer, type Verification, verifyApplied } from './batch.ts';
import type { ChangeBody, ChangeKind, ProductQuery } from './change.ts';

const SUBJECT = 'outbox.push';

interface Trouble {
  state: FreshnessState;
  message: string;
}

/** How sending fares, told of both kinds of changes as one: well only when neither is in trouble. */
export class PushFreshness {
  readonly #board: FreshnessBoard;
  readonly #troubles = new Map<ChangeKind, Trouble>();

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
    const state = freshnessOfFailure(code);
    this.#tell(kind, { state, message: [message, hint].filter(Boolean).join(' ') });
  }

  /** Changes wait that nobody may send before a person acts. */
  lockedOut(kind: ChangeKind): void {
    const message =
      'Changes wait until the platform has been given new tokens. Hand them in with: {tillsync} auth set';
    this.#tell(kind, { state: 'locked-out', message });
  }

  /** Nothing of the kind waits any more, so nothing of it is in trouble. */
  idle(kind: ChangeKind): void {
    if (this.#troubles.delete(kind) && this.#troubles.size === 0) this.#board.report(SUBJECT, 'ok', '');
  }

  #tell(kind: ChangeKind, trouble: Trouble): void {
    const before = this.#troubles.get(kind);
    this.#troubles.set(kind, trouble);
    // Only a call is a try; that a person is still waited for is no news.
    if (trouble.state === 'locked-out' && before?.state === 'locked-out') return;
    this.#board.report(SUBJECT, trouble.state, trouble.message);
  }
}

/** More doubtful items than this are sent again rather than asked for one by one. */
const ASK_MAX = 10;
/** After so many sends an item that stays in doubt is given to a person. */
const DOUBTFUL_SENDS_MAX = 3;

/** Why a change is given to a person that the platform neither took nor refused in so many words. */
const DOUBTS: Record<Exclude<Verification, 'applied'> | 'unreadable', string> = {
  differs: 'Sent several times; the platform does not say why it has another value.',
  unseen: 'Sent several times; the platform does not say that it took it, and the product does not show it.',
  unreadable: 'Sent several times; the platform does not say that it took it, nor show the product.',
};

export interface SentItem {
  changeId: number;
  body: ChangeBody;
  /** How often it was sent before. */
  attempts: number;
}

export interface SentOutcome {
  changeId: number;
  state: 'done' | 'rejected' | 'retry';
  message?: string;
}

export type PushPlatform = Pick<
  Platform,
  'productPut' | 'productStockPut' | 'productBatch' | 'productStockBatch' | 'productGet'
>;

export interface PushResult {
  outcomes: SentOutcome[];
  /** Why the flow should rest, when something beyond single items went wrong. */
  trouble: unknown;
}

/**
 * Sends claimed changes and says what became of each. Never rejects: whatever is not known to have been taken
 * or refused is to be sent again, since all values are absolute.
 */
export async function pushItems(
  platform: PushPlatform,
  kind: ChangeKind,
  items: readonly SentItem[],
  how: { lane: 'batch' | 'single'; call: CallOptions },
): Promise<PushResult> {
  const outcomes = new Map<number, SentOutcome>();
  const note = (item: SentItem, state: SentOutcome['state'], message?: string) =>
    outcomes.set(item.changeId, {
      changeId: item.changeId,
      state,
      ...(message !== undefined && { message }),
    });
  let trouble: unknown;
  const send = (group: readonly SentItem[]) =>
    how.lane === 'single' && group.length === 1
      ? sendOne(platform, kind, group[0] as SentItem, how.call, note)
      : sendBatch(platform, kind, group, how.call, note);
  try {
    await send(items);
  } catch (error) {
    trouble = hasCode(error, 'platform-refused') ? await bisect(items, error.message, send, note) : error;
  }
  for (const item of items) if (!outcomes.has(item.changeId)) note(item, 'retry', retryMessage(trouble));
  return { outcomes: [...outcomes.values()], trouble };
}

type Note = (item: SentItem, state: SentOutcome['state'], message?: string) => void;

async function sendOne(
  platform: PushPlatform,
  kind: ChangeKind,
  item: SentItem,
  call: CallOptions,
  note: Note,
) {
  const answer =
    kind === 'stock'
      ? await platform.productStockPut(item.body as StockChangeItem, call)
      : await platform.productPut(item.body as ProductChangeItem, call);
  if (answer === 'applied') note(item, 'done');
  else await settleDoubtful(platform, [item], call, note);
}

async function sendBatch(
  platform: PushPlatform,
  kind: ChangeKind,
  items: readonly SentItem[],
  call: CallOptions,
  note: Note,
): Promise<void> {
  const bodies = items.map((item) => item.body);
  const answer =
    kind === 'stock'
      ? await platform.productStockBatch(bodies as StockChangeItem[], call)
      : await platform.productBatch(bodies as ProductChangeItem[], call);
  const doubtful: SentItem[] = [];
  readBatchAnswer(bodies, answer).forEach((outcome, i) => {
    const item = items[i] as SentItem;
    if (outcome.state === 'applied') note(item, 'done');
    else if (outcome.state === 'rejected') note(item, 'rejected', outcome.message);
    else doubtful.push(item);
  });
  await settleDoubtful(platform, doubtful, call, note);
}

/** Reads what the answer left open; what cannot be told is sent again, a few times. */
async function settleDoubtful(
  platform: PushPlatform,
  doubtful: readonly SentItem[],
  call: CallOptions,
  note: Note,
): Promise<void> {
  for (const item of doubtful.slice(0, ASK_MAX)) {
    const { externalId } = item.body;
    const sku = 'sku' in item.body ? item.body.sku : undefined;
    const query = sku === undefined ? { externalId: externalId ?? '' } : { sku: String(sku) };
    const verdict = await verdictOf(platform, item, query, call);
    if (verdict === 'applied') note(item, 'done');
    else if (item.attempts + 1 >= DOUBTFUL_SENDS_MAX) note(item, 'rejected', DOUBTS[verdict]);
  }
}

/** `unreadable`: the platform refuses to show the product, which says nothing of the change that was sent. */
async function verdictOf(
  platform: PushPlatform,
  item: SentItem,
  query: ProductQuery,
  call: CallOptions,
): Promise<Verification | 'unreadable'> {
  try {
    return verifyApplied(item.body, await platform.productGet(query, call));
  } catch (error) {
    if (hasCode(error, 'platform-refused')) return 'unreadable';
    throw error;
  }
}

/** Finds the items for which the platform refused the whole call. Returns what else went wrong. */
async function bisect(
  items: readonly SentItem[],
  message: string,
  send: (group: readonly SentItem[]) => Promise<void>,
  note: Note,
): Promise<unknown> {
  const search = new Bisection(items, message);
  for (let group = search.next; group; group = search.next) {
    try {
      await send(group);
      search.groupAccepted();
    } catch (error) {
      if (!hasCode(error, 'platform-refused')) return error;
      search.groupRefused(error.message);
      if (search.isHopeless) return error;
    }
  }
  for (const refused of search.refused) note(refused.item, 'rejected', refused.message);
  return undefined;
}

function retryMessage(trouble: unknown): string {
  if (trouble === undefined) return 'The answer did not say whether it was taken; it is sent again.';
  return `Not known to have arrived (${asTillsyncError(trouble).message}); it is sent again.`;
}

/** Another process may put changes in line too, so an idle line is looked at this often. */
const LOOK_EVERY_MS = 500;
const LOCKED_OUT_LOOK_MS = 5_000;
/** What a call brought is tried to be written this often, so that nothing stays under way for ever. */
const SETTLE_AGAIN_MS = 2_000;

/** The line of changes, as the sender sees it. Each write is one short durable transaction. */
export interface PushLine {
  outlook(kind: ChangeKind): { waiting: number; urgent: boolean };
  claim(kind: ChangeKind, max: number): Promise<{ callId: number | null; items: SentItem[] }>;
  settle(
    callId: number,
    outcomes: readonly SentOutcome[],
  ): Promise<{ done: number; rejected: number; waiting: number }>;
}

export interface PushLoopOptions {
  kind: ChangeKind;
  platform: PushPlatform & Pick<Platform, 'delayMs'>;
  line: PushLine;
  /** Whether this process sends: `elsewhere` while another one does, `locked-out` while only a person can help. */
  standing: () => 'sends' | 'elsewhere' | 'locked-out';
  freshness: PushFreshness;
  clock: Clock;
  random: Random;
  log: Log;
  /** How long a change may wait for company. */
  lingerMs: number;
  /** How often it looks for what another process did; without it, as a store needs it. */
  lookEveryMs?: number | undefined;
  beat: () => void;
}

interface Endpoints {
  batch: Endpoint;
  single: Endpoint;
}

const ENDPOINTS: Record<ChangeKind, Endpoints> = {
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

  constructor(options: PushLoopOptions) {
    this.#options = options;
    this.#lookEveryMs = options.lookEveryMs ?? LOOK_EVERY_MS;
    this.#waker = new Waker(options.clock);
  }

  /** A hint that changes were put in line. */
  wake(): void {
    this.#waker.wake();
  }

  async run(signal: AbortSignal): Promise<void> {
    const { beat, standing, log, kind } = this.#options;
    while (!signal.aborted) {
      beat();
      const now = standing();
      if (now === 'elsewhere') await this.#rest(this.#lookEveryMs, signal);
      else {
        try {
          if (now === 'sends') await this.#once(signal);
          else await this.#lockedOut(signal);
        } catch (error) {
          if (signal.aborted) return;
          this.#failures += 1;
          log.warn({ kind, err: error }, 'sending changes failed; they stay in line');
          await this.#deafRest(retryDelayMs(this.#failures, error, this.#options.random), signal);
        }
      }
    }
  }

  async #once(signal: AbortSignal): Promise<void> {
    const { kind, platform, line, freshness } = this.#options;
    if (line.outlook(kind).waiting === 0) {
      freshness.idle(kind);
      return await this.#rest(this.#lookEveryMs, signal);
    }
    await this.#linger(signal);
    const [batchFreeInMs, singleFreeInMs] = await Promise.all([
      platform.delayMs(ENDPOINTS[kind].batch),
      platform.delayMs(ENDPOINTS[kind].single),
    ]);
    if (signal.aborted) return;
    const lane = chooseLane({ ...line.outlook(kind), batchFreeInMs, singleFreeInMs });
    if (lane === 'none') return;
    const delayMs = lane === 'batch' ? batchFreeInMs : singleFreeInMs;
    if (delayMs > 0) return await this.#rest(delayMs, signal);
    await this.#send(lane, signal);
  }

  async #send(lane: 'batch' | 'single', signal: AbortSignal): Promise<void> {
    const { kind, platform, line, beat } = this.#options;
    const { callId, items } = await line.claim(kind, lane === 'batch' ? BATCH_ITEMS_MAX : 1);
    if (callId === null) return await this.#rest(this.#lookEveryMs, signal);
    const patient = patientSignal(signal, this.#options.clock);
    const call = { signal: patient.signal, onSend: patient.onSend, onWait: beat };
    const { outcomes, trouble } = await pushItems(platform, kind, items, { lane, call });
    patient.end();
    const report = await this.#settle(callId, outcomes, signal);
    this.#tell(report, trouble);
    if (trouble === undefined) {
      this.#failures = 0;
    } else if (!signal.aborted) {
      this.#failures += 1;
      await this.#deafRest(retryDelayMs(this.#failures, trouble, this.#options.random), signal);
    }
  }

  /** Keeps at it: a change whose outcome is not written would stay under way, and hold back all newer ones. */
  async #settle(callId: number, outcomes: readonly SentOutcome[], signal: AbortSignal) {
    const { line, kind, log, clock, beat } = this.#options;
    for (let isFirst = true; ; isFirst = false) {
      try {
        return await line.settle(callId, outcomes);
      } catch (error) {
        // Whoever sends next puts it back in line.
        if (signal.aborted) throw error;
        if (isFirst) log.error({ kind, err: error }, 'what a call brought cannot be written yet');
        beat();
        await clock.sleep(SETTLE_AGAIN_MS, signal);
      }
    }
  }

  #tell(report: { done: number; rejected: number; waiting: number }, trouble: unknown): void {
    const { kind, freshness, log } = this.#options;
    log[trouble === undefined ? 'info' : 'warn']({ kind, ...report }, 'changes sent');
    if (trouble === undefined) freshness.answered(kind);
    else freshness.failed(kind, trouble);
  }

  async #lockedOut(signal: AbortSignal): Promise<void> {
    const { kind, line, freshness } = this.#options;
    if (line.outlook(kind).waiting > 0) freshness.lockedOut(kind);
    await this.#rest(LOCKED_OUT_LOOK_MS, signal);
  }

  /** Waits for company, until there is enough of it or something is sold out. */
  async #linger(signal: AbortSignal): Promise<void> {
    const { kind, line, clock, lingerMs, beat } = this.#options;
    const endMonoMs = clock.monotonicMs() + lingerMs;
    while (!signal.aborted && clock.monotonicMs() < endMonoMs) {
      const { waiting, urgent } = line.outlook(kind);
      if (urgent || waiting >= BATCH_ITEMS_MAX) return;
      await this.#waker.until(() => clock.nowMs() + endMonoMs - clock.monotonicMs(), signal, beat);
    }
  }

  /** Waits, until a hint that there is something to send. */
  async #rest(ms: number, signal: AbortSignal): Promise<void> {
    const { clock, beat } = this.#options;
    const endMonoMs = clock.monotonicMs() + ms;
    await this.#waker.until(() => clock.nowMs() + endMonoMs - clock.monotonicMs(), signal, beat);
  }

  /** Waits its full time after a failure, whatever is put in line meanwhile. */
  async #deafRest(ms: number, signal: AbortSignal): Promise<void> {
    const { clock, beat } = this.#options;
    const endMonoMs = clock.monotonicMs() + ms;
    for (let restMs = ms; restMs > 0 && !signal.aborted; restMs = endMonoMs - clock.monotonicMs()) {
      beat();
      await clock.sleep(Math.min(restMs, pieceMs(clock)), signal);
    }
  }
}
