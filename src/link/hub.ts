import { setImmediate } from 'node:timers/promises';
import { isDeepStrictEqual } from 'node:util';
import type Database from 'better-sqlite3';
import type { FreshnessSubject } from '../core/alarm.ts';
import { asTillsyncError, firstNames } from '../core/errors.ts';
import type { Log } from '../core/log.ts';
import { type Clock, isoUtc } from '../core/time.ts';
import { Audit } from '../db/audit.ts';
import type { Mirror } from '../orders/reading/mirror.ts';
import type { GuardSettings } from '../outbox/intake/guards.ts';
import type { HoldBackSetting } from '../outbox/ledger/hold-back.ts';
import type { MirrorStores } from '../outbox/sending/repositories.ts';
import { unassigned } from './assign.ts';
import { examineBranches } from './branch-status.ts';
import { branchesAlarm } from './branches-alarm.ts';
import { addPage, CatalogRoom, composed, type FeedEntry, hasCatalog, hasPage } from './feed-pages.ts';
import {
  areNamesNew,
  beginHub,
  bookWaiting,
  type FeedBranch,
  hasSettled,
  hasWaitingAcks,
  ingestChanges,
  nameInCatalog,
  notePublished,
  noteStream,
  pruneFeed,
  sendSettled,
  unpublished,
} from './hub-feed.ts';
import {
  epochOf,
  forgetSnapshot,
  forgottenAgain,
  handleHello,
  isAbsurd,
  isNews,
  type Lease,
  leaseNumbers,
  publishedTo,
  snapshotAhead,
  uplinkState,
} from './hub-hello.ts';
import type { HubRows } from './hub-state.ts';
import {
  CHANGES,
  type DownMessage,
  HELLO,
  type Hello,
  type HelloAnswer,
  type HubLink,
  JOIN,
  type Question,
  type Refusal,
} from './link.ts';
import { LinkFreshness } from './link-freshness.ts';
import { MisuseMonitor } from './misuse.ts';
import { QUESTION_BYTES_MAX, QuestionGate } from './question-gate.ts';

const LOOK_EVERY_MS = 200;
const AGAIN_AFTER_MS = 2_000;
const CHECK_EVERY_MS = 15_000;
const PRUNE_EVERY_MS = 3_600_000;
const IN_FLIGHT = 64;
/** Silence of a newer machine after which the hub accepts an older machine with the same key again. */
const REPLACES_AFTER_MS = 300_000;
/** Longest body of a message, in bytes. With its headers it fits into the server's `max_payload`. */
const MESSAGE_BYTES_MAX = 8_000_000;
/** Maximum number of branches that a finding names. */
const NAMED_MAX = 5;

/** Remedy for a branch that the configuration does not name. */
const UNNAMED = 'At the hub, write it into [[branches]] again, then: sudo systemctl restart tillsync';

const FLOWS: readonly FreshnessSubject[] = ['orders.poll', 'orders.webhook', 'catalog.sweep'];

export interface HubOptions {
  link: HubLink;
  /** Returns the configured branches with their present names and ids. */
  branches: () => readonly FeedBranch[];
  mirror: Mirror;
  stores: MirrorStores;
  rows: HubRows;
  guards: GuardSettings;
  holdBack: HoldBackSetting;
  /** Returns the time after the last good poll at which orders count as stale. */
  ordersStaleAfterMs: () => number;
  /** Returns whether the hub's own orders are stale; its branches then report the same. */
  areOrdersStale: () => boolean;
  /** Called when a branch's changes were queued. */
  onQueued: () => void;
  clock: Clock;
  log: Log;
}

