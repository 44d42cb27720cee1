import { randomUUID } from 'node:crypto';
import type * as z from 'zod';
import { asTillsyncError, hasCode, TillsyncError } from '../core/errors.ts';
import type { Log } from '../core/log.ts';
import { Waker } from '../core/loop.ts';
import { type Clock, isoUtc } from '../core/time.ts';
import type { Verdict } from '../health/verdict.ts';
import type { OrderSpellings } from '../orders/merging/field-aliases.ts';
import type { Mirror } from '../orders/reading/mirror.ts';
import { continueFeedAfter } from '../orders/reading/mirror-file.ts';
import { quarantineEntries } from '../orders/reading/order-queries.ts';
import type { MirrorStores } from '../outbox/sending/repositories.ts';
import {
  type Applied,
  applyMessages,
  forgottenToReport,
  leftEpochs,
  markForgottenReported,
} from './branch-download.ts';
import {
  beginLink,
  beginUplink,
  isAgreed,
  isUnderWay,
  linkCursor,
  markAcked,
  nextBatch,
  requeue,
  waitingUp,
} from './branch-upload.ts';
import {
  type BranchLink,
  CHANGES_ANSWER,
  type DownMessage,
  HELLO_ANSWER,
  type Hello,
  type HelloAnswer,
  type Question,
  REFUSAL,
  refusalOf,
} from './link.ts';
import { LinkFreshness } from './link-freshness.ts';

const HELLO_EVERY_MS = 30_000;
/** Interval at which a missing snapshot is requested again. */
const WISH_EVERY_MS = 5_000;
const AGAIN_AFTER_MS = 2_000;
const LOOK_EVERY_MS = 500;
/** Number of unused leased event numbers below which the branch asks the hub for more. */
const LEASE_AHEAD = 500;
/** Longest time for which an orderly stop waits for the hub's answer. */
const LAST_WORD_MS = 2_000;
const PRUNED_AT_ONCE = 1_000;
/** Maximum number of characters of messages applied in one transaction. The last message may exceed the limit. */
const PART_LENGTH = 500_000;
/** Changes of the clock difference up to this size are ignored, because a request's travel time may cause them. */
const CLOCK_JITTER_MS = 5_000;
/**
 * Age after which a gap in the feed will not close by itself. The server resends an unacknowledged message
 * after 10 s.
 */
const GAP_MAX_MS = 25_000;
/**
 * Number of empty reads in a row after which missing entries count as lost. So many reads take longer than
 * the server waits before it resends a message.
 */
const IDLES_MAX = 3;

export interface BranchOptions {
  link: BranchLink;
  mirror: Mirror;
  stores: MirrorStores;
  spellings: OrderSpellings;
  version: string;
  /** Returns this branch's verdict, as shown on its own page. */
  verdict: () => Verdict;
  /** Retention of finished changes, from `retention.outbox`. */
  outboxKeptMs: number;
  /** Called when orders were applied. */
  onOrders: () => void;
  /** Called with the hub's clock, in milliseconds since 1970. */
  onHubClock: (nowMs: number) => void;
  clock: Clock;
  log: Log;
}

/**
 * The branch's side of the link: applies the hub's feed to the branch's mirror and uploads the changes of its
 * POS.
 *
 * Its states:
 * - starting: the hub has not answered this process yet, so no event has a number and nothing is applied
 * - following: entries are applied in the order of their numbers, up to the leased number of events
 * - with a gap: entries are missing; they are awaited for `GAP_MAX_MS`, then a snapshot is asked for
 * - awaiting a snapshot: it is asked for every `WISH_EVERY_MS` until it begins
 * - down: the hub does not answer; changes of the POS stay here, and it is tried again every `AGAIN_AFTER_MS`
 * - refused: the hub hears another machine with this branch's key, or has no such branch; nothing is applied or handed
 *   up, and each hello asks again
 * - over: the last hello was sent, so that the next process goes on behind its number
 */
export class BranchFollower {
  readonly #options: BranchOptions;
  readonly #freshness: LinkFreshness;
  readonly #instance = randomUUID();
  readonly #up: Waker;
  #helloing: Promise<void> | undefined;
  #isStart = true;
  /** Milliseconds by which this machine's clock is ahead of the hub's. */
  #aheadMs = 0;
  /** True while the hub refuses this machine, for example because another machine uses the same branch key. */
  #isRefused = false;
  #following = new AbortController();
  #wantsSnapshot = false;
  /**
   * Time until which the hub accepts only sold-out changes, because the branch's queue at the hub is full.
   */
  #fullUntilMs = Number.NEGATIVE_INFINITY;
  /**
   * Id of the uplink that this process started. Items are numbered only on this uplink, because another
   * machine with a copy of the mirror may use the same numbers of an earlier uplink.
   */
  #ownUplinkId: string | undefined;
  /**
   * Highest number that an event may get; undefined until the hub has answered this process. Until then no event gets
   * a number.
   */
  #leasedSeq: number | undefined;
  /** True after the last hello; from then on no message is applied. */
  #isOver = false;
  #taking: Promise<unknown> = Promise.resolve();
  /** Number up to which the feed was published to the server, from the hub's last answer. */
  #published = 0;
  /** Time since which entries before the last received entry are missing. */
  #gapSinceMs: number | undefined;
  /** Number of reads in a row in which the server had no entries although the mirror lacks some. */
  #idles = 0;

