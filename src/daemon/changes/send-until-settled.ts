import { whenFree } from '../../domain/busy.ts';
import { counted } from '../../domain/counted.ts';
import { TillsyncError } from '../../domain/errors.ts';
import type { Freshness } from '../../domain/health/freshness.ts';
import type { Clock } from '../../domain/time/clock.ts';
import type { OutboxEntry } from '../../store/outbox/outbox-row.ts';
import type { Parts } from '../parts.ts';
import { type SweepNowRequest, sweepNow } from '../sweep-now.ts';
import { Sender, type SenderOptions } from './sender.ts';

const LOOK_EVERY_MS = 100;
const TROUBLE_EVERY_MS = 1_000;

export interface WaitRequest extends Pick<SweepNowRequest, 'onWait'> {
  /** Ends the wait; changes that are not settled then stay in line. */
  signal: AbortSignal;
  onProgress: (settled: number, total: number) => void;
  /** Told once, when no daemon sends and this process does. */
  onAlone: () => void;
  /** Told when sending does not go well; it goes on all the same. */
  onTrouble: (message: string) => void;
  /** Told as the catalogue is read that the changes wait for, when nobody else reads it. */
  onCatalog: SweepNowRequest['onProgress'];
}

/**
 * Waits until each change, or the one that took its place, is done, rejected, dropped or held for a person. While
 * no other process sends, this one does. Gives what became of each change. Throws `aborted` and `auth-required`;
 * every change stays in line then.
 */
export async function sendUntilSettled(
  options: SenderOptions,
  changeIds: readonly number[],
  request: WaitRequest,
): Promise<Map<number, OutboxEntry>> {
  const { parts, clock } = options;
  const ended = new AbortController();
  const signal = AbortSignal.any([request.signal, ended.signal]);
  const sender = new Sender(options);
  const beat = () => {};
  const care = sender.care(beat);
  const watch = new Watch(parts, changeIds);
  await care.step();
  const work = [care.run(signal), sender.push('stock', signal, beat), sender.push('product', signal, beat)];
  try {
    if (sender.maySend && !watch.look()) request.onAlone();
    await Promise.race([
      settled(watch, { parts, clock, sender, request, signal }),
      // A loop that fails ends the wait; one that ends by the signal leaves the last word to the watch.
      ...work.map((loop) => loop.then(() => new Promise<never>(() => {}))),
    ]);
  } finally {
    ended.abort();
    await Promise.allSettled(work);
  }
  return watch.results;
}

interface Waiting {
  parts: Parts;
  clock: Clock;
  sender: Sender;
  request: WaitRequest;
  signal: AbortSignal;
}

async function settled(watch: Watch, waiting: Waiting): Promise<void> {
  const { parts, clock, sender, request, signal } = waiting;
  const startedAtMs = clock.nowMs();
  let catalog: Promise<unknown> | undefined;
  let failure: { error: unknown } | undefined;
  let told = '';
  let troubleDueMs = clock.monotonicMs() + TROUBLE_EVERY_MS;
  while (!(await whenFree(clock, () => watch.look(), undefined, signal))) {
    request.onProgress(watch.settled, watch.total);
    if (failure) throw failure.error;
    if (request.signal.aborted) throw stopped(watch);
    if (!catalog && sender.maySend && needsCatalog(parts)) {
      catalog = readCatalog(parts, request, signal).catch((error: unknown) => {
        failure = { error };
      });
    }
    if (clock.monotonicMs() >= troubleDueMs) {
      troubleDueMs = clock.monotonicMs() + TROUBLE_EVERY_MS;
      requireTokens(parts, watch);
      const trouble = troubleOf(parts.mirror.freshness(), startedAtMs);
      if (trouble !== '' && trouble !== told) request.onTrouble(trouble);
      told = trouble;
    }
    await clock.sleep(LOOK_EVERY_MS, signal);
  }
  request.onProgress(watch.settled, watch.total);
}

/** Changes whose product the mirror does not know wait for a first whole catalogue. */
function needsCatalog({ stores, branches }: Parts): boolean {
  return branches.length > 0 && stores.read(({ lookup }) => !lookup.isComplete);
}

function readCatalog(parts: Parts, request: WaitRequest, signal: AbortSignal): Promise<unknown> {
  const { onWait, onCatalog } = request;
  return sweepNow(parts, {
    signal,
    ...(onWait && { onWait }),
    ...(onCatalog && { onProgress: onCatalog }),
  });
}

function requireTokens({ platform }: Parts, watch: Watch): void {
  if (platform.tokens.describe().state === 'ok') return;
  throw new TillsyncError(
    'auth-required',
    `The platform asks for new tokens. Still queued: ${counted(watch.total - watch.settled, 'change')}.`,
    { hint: 'Run: {tillsync} auth set, and they are sent.' },
  );
}

function troubleOf(freshness: readonly Freshness[], sinceMs: number): string {
  const push = freshness.find(({ subject }) => subject === 'outbox.push');
  const isNow = push?.lastTryAt != null && Date.parse(push.lastTryAt) >= sinceMs;
  return push && isNow && push.state !== 'ok' ? push.message : '';
}

function stopped(watch: Watch): TillsyncError {
  const left = watch.total - watch.settled;
  return new TillsyncError('aborted', `Stopped waiting. Still queued: ${counted(left, 'change')}.`, {
    hint: 'The daemon sends them, or the next command with --wait.',
  });
}

/** Looks what became of changes, following each to the one that took its place. */
class Watch {
  readonly results = new Map<number, OutboxEntry>();
  readonly total: number;
  readonly #parts: Pick<Parts, 'stores'>;
  /** The change that now stands for each that was handed over. */
  readonly #waiting: Map<number, number>;

  constructor(parts: Pick<Parts, 'stores'>, changeIds: readonly number[]) {
    this.#parts = parts;
    this.#waiting = new Map(changeIds.map((changeId) => [changeId, changeId]));
    this.total = this.#waiting.size;
  }

  get settled(): number {
    return this.total - this.#waiting.size;
  }

  /** Whether all are settled. */
  look(): boolean {
    this.#parts.stores.read(({ queries }) => {
      const open = queries.open();
      for (const [changeId, now] of this.#waiting) {
        const state = open.get(now);
        if (state && !state.isHeld) continue;
        const entry = queries.follow(now);
        const isOpen = entry && open.get(entry.changeId)?.isHeld === false;
        if (isOpen) this.#waiting.set(changeId, entry.changeId);
        else {
          // One that is not there any more was settled so long ago that it is forgotten.
          if (entry) this.results.set(changeId, entry);
          this.#waiting.delete(changeId);
        }
      }
    });
    return this.#waiting.size === 0;
  }
}
