import type { ChangeKind } from '../domain/change/change.ts';
import { chooseLane } from '../domain/change/plan-batch.ts';
import type { Log } from '../domain/log.ts';
import { BATCH_ITEMS_MAX, type Endpoint } from '../domain/platform/limits.ts';
import type { Platform } from '../domain/platform/platform.ts';
import type { Clock, Random } from '../domain/time/clock.ts';
import { patientSignal } from './patient-signal.ts';
import { type PushPlatform, pushItems, type SentItem, type SentOutcome } from './push-call.ts';
import type { PushFreshness } from './push-freshness.ts';
import { retryDelayMs } from './retry.ts';
import { pieceMs, Waker } from './waker.ts';

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
