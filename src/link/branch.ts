import { randomUUID } from 'node:crypto';
import type * as z from 'zod';
import { asTillsyncError, hasCode, TillsyncError } from '../core/errors.ts';
import type { Log } from '../core/log.ts';
import { Waker } from '../core/loop.ts';
import { type Clock, isoUtc } from '../core/time.ts';
import type { Verdict } from '../health/verdict.ts';
import type { Mirror } from '../orders/mirror.ts';
import { continueFeedAfter } from '../orders/mirror-file.ts';
import { FEED_JUMP } from '../orders/order.ts';
import { quarantineEntries } from '../orders/order-queries.ts';
import type { OrderSpellings } from '../orders/spellings.ts';
import type { MirrorStores } from '../outbox/stores.ts';
import {
  type Applied,
  applyDown,
  beginLine,
  beginLink,
  branchPlace,
  forgottenUp,
  isAgreed,
  isUnderWay,
  leftEpochs,
  nextUp,
  noteForgottenUp,
  noteUp,
  takeBack,
  waitingUp,
} from './branch-line.ts';
import { LinkFreshness, refusalOf } from './hub.ts';
import {
  type BranchLink,
  CHANGES_ANSWER,
  type DownMessage,
  HELLO_ANSWER,
  type Hello,
  type HelloAnswer,
  type Question,
  REFUSAL,
} from './link.ts';

const HELLO_EVERY_MS = 30_000;
/** How often a wish for a snapshot is said again. */
const WISH_EVERY_MS = 5_000;
const AGAIN_AFTER_MS = 2_000;
const LOOK_EVERY_MS = 500;
/** With fewer numbers left, the hub is asked for more. */
const LEASE_AHEAD = 500;
/** So long an orderly end waits for the hub. */
const LAST_WORD_MS = 2_000;
const PRUNED_AT_ONCE = 1_000;
/** Characters of what is taken in by one transaction, by about one message more at the most. */
const PART_LENGTH = 500_000;
/** The server gives again what was not taken for ten seconds; a gap that is older than this will not close. */
const CLOCK_JITTER_MS = 5_000;
export const GAP_MAX_MS = 25_000;
/** Longer than a message that was given and not taken is kept back. */
const IDLES_MAX = 3;

export interface BranchOptions {
  link: BranchLink;
  mirror: Mirror;
  stores: MirrorStores;
  spellings: OrderSpellings;
  version: string;
  /** Of this store, as its own page tells it. */
  verdict: () => Verdict;
  /** `retention.outbox`. */
  outboxKeptMs: number;
  /** Told when orders came. */
  onOrders: () => void;
  /** Told what the hub's clock says, in milliseconds since 1970. */
  onHubClock: (nowMs: number) => void;
  clock: Clock;
  log: Log;
}

/** A branch: follows the hub's feed into its own mirror, and hands up what its POS changes. */
export class BranchFollower {
  readonly #options: BranchOptions;
  readonly #freshness: LinkFreshness;
  readonly #instance = randomUUID();
  readonly #up: Waker;
  #helloing: Promise<void> | undefined;
  #isStart = true;
  /** This machine's clock minus the hub's. */
  #aheadMs = 0;
  /** The hub hears another machine under this name: what that one follows is not taken from it. */
  #isRefused = false;
  #following = new AbortController();
  #wantsSnapshot = false;
  /** Until then the hub takes nothing but what is sold out. */
  #fullUntilMs = Number.NEGATIVE_INFINITY;
  /**
   * Of this process: numbers are given on it alone. On a line that it found another machine with a copy of the mirror
   * may give the same ones.
   */
  #ownLine: string | undefined;
  /** No event gets a higher number; undefined: this process has not asked yet, and gives none. */
  #leasedSeq: number | undefined;
  /** Nothing is taken in any more. */
  #isOver = false;
  #taking: Promise<unknown> = Promise.resolve();
  /** Up to this number the feed was given to the server, as the hub said last. */
  #published = 0;
  /** Since when what came last does not follow on what is here. */
  #gapSinceMs: number | undefined;
  /** Why what the hub announced last was not taken. */
  #refusedWays: string | null = null;
  /** How many times running the server had nothing more though something is missing. */
  #idles = 0;

  constructor(options: BranchOptions) {
    this.#options = options;
    this.#freshness = new LinkFreshness(options.mirror, options.clock);
    this.#up = new Waker(options.clock);
  }

  /** A hint that there is something to hand up. */
  wake(): void {
    this.#up.wake();
  }

  /** Begins what a new mirror lacks. */
  async begin(): Promise<void> {
    this.#ownLine = (await this.#options.mirror.write(beginLink)) ?? this.#ownLine;
  }

  /** Follows the feed until the signal. */
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