/**
 * The hub's side of the link: publishes entries to the branches and answers their questions.
 *
 * Its states: unreachable (the nats-server does not answer; entries wait in `feed`, and it is tried again every two
 * seconds), checking (every 15 s, and first of all: streams and consumers are made, lost entries are marked to be
 * published again), publishing (entries leave in the order of their numbers, and count as published once the server has
 * them on its disk), idle (nothing waits; it looks again after `LOOK_EVERY_MS`).
 *
 * States of a branch, as the hub sees it: without a feed (it was not invited, was closed, or a rename is to be decided),
 * heard (the machine that started last with the branch's key), replaced (an older machine with that key, which is
 * refused until the newer one is silent for `REPLACES_AFTER_MS`), too many questions (refused or dropped by the gate).
 */
export class Hub {
  readonly #options: HubOptions;
  readonly #freshness: LinkFreshness;
  readonly #gate: QuestionGate;
  readonly #misuse: MisuseMonitor;
  readonly #room = new CatalogRoom();
  /** Maps each branch to the process whose messages are accepted. */
  readonly #heard: Map<string, string>;
  /** Maps each branch to the process that was last informed that a newer one replaced it. */
  readonly #toldReplaced = new Map<string, string>();
  #branches: readonly FeedBranch[];
  #connectedAtMs = 0;

  constructor(options: HubOptions) {
    this.#options = options;
    this.#freshness = new LinkFreshness(options.mirror, options.clock);
    this.#gate = new QuestionGate(options.clock);
    this.#misuse = new MisuseMonitor(options.clock);
    this.#branches = options.branches();
    const known = options.rows.branches();
    this.#heard = new Map(known.flatMap(({ branch, report }) => (report ? [[branch, report.instance]] : [])));
  }

  async run(signal: AbortSignal, beat: () => void): Promise<void> {
    const { rows, clock, log } = this.#options;
    while (!signal.aborted) {
      try {
        await this.#connected(signal, beat);
        rows.writeHeard(clock.nowMs(), true);
      } catch (error) {
        if (signal.aborted) return;
        beat();
        log.debug({ err: error }, 'the nats-server cannot be reached; it is tried again');
        this.#freshness.failed(error);
        await clock.sleep(AGAIN_AFTER_MS, signal);
      }
    }
  }

