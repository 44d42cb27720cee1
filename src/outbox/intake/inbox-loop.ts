import type { AlarmKey, Alarms } from '../../core/alarm.ts';
import { asTillsyncError, hasCode, TillsyncError } from '../../core/errors.ts';
import type { Log } from '../../core/log.ts';
import { type Clock, isoUtc } from '../../core/time.ts';
import { type LockHolder, namesOf } from '../../db/file-locks.ts';
import type { HoldBackSetting } from '../ledger/hold-back.ts';
import { comeBackMs, PassedOver } from '../sending/call-plan.ts';
import type { MirrorStores } from '../sending/repositories.ts';
import type { GuardSettings } from './guards.ts';
import { COUNTED_MAX, FIRST_ID, type InboxBatch, type InboxWaiting } from './inbox.ts';
import { type InboxAsker, InboxProcess, type InboxProcessOptions } from './inbox-process.ts';
import type { InboxFrom, InboxLocation } from './inbox-protocol.ts';

const ROWS_AT_ONCE = 1_000;
const LOOK_EVERY_MS = 500;
const FAILED_REST_MS = 5_000;
/** Longest time that a change of another interface waits until earlier rows of the inbox are copied. */
const FIRST_MAX_MS = 1_000;
/** Longest time that a POS may lock the inbox, for example while it stores a delivery. A longer lock is a mistake. */
const LOCKED_MAX_MS = 30_000;

/** After a pass that skipped rows, the next pass begins at the earliest after this many times the pass's duration. */
const REST_OF_PASS = 10;
const ID_MAX = 2n ** 63n - 1n;

/**
 * A pass through the inbox that skips rows of branches with a full queue. It continues with new rows until the next
 * pass checks whether there is room.
 */
interface Pass {
  passed: PassedOver;
  from: InboxFrom;
  beganMs: number;
  /** Monotonic time at which the next pass may begin; undefined while this pass has not reached the last row. */
  overMs: number | undefined;
}

/** The result of one read of the inbox. */
export interface InboxTaken {
  taken: number;
  rejected: number;
  acknowledged: number;
  /** Ids of acknowledged orders that the mirror does not have. */
  unheard: readonly string[];
  /** Reasons why acknowledgements were refused. */
  refused: readonly string[];
  /** Whether more rows may wait. */
  more: boolean;
  /** Present fault of the file, in a sentence for a person; null if there is none. */
  trouble: string | null;
  /** Reason why further rows stay in the inbox for now, for a person; null if no row stays. */
  full: TillsyncError | null;
  /** Programs that have a transaction open on the inbox while no row waits. */
  holders: readonly LockHolder[];
}

interface InboxLoopOptions extends InboxLocation {
  stores: MirrorStores;
  guards: GuardSettings;
  /** `stock.hold_back_unbooked`. */
  holdBack: HoldBackSetting;
  alarms: Alarms;
  /** Called after each read with the number of rows that wait. */
  onWaiting: (waiting: InboxWaiting) => void;
  /** Called after each read with its result. */
  onTaken: (taken: InboxTaken) => void;
  /** Called with the stores whose POS inserted rows; '' for rows that name none. */
  onAlive?: ((stores: readonly string[]) => void) | undefined;
  /** Pause between checks for rows of other processes; has a default. */
  lookEveryMs?: number | undefined;
  openInbox?: ((options: InboxProcessOptions) => InboxAsker) | undefined;
  clock: Clock;
  log: Log;
  beat: () => void;
}

/** Copies the inbox into the outbox. A POS that locks or breaks the file stops only this loop. */
export class InboxLoop {
  readonly #options: InboxLoopOptions;
  readonly #inbox: InboxAsker;
  /** Sentence about a lost inbox file, for an alarm; null if no file was lost. */
  #lost: string | null = null;
  #isTidy = false;
  /** Last text of each alarm; undefined if it is not known yet. */
  readonly #told = new Map<AlarmKey, string | null>();
  readonly #failing = new Set<AlarmKey>();
  /** Process ids of programs with a transaction open at the last read, and the time of the first such read in a row. */
  #heldSinceMs: ReadonlyMap<number, number> = new Map();
  #pass: Pass | undefined;
  /** The running read. A second read waits for it, because two at once would copy a row twice. */
  #looking: Promise<unknown> = Promise.resolve();