  /** Each part of them in one transaction. False: they come too early, and are to be given again. */
  async take(messages: readonly DownMessage[]): Promise<boolean> {
    if (messages.length === 0) {
      this.#idle();
      return true;
    }
    this.#idles = 0;
    for (const part of parts(messages)) if (!(await this.#takePart(part))) return false;
    return true;
  }

  /** False: a part of the feed before these was lost on the way, and is waited for. */
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

  /** Undefined once this branch has said its last word. */
  async #apply(messages: readonly DownMessage[]): Promise<Applied | undefined> {
    const { stores, spellings, clock } = this.#options;
    const leasedSeq = this.#leasedSeq;
    if (this.#isOver || leasedSeq === undefined) return undefined;
    const taking = stores.write((own) =>
      applyDown(own, messages, spellings, { nowMs: clock.nowMs(), leasedSeq }),
    );
    this.#taking = taking.catch(() => {});
    return taking;
  }

  /** The end of a feed is missing where the server has nothing more: another machine took it, or it was lost. */
  #idle(): void {
    const { mark } = this.#options.mirror.read(branchPlace);
    this.#idles = mark < this.#published ? this.#idles + 1 : 0;
    if (this.#idles < IDLES_MAX || this.#wantsSnapshot) return;
    this.#wantsSnapshot = true;
    this.#up.wake();
  }

  /** Says hello and hands up until the signal. */
  async handUp(signal: AbortSignal, beat: () => void): Promise<void> {
    const { clock, log } = this.#options;
    await this.begin();
    let helloMs = Number.NEGATIVE_INFINITY;
    let isDown = false;
    while (!signal.aborted) {
      beat();
      try {
        const everyMs = this.#wantsSnapshot ? WISH_EVERY_MS : HELLO_EVERY_MS;
        if (isDown || this.#isLeaseShort() || clock.monotonicMs() >= helloMs + everyMs) {
          await this.hello();
          helloMs = clock.monotonicMs();
          await this.#prune();
        }
        isDown = false;
        if (await this.handUpOnce()) continue;
        const dueMs = clock.nowMs() + LOOK_EVERY_MS;
        await this.#up.until(() => dueMs, signal, beat);
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
    const { mirror } = this.#options;
    if (hasCode(error, 'link-refused')) {
      this.#isRefused = true;
      this.#following.abort();
    }
    this.#freshness.failed(error);
    const { waiting } = mirror.read(waitingUp);
    if (waiting > 0) mirror.freshnessBoard.report('outbox.push', 'failing', asTillsyncError(error).message);
  }

  /** Renewed ahead, so that orders do not wait for it. */
  #isLeaseShort(): boolean {
    return this.#leasedSeq !== undefined && this.#options.mirror.newestSeq() > this.#leasedSeq - LEASE_AHEAD;
  }

  /** Says that this process gives no number any more, so that the next one goes on from here. The hub may be away. */
  async sayLast(): Promise<void> {
    const { clock } = this.#options;
    this.#isOver = true;
    await this.#taking;
    if (this.#leasedSeq === undefined || this.#isRefused) return;
    const told = this.#ask('hello', { ...this.#question(), isLast: true }, HELLO_ANSWER).catch(() => {});
    await Promise.race([told, clock.sleep(LAST_WORD_MS)]);
  }

  /** Tells the hub where this branch is, and hears how the hub fares. Throws `link-…`. */
  hello(): Promise<void> {
    // Both loops may need it at once, and the hub hears one question at a time.
    this.#helloing ??= this.#sayHello().finally(() => {
      this.#helloing = undefined;
    });
    return this.#helloing;
  }

  #question(): Hello {
    const { mirror, stores, verdict, version } = this.#options;
    const { epoch, mark, line } = mirror.read(branchPlace);
    const { level, findings } = verdict();
    return {
      ...{ instance: this.#instance, isStart: this.#isStart, wantsSnapshot: this.#wantsSnapshot, version },
      ...{ epoch, mark, line, isOwnLine: line === this.#ownLine, ...mirror.read(waitingUp) },
      left: mirror.read(leftEpochs),
      forgotten: mirror.read(forgottenUp),
      seq: mirror.newestSeq(),
      isLast: false,
      rejected: stores.read(({ queries }) => queries.counts().rejected),
      quarantined: mirror.read(quarantineEntries),
      verdict: { level, finding: findings[0]?.code ?? null },
      ways: this.#options.link.ways?.told() ?? null,
    };
  }

  async #sayHello(): Promise<void> {
    const { link, mirror, stores, log } = this.#options;
    const question = this.#question();
    const answer = await this.#ask('hello', question, HELLO_ANSWER);
    this.#isStart = false;
    this.#isRefused = false;
    const refused = link.ways?.heard(answer.ways) ?? null;
    if (refused !== null && refused !== this.#refusedWays) {
      log.warn(
        { refused },
        'what the hub announces is not taken; the addresses that this branch has are kept',
      );
    }
    this.#refusedWays = refused;
    this.#freshness.ok();
    this.#published = answer.published;
    if (answer.hasForgotten && question.forgotten.length > 0) {
      await mirror.write((db) => noteForgottenUp(db, question.forgotten));
    }
    // What comes before it closes no gap, so it is not waited for.
    if (answer.snapshotN > mirror.read(branchPlace).mark) this.#wantsSnapshot = true;
    // Numbers that a POS has seen are never given again, whatever copy this is.
    const { leasedSeq, seqAfter } = answer;
    const isLeasing = leasedSeq !== null;
    const after = isLeasing ? seqAfter : answer.seq > mirror.newestSeq() ? answer.seq + FEED_JUMP : 0;
    if (after > mirror.newestSeq()) await mirror.write((db) => continueFeedAfter(db, after));
    this.#leasedSeq = isLeasing ? leasedSeq : Number.POSITIVE_INFINITY;
    await this.#adopt(answer);
    if (answer.hasCatalog && !stores.read(({ lookup }) => lookup.isComplete)) {
      await stores.write(({ catalog }) => catalog.noteWhole());
    }
    if (mirror.read((db) => isAgreed(db, answer, question.isOwnLine))) {
      await mirror.write((db) => noteUp(db, answer.upTo));
      // Where only the answer was lost, nothing is left that would say so.
      const push = mirror.freshness().find(({ subject }) => subject === 'outbox.push');
      if (push?.state === 'failing' && mirror.read(waitingUp).waiting === 0)
        mirror.freshnessBoard.ok('outbox.push');
    } else {
      log.warn({}, 'the mirror of this branch or that of the hub is an older copy; a snapshot is asked for');
      await this.#beginLine(true);
    }
  }

  /** How the hub's orders come in, in the time of this machine. */
  async #adopt({ freshness, nowMs, ordersStaleAfterMs }: HelloAnswer): Promise<void> {
    const { mirror, clock, onHubClock } = this.#options;
    if (nowMs !== null) {
      onHubClock(nowMs);
      const aheadMs = clock.nowMs() - nowMs;
      // What a question takes on its way is no wrong clock.
      if (Math.abs(aheadMs - this.#aheadMs) > CLOCK_JITTER_MS) this.#aheadMs = Math.round(aheadMs);
    }
    const here = (at: string | null) => (at === null ? null : isoUtc(Date.parse(at) + this.#aheadMs));
    for (const each of freshness) {
      mirror.adoptFreshness({ ...each, lastOkAt: here(each.lastOkAt), lastTryAt: here(each.lastTryAt) });
    }
    if (ordersStaleAfterMs !== null) await mirror.noteHubStaleAfter(ordersStaleAfterMs);
  }

  async #beginLine(isCopy: boolean): Promise<void> {
    this.#ownLine = await this.#options.mirror.write((db) => beginLine(db, isCopy));
    await this.#sayHello();
  }

  /** Hands up what waits, one request; whether there was anything. Throws `link-…`. */
  async handUpOnce(): Promise<boolean> {
    const { mirror, stores, clock, log } = this.#options;
    if (mirror.read(waitingUp).waiting === 0) return false;
    const isOwnLine = mirror.read(branchPlace).line === this.#ownLine;
    if (!isOwnLine && !mirror.read(isUnderWay)) await this.#beginLine(false);
    const isFull = clock.monotonicMs() < this.#fullUntilMs;
    const items = await stores.write((own) => nextUp(own, isFull));
    if (items.length === 0) return false;
    const { line } = mirror.read(branchPlace);
    const question = { instance: this.#instance, line, items };
    const { upTo, comeBackMs } = await this.#ask('changes', question, CHANGES_ANSWER);
    await mirror.write((db) => noteUp(db, upTo));
    log.info({ items: items.length, upTo, comeBackMs }, 'handed changes and acknowledgements up to the hub');
    if (comeBackMs === undefined) {
      mirror.freshnessBoard.ok('outbox.push');
      return true;
    }
    this.#fullUntilMs = clock.monotonicMs() + comeBackMs;
    this.#ownLine = await mirror.write((db) => takeBack(db, clock.nowMs()));
    const why = 'As many changes of this branch wait at the hub as may. More go up as these leave.';
    mirror.freshnessBoard.report('outbox.push', 'waiting', why);
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
      stores.write(({ decisions }) => decisions.prune(clock.nowMs() - outboxKeptMs, PRUNED_AT_ONCE));
    while ((await prune()) === PRUNED_AT_ONCE);
  }
}

/** Pages of the catalogue are long: the POS's own changes wait for a few of them at most. */
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

/** Throws `link-refused` or `link-down` for a refusal, and `link-down` for what is no answer. */
export function readAnswer<T>(text: string, schema: z.ZodType<T>): T {
  let answer: unknown;
  try {
    answer = JSON.parse(text);
  } catch (cause) {
    throw new TillsyncError('link-down', 'The answer of the hub cannot be read.', { cause });
  }
  const refused = REFUSAL.safeParse(answer);
  if (refused.success) throw refusalOf(refused.data.refused.code, refused.data.refused.message);
  const read = schema.safeParse(answer);
  if (read.success) return read.data;
  throw new TillsyncError('link-down', 'The answer of the hub cannot be read.');
}