  /** Updates the feeds for the configured branches. Must be called before all other methods. */
  async begin(): Promise<void> {
    const { mirror, branches, rows, clock } = this.#options;
    this.#branches = branches();
    for (const { branch, subsidiaryId } of this.#fed()) rows.noteSubsidiary(branch, subsidiaryId);
    await mirror.write((db) => beginHub(db, this.#fed(), clock.nowMs()));
  }

  /** Returns the branches with a feed. A branch that was probably renamed gets no feed until a person decides. */
  #fed(): FeedBranch[] {
    return this.#branches.filter(hasFeed);
  }

  /** Checks the server and publishes entries until the signal aborts or an error occurs. */
  async #connected(signal: AbortSignal, beat: () => void): Promise<void> {
    const { link, rows, clock } = this.#options;
    this.#connectedAtMs = clock.nowMs();
    let checkMs = Number.NEGATIVE_INFINITY;
    let pruneMs = clock.monotonicMs() + PRUNE_EVERY_MS;
    while (!signal.aborted) {
      beat();
      rows.writeHeard(clock.nowMs());
      const nowMs = clock.monotonicMs();
      const isCheck = nowMs >= checkMs + CHECK_EVERY_MS;
      if (isCheck) {
        const isFirst = checkMs === Number.NEGATIVE_INFINITY;
        await this.check();
        if (isFirst) await link.answer((branch, question, body) => this.answer(branch, question, body));
        checkMs = nowMs;
      }
      if (nowMs >= pruneMs) {
        if (!(await this.#options.mirror.write((db) => pruneFeed(db, clock.nowMs())))) {
          pruneMs = nowMs + PRUNE_EVERY_MS;
        }
      }
      const isMore = await this.publish();
      // A server whose disk is full or faulty still answers other requests, so the link is reported as good
      // only after publishing.
      if (isCheck) this.#freshness.ok();
      if (!isMore) await clock.sleep(LOOK_EVERY_MS, signal);
    }
  }

  /**
   * Checks the server and the branches: creates missing streams and consumers, marks lost entries so that they are
   * published again, and updates the alarms.
   */
  async check(): Promise<void> {
    const { link, branches, mirror, rows, clock, log } = this.#options;
    // A branch was renamed, closed or invited after the last check.
    if (!isDeepStrictEqual(branches(), this.#branches)) await this.begin();
    await this.catchUp();
    const stream = await link.prepare(this.#fed().map(({ branch }) => branch));
    if (await mirror.write((db) => noteStream(db, stream, rows.branches(), clock.nowMs()))) {
      this.#misuse.notePlace();
      log.info({}, 'the nats-server keeps messages in a new place; what branches lack is said again');
    }
    this.#tellMisuse();
    this.#tellBranches();
    const { orders, stores } = mirror.read(unassigned);
    const names = stores.map((store) => store ?? 'no branch at all').join(', ');
    const words = `Orders of no known branch: ${orders}. They name: ${names}.`;
    mirror.health.note('hub.unassigned', orders === 0 ? null : words);
  }

  #tellMisuse(): void {
    const { health } = this.#options.mirror;
    const found = this.#misuse.sentences();
    health.note('hub.misuse', found.slice(0, NAMED_MAX).join(' ') || null);
  }

  #tellBranches(): void {
    const { mirror, rows, clock } = this.#options;
    const watched = this.#branches.filter(({ isWatched }) => isWatched !== false);
    const nowMs = clock.nowMs();
    const alarm = branchesAlarm({
      branches: mirror.read((db) => examineBranches(db, watched, rows.branches(), nowMs)),
      areOrdersStale: this.#options.areOrdersStale(),
      connectedAtMs: this.#connectedAtMs,
      nowMs,
    });
    mirror.health.note('hub.branches', alarm?.message ?? null, alarm?.level);
  }

  #tellUnapplied(): void {
    const { health } = this.#options.mirror;
    const found = this.#options.rows
      .branches()
      .map(({ branch: id, name, report }) => ({ id, branch: name, entries: report?.quarantined ?? 0 }))
      .filter(({ entries }) => entries > 0)
      // The hub hears nothing of a branch that is not configured any more, so its last number would never change.
      .filter(({ id, branch }) =>
        this.#branches.some((own) => own.branch === id || own.renamedFrom === branch),
      );
    const named = firstNames(found, ({ branch, entries }) => `${branch} (${entries})`);
    const words = `Branches, and entries in the quarantine of each: ${named.join(', ')}.`;
    health.note('hub.unapplied', found.length === 0 ? null : words);
  }

  /** Books acknowledgements whose orders have arrived, and updates catalogue names and the finding `hub.unapplied`. */
  async catchUp(): Promise<void> {
    const { mirror, stores } = this.#options;
    const branches = this.#fed();
    if (mirror.read(hasWaitingAcks)) await stores.write(bookWaiting);
    // The name in the catalogue is derived only for a branch without a configured subsidiary id.
    const isGuessed = branches.some(({ subsidiaryId }) => subsidiaryId === null);
    if (isGuessed && mirror.read((db) => areNamesNew(db, branches))) {
      await mirror.write((db) => nameInCatalog(db, branches));
    }
    this.#tellUnapplied();
  }

  /** Publishes waiting entries, or adds the next page to the feeds if none wait. Returns true if there may be more. */
  async publish(): Promise<boolean> {
    const { mirror, link, rows, clock } = this.#options;
    if (mirror.read(hasSettled)) await mirror.write((db) => sendSettled(db, clock.nowMs()));
    const entries = mirror.read((db) => unpublished(db, IN_FLIGHT));
    if (entries.length === 0) {
      const roomIn = (db: Database.Database) => (branch: string) =>
        this.#room.has(db, branch, rows.markOf(branch));
      if (!mirror.read((db) => hasPage(db, roomIn(db)))) return false;
      return mirror.write((db) => addPage(db, roomIn(db), clock.nowMs()));
    }
    const messages = await this.#composed(entries);
    await link.publish(
      messages.map((message) => {
        // The server would refuse a message of this length every time, and all later messages would wait. So the entry
        // is sent with an empty body, and the branch puts it into quarantine.
        const isTooLong = Buffer.byteLength(message.body) > MESSAGE_BYTES_MAX;
        return isTooLong ? { ...message, body: '{}' } : message;
      }),
    );
    await mirror.write((db) => notePublished(db, entries));
    return true;
  }

  async #composed(entries: readonly FeedEntry[]): Promise<DownMessage[]> {
    const messages: DownMessage[] = [];
    for (const entry of entries) {
      messages.push(this.#options.mirror.read((db) => composed(db, entry)));
      // Yields to the event loop after each entry, so that a callback waits for one entry at most.
      await setImmediate();
    }
    return messages;
  }

  /**
   * Answers a branch's question. Returns undefined if the branch asks so often that it gets no answer. Never
   * throws.
   */
  answer(branch: string, question: Question, body: Uint8Array): Promise<string> | undefined {
    // The gate runs before the question is parsed, so that a flood of questions costs other branches no time.
    const entry = this.#gate.enter(branch, body.length);
    if (entry !== 'admitted') {
      this.#noteRefused(branch, question, body.length);
      if (entry === 'dropped') return undefined;
      const message = `Branch ${this.#nameOf(branch)} asks more than it may; the hub hears it again in a few seconds.`;
      return Promise.resolve(refusal('busy', message));
    }
    const answer = this.#found(branch)
      .then((found) => (found ? this.#answer(found, question, body) : this.#unnamed(branch)))
      .catch((error: unknown) => refusal('busy', asTillsyncError(error).message));
    return answer.finally(() => this.#gate.leave(branch));
  }

  /**
   * Returns the branch if it is open. Rereads the list of branches before it gives up, because an invitation
   * may have opened the branch. Never throws.
   */
  async #found(branch: string): Promise<FeedBranch | undefined> {
    const find = () => this.#branches.find((each) => each.branch === branch && hasFeed(each));
    const found = find();
    if (found) return found;
    try {
      if (!this.#options.branches().some((each) => each.branch === branch)) return undefined;
      await this.begin();
    } catch {
      // The next check reads the branches again.
    }
    return find();
  }

  /**
   * Returns the answer to a branch that has a key but is not in the configuration, or has another name there.
   */
  #unnamed(branch: string): string {
    const before = this.#options.rows.nameOf(branch);
    const renamed = this.#branches.find(({ renamedFrom }) => renamedFrom === before);
    const kept = 'Its mirror and what it has for the hub are kept.';
    if (renamed === undefined) {
      const message = `The configuration of the hub has no branch ${before}. ${kept}`;
      return refusal('expired', message, UNNAMED);
    }
    const { name } = renamed;
    const message = `Branch ${before} waits for its new name: the configuration of the hub calls it ${name}. ${kept}`;
    return refusal(
      'expired',
      message,
      `At the hub, say that it is the same shop: sudo tillsync branch rename ${before} ${name}`,
    );
  }

  #nameOf(branch: string): string {
    return this.#branches.find((each) => each.branch === branch)?.name ?? branch;
  }

  #noteRefused(branch: string, question: Question, bytes: number): void {
    this.#misuse.note(this.#nameOf(branch), 'questions');
    if (bytes > QUESTION_BYTES_MAX) this.#misuse.note(this.#nameOf(branch), 'length');
    if (!this.#gate.isToTell(branch)) return;
    this.#options.log.warn({ branch, question, bytes }, 'a branch asks more than it may; it has to wait');
  }

  async #answer(found: FeedBranch, question: Question, body: Uint8Array): Promise<string> {
    const { branch, name } = found;
    try {
      const asked: unknown = JSON.parse(Buffer.from(body).toString('utf8'));
      if (question === 'join') return this.#join(branch, asked);
      if (!this.#options.rows.hasJoined(branch)) {
        return refusal('expired', `Branch ${name} has no key of its own.`);
      }
      return question === 'hello' ? await this.#hello(branch, asked) : await this.#changes(found, asked);
    } catch (error) {
      const { code, message } = asTillsyncError(error);
      if (this.#gate.isToTell(branch)) {
        this.#options.log.warn(
          { branch, question, err: error },
          'a question of a branch could not be answered',
        );
      }
      const isOurs = code.startsWith('storage-') || code === 'aborted';
      if (!isOurs) this.#options.rows.noteRefused(branch, 'unreadable', this.#options.clock.nowMs());
      return refusal(isOurs ? 'busy' : 'unreadable', isOurs ? message : 'The hub cannot read the question.');
    }
  }

  #join(branch: string, asked: unknown): string {
    const { rows, clock, log } = this.#options;
    const { publicKey } = JOIN.parse(asked);
    const refused = rows.join(branch, publicKey, clock.nowMs());
    if (refused !== undefined) return refusal('expired', refused);
    log.info({ branch }, 'a branch has joined');
    return JSON.stringify({ joined: true });
  }