  constructor(options: InboxLoopOptions, signal?: AbortSignal) {
    const { path, group, log, openInbox = (how) => new InboxProcess(how) } = options;
    this.#options = options;
    this.#inbox = openInbox({
      path,
      group,
      signal,
      onTrouble: ({ kind, keptAt, message }) => {
        log.error({ kind, keptAt }, message);
        // A damaged file needs no sentence here, because `#troubleOf` reports it as long as the renamed file exists.
        if (kind !== 'damaged') this.#lost = message;
      },
    });
  }

  async run(signal: AbortSignal): Promise<void> {
    const { lookEveryMs = LOOK_EVERY_MS, clock, log, beat } = this.#options;
    let lockedSinceMs: number | undefined;
    let hasFailed = false;
    while (!signal.aborted) {
      beat();
      try {
        const taken = await this.ingest();
        this.#report(taken);
        lockedSinceMs = undefined;
        hasFailed = false;
        this.#tell('inbox.locked', this.#heldTooLong(taken.holders));
        this.#tell('inbox.damaged', taken.trouble);
        this.#tell('outbox.full', taken.full?.message ?? null);
        if (!taken.more) await clock.sleep(lookEveryMs, signal);
      } catch (error) {
        if (signal.aborted) return;
        if (hasCode(error, 'storage-busy')) {
          if (lockedSinceMs === undefined)
            log.debug({ err: error }, 'the inbox is locked; it is tried again');
          lockedSinceMs ??= clock.monotonicMs();
          if (clock.monotonicMs() - lockedSinceMs >= LOCKED_MAX_MS) this.#tell('inbox.locked', error);
          await clock.sleep(lookEveryMs, signal);
          continue;
        }
        lockedSinceMs = undefined;
        this.#tell('inbox.locked', null);
        // A single `storage-failed` may only mean that the process is slow, as while the machine starts. An alarm is
        // raised if the next read fails too.
        if (hasFailed || !hasCode(error, 'storage-failed')) {
          this.#tell('inbox.damaged', asTillsyncError(error));
        } else {
          log.warn({ err: error }, 'the inbox could not be used; it is tried again');
        }
        hasFailed = true;
        await clock.sleep(FAILED_REST_MS, signal);
      }
    }
  }

  /**
   * Copies the inbox before a change of another interface, so that the last submitted value wins: 40 by SQL, then 10 by
   * HTTP → 10. Returns false if rows may be left (file locked, broken or slow, or a full queue).
   */
  async ingestFirst(): Promise<boolean> {
    const { clock } = this.#options;
    const over = new AbortController();
    const endMs = clock.monotonicMs() + FIRST_MAX_MS;
    const all = async () => {
      for (;;) {
        const taken = await this.ingest();
        this.#report(taken);
        if (taken.full !== null || clock.monotonicMs() >= endMs) return false;
        if (!taken.more) return true;
      }
    };
    // The loop reads the inbox soon and reports any fault, so an error here is ignored.
    const tooLong = clock.sleep(FIRST_MAX_MS, over.signal).then(() => false);
    const isEmpty = await Promise.race([all().catch(() => false), tooLong]);
    over.abort();
    return isEmpty;
  }

  /** Copies inserted rows durably, each once, and then deletes them in the inbox. */
  ingest(): Promise<InboxTaken> {
    const taken = this.#looking.then(() => this.#ingest());
    this.#looking = taken.catch(() => undefined);
    return taken;
  }

  async #ingest(): Promise<InboxTaken> {
    const { stores, guards, holdBack, onWaiting, clock, log } = this.#options;
    const lookedAt = isoUtc(clock.nowMs());
    const pass = this.#currentPass();
    const { from } = pass;
    const { batch, waiting, keptFiles, holders } = await this.#inbox.ask({
      do: 'look',
      limit: ROWS_AT_ONCE,
      from,
    });
    onWaiting(waiting);
    const rows = [...batch.changes, ...batch.acks, ...batch.alive];
    if (rows.length > 0) this.#options.onAlive?.(storesIn(batch));
    if (rows.length === 0 && pass.passed.isNone) {
      // Deletes notes of copied rows that a dead process left, since the inbox is empty.
      if (!this.#isTidy && keptFiles.length === 0) await stores.write(({ inbox }) => inbox.forgetAll());
      this.#isTidy = true;
      if (stores.read(({ intake }) => intake.mayComeLate(lookedAt))) {
        await stores.write(({ intake }) => intake.inboxWasEmpty(lookedAt));
      }
      const trouble = this.#troubleOf(keptFiles);
      return {
        taken: 0,
        rejected: 0,
        acknowledged: 0,
        unheard: [],
        refused: [],
        more: false,
        trouble,
        full: null,
        holders,
      };
    }
    this.#lost = null;
    // Rows are first written durably to the mirror, then deleted in the inbox, then their notes are deleted. A crash
    // in between only repeats a step.
    const { accepted, acks, taken, full } = await stores.write(({ inbox, reservations }) => {
      reservations.begin(holdBack);
      return inbox.ingest(batch, guards, pass.passed);
    });
    this.#goOn(pass, batch);
    const gone = [...taken.changes, ...taken.acks, ...batch.alive];
    for (const { table, id, tooLong } of gone) {
      if (tooLong) log.warn({ table, id, ...tooLong }, 'a row of the inbox is too long and was not taken');
    }
    await this.#inbox.ask({
      do: 'remove',
      rows: gone.map(({ table, id, key, keyHex, tooLong }) => ({ table, id, key, keyHex, tooLong })),
    });
    if (waiting.rows < COUNTED_MAX && waiting.rows <= gone.length) onWaiting({ rows: 0, oldest: null });
    await stores.write(({ inbox, intake }) => {
      inbox.forget(taken);
      // A POS that inserts rows all the time never leaves the inbox empty, so a complete read counts as empty.
      if (!batch.more && full === null) intake.inboxWasEmpty(lookedAt);
    });
    return {
      taken: accepted.length,
      rejected: accepted.filter(({ state }) => state === 'rejected').length,
      acknowledged: acks.filter(({ state }) => state !== 'rejected').length,
      unheard: acks.flatMap(({ orderId, state }) => (state === 'unheard' ? [orderId] : [])),
      refused: acks.flatMap(({ orderId, message }) =>
        message === undefined ? [] : [`${orderId}: ${message}`],
      ),
      more: batch.more,
      trouble: this.#troubleOf(keptFiles),
      full,
      holders,
    };
  }

  #currentPass(): Pass {
    const nowMs = this.#options.clock.monotonicMs();
    if (this.#pass && nowMs < (this.#pass.overMs ?? nowMs + 1)) return this.#pass;
    this.#pass = undefined;
    return { passed: new PassedOver(), from: {}, beganMs: nowMs, overMs: undefined };
  }

  /** Continues behind the skipped rows. If no row was skipped, the next read begins at the first row. */
  #goOn(pass: Pass, batch: InboxBatch): void {
    const { passed, from, beganMs } = pass;
    if (passed.isNone) return;
    const nowMs = this.#options.clock.monotonicMs();
    const next = { ...from };
    for (const { table, id } of [...batch.changes, ...batch.acks]) {
      const after = BigInt(id) + 1n;
      if (after <= ID_MAX && after > BigInt(next[table] ?? FIRST_ID)) next[table] = String(after);
    }
    const restMs = Math.max(comeBackMs(passed.branches.length), REST_OF_PASS * (nowMs - beganMs));
    this.#pass = { ...pass, from: next, overMs: pass.overMs ?? (batch.more ? undefined : nowMs + restMs) };
  }

  /** Ends the process that opens the file. */
  close(): Promise<void> {
    return this.#inbox.close();
  }

  /** Returns an error for a person if a program had a transaction open for too long; null if there is none. */
  #heldTooLong(holders: readonly LockHolder[]): TillsyncError | null {
    const nowMs = this.#options.clock.monotonicMs();
    const held = new Map(holders.map(({ pid }) => [pid, this.#heldSinceMs.get(pid) ?? nowMs]));
    this.#heldSinceMs = held;
    const late = holders.filter(({ pid }) => nowMs - (held.get(pid) ?? nowMs) >= LOCKED_MAX_MS);
    if (late.length === 0) return null;
    const message = `The inbox ${this.#options.path} is locked by ${namesOf(late)}.`;
    return new TillsyncError('storage-busy', message, {
      hint: 'Close or restart it: it keeps a transaction open, so no other program can hand over.',
    });
  }

  #troubleOf(kept: readonly string[]): string | null {
    if (kept.length === 0) return this.#lost;
    return `The inbox was damaged and made anew. What the POS had put into it and tillsync had not taken in is in ${kept.join(', ')}. Have the POS hand it over again, then move the file away.`;
  }

  #report(report: InboxTaken): void {
    const { taken, rejected, acknowledged, unheard, refused } = report;
    const { log, onTaken } = this.#options;
    onTaken(report);
    if (taken + acknowledged + refused.length === 0) return;
    log.info({ taken, rejected, acknowledged, unheard: unheard.length }, 'took changes from the inbox');
    if (unheard.length > 0) {
      const orders = unheard.slice(0, 10);
      log.warn({ orders, all: unheard.length }, 'the POS acknowledged orders that the mirror does not know');
    }
    if (refused.length > 0) {
      const told = { refused: refused.slice(0, 10), all: refused.length };
      log.warn(told, 'acknowledgements of the POS were refused; they stand in refused_acks of the mirror');
    }
  }

  /** Sets or clears an alarm. An error is logged once. */
  #tell(key: AlarmKey, trouble: string | TillsyncError | null): void {
    const { alarms, log } = this.#options;
    const isError = typeof trouble === 'object' && trouble !== null;
    if (isError && !this.#failing.has(key)) {
      log.error({ err: trouble }, 'the inbox cannot be used; everything else goes on');
    }
    if (isError) this.#failing.add(key);
    else this.#failing.delete(key);
    const words = isError ? [trouble.message, trouble.hint].filter(Boolean).join(' ') : trouble;
    if (words === this.#told.get(key)) return;
    this.#told.set(key, words);
    alarms.note(key, words);
  }
}

/** Returns the stores that the rows name. Acknowledgements name an order, whose store is noted with them. */
function storesIn({ changes, alive }: InboxBatch): string[] {
  const named = changes.map(({ value }) => value.subsidiaryExternalId ?? value.subsidiaryId ?? '');
  return [...named.map(String), ...alive.map(({ store }) => store)];
}