  constructor(options: BranchOptions) {
    this.#options = options;
    this.#freshness = new LinkFreshness(options.mirror, options.clock);
    this.#up = new Waker(options.clock);
  }

  /** Wakes the upload loop. Call it after a change was submitted. */
  wake(): void {
    this.#up.wake();
  }

  /** Creates the rows of the link in a new mirror. */
  async begin(): Promise<void> {
    this.#ownUplinkId = (await this.#options.mirror.write(beginLink)) ?? this.#ownUplinkId;
  }

  /** Downloads and applies the feed until the signal. */
  async follow(signal: AbortSignal, beat: () => void): Promise<void> {
    const { link, clock, log } = this.#options;
    await this.begin();
    while (!signal.aborted) {
      try {
        this.#following = new AbortController();
        const until = AbortSignal.any([signal, this.#following.signal]);
        if (!this.#isRefused) {
          await link.follow(async (messages) => {
            beat();
            return this.take(messages);
          }, until);
        }
        if (!signal.aborted) await clock.sleep(AGAIN_AFTER_MS, signal);
      } catch (error) {
        if (signal.aborted) return;
        log.debug({ err: error }, 'the feed of the hub cannot be followed now; it is tried again');
        await clock.sleep(AGAIN_AFTER_MS, signal);
      }
      beat();
    }
  }

  /** Applies entries, in several transactions. Returns false if some cannot be applied yet and must be sent again. */
  async take(messages: readonly DownMessage[]): Promise<boolean> {
    if (messages.length === 0) {
      this.#idle();
      return true;
    }
    this.#idles = 0;
    for (const part of parts(messages)) if (!(await this.#takePart(part))) return false;
    return true;
  }

  /**
   * Applies one part. Returns false if earlier entries may still arrive, or if the branch may not apply any, because it
   * has no leased numbers or is stopping.
   */
  async #takePart(messages: readonly DownMessage[]): Promise<boolean> {
    const { clock, onOrders, log } = this.#options;
    if (this.#leasedSeq === undefined) await this.hello();
    let applied = await this.#apply(messages);
    if (applied?.isLeaseSpent) {
      await this.hello();
      applied = await this.#apply(messages);
    }
    if (!applied || applied.isLeaseSpent) return false;
    const { orders, hasGap, mayClose } = applied;
    if (orders > 0) onOrders();
    if (!hasGap || !mayClose) this.#gapSinceMs = undefined;
    else if (!this.#wantsSnapshot) {
      const nowMs = clock.monotonicMs();
      this.#gapSinceMs ??= nowMs;
      if (nowMs - this.#gapSinceMs < GAP_MAX_MS) return false;
    }
    if (hasGap && !this.#wantsSnapshot) {
      log.info({}, 'the feed of the hub has a gap here; a snapshot is asked for');
      this.#up.wake();
    }
    this.#wantsSnapshot = hasGap;
    return true;
  }

  /**
   * Applies entries in one transaction. Returns undefined and applies nothing after this branch's last hello, or while
   * the hub has not leased numbers yet.
   */
  async #apply(messages: readonly DownMessage[]): Promise<Applied | undefined> {
    const { stores, spellings, clock } = this.#options;
    const leasedSeq = this.#leasedSeq;
    if (this.#isOver || leasedSeq === undefined) return undefined;
    const taking = stores.write((own) =>
      applyMessages(own, messages, spellings, { nowMs: clock.nowMs(), leasedSeq }),
    );
    this.#taking = taking.catch(() => {});
    return taking;
  }

  /**
   * Counts reads without entries. Requests a snapshot if the feed's newest entries stay missing, because
   * another machine received them or they were lost.
   */
  #idle(): void {
    const { mark } = this.#options.mirror.read(linkCursor);
    this.#idles = mark < this.#published ? this.#idles + 1 : 0;
    if (this.#idles < IDLES_MAX || this.#wantsSnapshot) return;
    this.#wantsSnapshot = true;
    this.#up.wake();
  }

  /** Sends hellos and uploads changes until the signal. */
  async upload(signal: AbortSignal, beat: () => void): Promise<void> {
    const { clock, log } = this.#options;
    let isBegun = false;
    let helloMs = Number.NEGATIVE_INFINITY;
    let isDown = false;
    while (!signal.aborted) {
      beat();
      try {
        if (!isBegun) await this.begin();
        isBegun = true;
        const everyMs = this.#wantsSnapshot ? WISH_EVERY_MS : HELLO_EVERY_MS;
        if (isDown || this.#isLeaseShort() || clock.monotonicMs() >= helloMs + everyMs) {
          await this.hello();
          helloMs = clock.monotonicMs();
          await this.#prune();
        }
        isDown = false;
        if (await this.uploadOnce()) continue;
        await this.#up.rest(LOOK_EVERY_MS, signal, beat);
      } catch (error) {
        if (signal.aborted) return;
        if (!isDown) log.warn({ err: error }, 'the hub cannot be reached; what is to go up stays here');
        isDown = true;
        this.#failed(error);
        await clock.sleep(AGAIN_AFTER_MS, signal);
      }
    }
  }

  #failed(error: unknown): void {
    const { mirror, log } = this.#options;
    if (hasCode(error, 'link-refused')) {
      this.#isRefused = true;
      this.#following.abort();
    }
    try {
      this.#freshness.failed(error);
      const { waiting } = mirror.read(waitingUp);
      if (waiting > 0) mirror.health.report('outbox.push', 'failing', asTillsyncError(error).message);
    } catch (cause) {
      log.debug({ err: cause }, 'the mirror cannot be read now');
    }
  }

  /** Returns whether the lease must be renewed. It is renewed early, so that no order waits for a number. */
  #isLeaseShort(): boolean {
    return (
      this.#leasedSeq !== undefined && this.#options.mirror.orders.newestSeq() > this.#leasedSeq - LEASE_AHEAD
    );
  }

  /**
   * Reports to the hub the last event number that this process used, so that the next process continues after it.
   * Waits for at most `LAST_WORD_MS`, because the hub may be unreachable.
   */
  async sayLast(): Promise<void> {
    const { clock } = this.#options;
    this.#isOver = true;
    await this.#taking;
    if (this.#leasedSeq === undefined || this.#isRefused) return;
    const told = this.#ask('hello', { ...this.#question(), isLast: true }, HELLO_ANSWER).catch(() => {});
    await Promise.race([told, clock.sleep(LAST_WORD_MS)]);
  }

  /** Reports this branch's position and reads the hub's state. Throws `link-…`. */
  hello(): Promise<void> {
    // The download and the upload loop may need a hello at the same time, but the hub accepts one question at a time.
    this.#helloing ??= this.#sayHello().finally(() => {
      this.#helloing = undefined;
    });
    return this.#helloing;
  }

  #question(): Hello {
    const { mirror, stores, verdict, version } = this.#options;
    const { epoch, mark, uplinkId } = mirror.read(linkCursor);
    const { level, findings } = verdict();
    return {
      instance: this.#instance,
      isStart: this.#isStart,
      wantsSnapshot: this.#wantsSnapshot,
      version,
      epoch,
      mark,
      line: uplinkId,
      isOwnLine: uplinkId === this.#ownUplinkId,
      ...mirror.read(waitingUp),
      left: mirror.read(leftEpochs),
      forgotten: mirror.read(forgottenToReport),
      seq: mirror.orders.newestSeq(),
      isLast: false,
      rejected: stores.read(({ queries }) => queries.counts().rejected),
      quarantined: mirror.read(quarantineEntries),
      verdict: { level, finding: findings[0]?.code ?? null },
    };
  }

  async #sayHello(): Promise<void> {
    const { mirror, stores, log } = this.#options;
    const question = this.#question();
    const answer = await this.#ask('hello', question, HELLO_ANSWER);
    this.#isStart = false;
    this.#isRefused = false;
    this.#freshness.ok();
    this.#published = answer.published;
    if (question.forgotten.length > 0) {
      await mirror.write((db) => markForgottenReported(db, question.forgotten));
    }
    // Only the coming snapshot closes the gap, so the branch does not wait for earlier entries.
    if (answer.snapshotN > mirror.read(linkCursor).mark) this.#wantsSnapshot = true;
    // Numbers that a POS has seen are never used again, even if this mirror is an older copy.
    const { leasedSeq, seqAfter } = answer;
    if (seqAfter > mirror.orders.newestSeq()) await mirror.write((db) => continueFeedAfter(db, seqAfter));
    this.#leasedSeq = leasedSeq;
    await this.#adopt(answer);
    if (answer.hasCatalog && !stores.read(({ lookup }) => lookup.isComplete)) {
      await stores.write(({ catalog }) => catalog.noteWhole());
    }
    if (mirror.read((db) => isAgreed(db, answer, question.isOwnLine))) {
      await mirror.write((db) => markAcked(db, answer.upTo));
      // If only the hub's answer was lost, nothing else would record that the upload succeeded.
      const push = mirror.health.freshness().find(({ subject }) => subject === 'outbox.push');
      if (push?.state === 'failing' && mirror.read(waitingUp).waiting === 0) mirror.health.ok('outbox.push');
    } else {
      log.warn({}, 'the mirror of this branch or that of the hub is an older copy; a snapshot is asked for');
      await this.#beginUplink(true);
    }
  }