  async #hello(branch: string, asked: unknown): Promise<string> {
    const { mirror, stores, rows, clock } = this.#options;
    const hello = HELLO.parse(asked);
    if (!hello.isStart) {
      const replaced = this.#replaced(branch, hello.instance);
      if (replaced !== undefined && !this.#isSilent(branch))
        return this.#tellReplaced(branch, hello.instance, replaced);
      if (replaced !== undefined) this.#misuse.note(this.#nameOf(branch), 'twice');
    }
    if (mirror.read((db) => isAbsurd(db, branch, hello))) {
      this.#misuse.note(this.#nameOf(branch), 'numbers');
      rows.noteRefused(branch, 'numbers', clock.nowMs());
      return refusal(
        'unreadable',
        `Branch ${this.#nameOf(branch)} names a number that it cannot have given.`,
      );
    }
    this.#heard.set(branch, hello.instance);
    const { isLineKnown } = mirror.read((db) => uplinkState(db, branch, hello.line));
    let lease: Lease | undefined;
    if (mirror.read((db) => isNews(db, branch, hello))) lease = await this.#takeNews(branch, hello);
    await this.#forgetAgain(branch, hello.forgotten);
    const mark = hello.epoch === mirror.read((db) => epochOf(db, branch)) ? hello.mark : 0;
    const { instance, waiting, oldestWaitingAt, rejected, quarantined, verdict, version } = hello;
    const work = { waiting, oldestWaitingAt, rejected, quarantined };
    rows.saw(branch, { instance, mark, ...work, verdict, version }, clock.nowMs());
    const freshness = mirror.health.freshness().filter(({ subject }) => FLOWS.includes(subject));
    return JSON.stringify({
      ...mirror.read((db) => uplinkState(db, branch, hello.line)),
      isLineKnown,
      ...(lease ?? mirror.read((db) => leaseNumbers(db, branch, hello))),
      published: mirror.read((db) => publishedTo(db, branch, mark)),
      snapshotN: mirror.read((db) => snapshotAhead(db, branch, hello)),
      hasCatalog: stores.read(({ db, lookup }) => lookup.isComplete && hasCatalog(db, branch, hello)),
      freshness: freshness as HelloAnswer['freshness'],
      nowMs: clock.nowMs(),
      ordersStaleAfterMs: this.#options.ordersStaleAfterMs(),
    } satisfies HelloAnswer);
  }

  /** Removes again the customers that a restored backup brought back and that a branch reports as removed. */
  async #forgetAgain(branch: string, orderIds: readonly string[]): Promise<void> {
    const { mirror, clock, log } = this.#options;
    const lost =
      orderIds.length === 0 ? [] : mirror.read((db) => forgottenAgain(db, branch, orderIds, clock.nowMs()));
    for (const orderId of lost) {
      const deed = { who: 'tillsync', action: 'order.forget', subject: `order ${orderId}` } as const;
      const detail = `Forgotten before the restore, as branch ${this.#nameOf(branch)} knows.`;
      await mirror.customers.forget(orderId, (db) => new Audit({ db, clock }).note({ ...deed, detail }));
    }
    if (lost.length > 0)
      log.info({ branch, orders: lost.length }, 'customers were forgotten again after the restore');
  }

  async #takeNews(branch: string, hello: Hello): Promise<Lease> {
    const { mirror, rows, clock, log } = this.#options;
    const heardMark = rows.branches().find((each) => each.branch === branch)?.report?.mark ?? 0;
    const options = { mayCause: this.#gate.mayCause(branch), heardMark, nowMs: clock.nowMs() };
    const { lease, caused } = await mirror.write((db) => ({
      lease: leaseNumbers(db, branch, hello),
      caused: handleHello(db, branch, hello, options),
    }));
    if (caused === 'nothing') return lease;
    this.#gate.noteCaused(branch);
    log.info({ branch, caused }, 'a branch cannot go on from where it is; it gets a snapshot');
    if (caused !== 'snapshot') this.#misuse.note(this.#nameOf(branch), 'lives');
    return lease;
  }

  async #changes(from: FeedBranch, asked: unknown): Promise<string> {
    const { branch } = from;
    const { stores, guards, holdBack, clock, onQueued } = this.#options;
    const { instance, line: uplinkId, items } = CHANGES.parse(asked);
    const replaced = this.#replaced(branch, instance);
    if (replaced !== undefined) return this.#tellReplaced(branch, instance, replaced);
    const comeBackMs = this.#gate.waitMs(branch, items.length);
    if (comeBackMs > 0) {
      const { upTo } = stores.read(({ db }) => uplinkState(db, branch, uplinkId));
      return JSON.stringify({ upTo, comeBackMs });
    }
    const at = isoUtc(clock.nowMs());
    const answer = await stores.write((own) =>
      ingestChanges(own, { from, uplinkId, items, guards, holdBack, at }),
    );
    if (!answer)
      return refusal('unreadable', 'These changes do not follow on what the hub has; say hello first.');
    onQueued();
    return JSON.stringify(answer);
  }

  /** Returns whether the accepted machine was silent so long that an older machine is accepted again. */
  #isSilent(branch: string): boolean {
    const { rows, clock } = this.#options;
    const seenAt = rows.branches().find((each) => each.branch === branch)?.seenAt;
    return seenAt == null || clock.nowMs() - Date.parse(seenAt) >= REPLACES_AFTER_MS;
  }

  /**
   * Tells an older machine that a newer machine of the branch replaced it. The newer machine may request another
   * snapshot at once, because the older machine may have received the last one.
   */
  async #tellReplaced(branch: string, instance: string, replaced: string): Promise<string> {
    if (this.#toldReplaced.get(branch) !== instance) {
      await this.#options.mirror.write((db) => forgetSnapshot(db, branch));
      this.#toldReplaced.set(branch, instance);
    }
    return replaced;
  }

  #replaced(branch: string, instance: string): string | undefined {
    const heard = this.#heard.get(branch) ?? instance;
    if (heard === instance) return undefined;
    return refusal(
      'replaced',
      `Another machine works as branch ${this.#nameOf(branch)} now, with the same key.`,
    );
  }
}

function hasFeed({ renamedFrom }: FeedBranch): boolean {
  return renamedFrom === undefined;
}

function refusal(code: Refusal['code'], message: string, hint?: string): string {
  return JSON.stringify({ refused: { code, message, hint } satisfies Refusal });
}