  /** Stores the freshness of the hub's orders and catalogue, with times converted to this machine's clock. */
  async #adopt({ freshness, nowMs, ordersStaleAfterMs }: HelloAnswer): Promise<void> {
    const { mirror, clock, onHubClock } = this.#options;
    onHubClock(nowMs);
    const aheadMs = clock.nowMs() - nowMs;
    // A small difference is the travel time of the request, not an error of the clock.
    if (Math.abs(aheadMs - this.#aheadMs) > CLOCK_JITTER_MS) this.#aheadMs = Math.round(aheadMs);
    const here = (at: string | null) => (at === null ? null : isoUtc(Date.parse(at) + this.#aheadMs));
    for (const each of freshness) {
      mirror.health.adopt({ ...each, lastOkAt: here(each.lastOkAt), lastTryAt: here(each.lastTryAt) });
    }
    await mirror.polls.noteHubStaleAfter(ordersStaleAfterMs);
  }

  async #beginUplink(isCopy: boolean): Promise<void> {
    this.#ownUplinkId = await this.#options.mirror.write((db) => beginUplink(db, isCopy));
    await this.#sayHello();
  }

  /** Uploads waiting items in one request. Returns false if no item waits. Throws `link-…`. */
  async uploadOnce(): Promise<boolean> {
    const { mirror, stores, clock, log } = this.#options;
    if (mirror.read(waitingUp).waiting === 0) return false;
    const isOwnUplink = mirror.read(linkCursor).uplinkId === this.#ownUplinkId;
    if (!isOwnUplink && !mirror.read(isUnderWay)) await this.#beginUplink(false);
    const isFull = clock.monotonicMs() < this.#fullUntilMs;
    const items = await stores.write((own) => nextBatch(own, isFull));
    if (items.length === 0) return false;
    const { uplinkId } = mirror.read(linkCursor);
    const question = { instance: this.#instance, line: uplinkId, items };
    const { upTo: ackedUpTo, comeBackMs } = await this.#ask('changes', question, CHANGES_ANSWER);
    await mirror.write((db) => markAcked(db, ackedUpTo));
    log.info(
      { items: items.length, upTo: ackedUpTo, comeBackMs },
      'handed changes and acknowledgements up to the hub',
    );
    if (comeBackMs === undefined) {
      mirror.health.ok('outbox.push');
      return true;
    }
    this.#fullUntilMs = clock.monotonicMs() + comeBackMs;
    this.#ownUplinkId = await mirror.write((db) => requeue(db, clock.nowMs()));
    const why = 'As many changes of this branch wait at the hub as may. More go up as these leave.';
    mirror.health.report('outbox.push', 'waiting', why);
    await this.hello();
    return true;
  }

  async #ask<T>(question: Question, body: object, schema: z.ZodType<T>): Promise<T> {
    const text = await this.#options.link.ask(question, JSON.stringify(body));
    return readAnswer(text, schema);
  }

  async #prune(): Promise<void> {
    const { stores, outboxKeptMs, clock } = this.#options;
    if (outboxKeptMs === 0) return;
    const prune = () =>
      stores.write(({ admin }) => admin.prune(clock.nowMs() - outboxKeptMs, PRUNED_AT_ONCE));
    while ((await prune()) === PRUNED_AT_ONCE);
  }
}

/**
 * Splits entries into parts of limited length. Catalogue pages are long, and changes of the POS must not wait
 * for all of them.
 */
function parts(messages: readonly DownMessage[]): DownMessage[][] {
  const found: DownMessage[][] = [];
  let room = 0;
  for (const message of messages) {
    if (room <= 0) {
      found.push([]);
      room = PART_LENGTH;
    }
    found.at(-1)?.push(message);
    room -= message.body.length;
  }
  return found;
}

/**
 * Parses the hub's answer. Throws `link-refused` or `link-down` for a refusal, and `link-down` for an invalid
 * answer.
 */
export function readAnswer<T>(text: string, schema: z.ZodType<T>): T {
  let answer: unknown;
  try {
    answer = JSON.parse(text);
  } catch (cause) {
    throw new TillsyncError('link-down', 'The answer of the hub cannot be read.', { cause });
  }
  const refused = REFUSAL.safeParse(answer);
  if (refused.success) throw refusalOf(refused.data.refused);
  const read = schema.safeParse(answer);
  if (read.success) return read.data;
  throw new TillsyncError('link-down', 'The answer of the hub cannot be read.');
}
