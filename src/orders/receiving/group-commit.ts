import { asTillsyncError, hasCode, TillsyncError } from '../../core/errors.ts';
import type { Log } from '../../core/log.ts';
import type { Clock } from '../../core/time.ts';
import type { IncomingEntry, OrderSink, SaveOutcome } from '../merging/order.ts';

/**
 * Returns whether every other entry would meet the same fault. `storage-failed` is excluded, because it may also mean
 * one entry that breaks a constraint.
 */
function isOfTheWholeDisk(error: unknown): boolean {
  return hasCode(
    error,
    'storage-busy',
    'storage-full',
    'storage-readonly',
    'storage-corrupt',
    'storage-newer',
    'aborted',
  );
}

export interface Saved {
  entry: IncomingEntry;
  outcome: SaveOutcome;
}

interface GroupCommitOptions {
  sink: OrderSink;
  clock: Clock;
  log: Log;
  /** Called with the entries that became durable, after their senders were answered. */
  onSaved?: ((saved: readonly Saved[]) => void) | undefined;
  /** Called when the disk did not store a group, or the rest of a group, after the senders were asked to send again. */
  onPutOff?: ((error: TillsyncError) => void) | undefined;
}

const QUIET_TURNS = 3;
const GROUP_MAX = 200;
const COLLECT_MAX_MS = 5;
/** Longest time of collecting on a slow disk. With only 5 ms, every few entries would need a commit of their own. */
const COLLECT_SLOW_MAX_MS = 100;
/** Limits of the entries that wait during a commit. `add` refuses entries beyond them. */
const WAITING_MAX = 2_000;
const WAITING_BYTES_MAX = 32 * 1024 * 1024;
/** Interval at which a failing disk is logged. */
const TOLD_EVERY_MS = 60_000;

interface QueuedEntry {
  entry: IncomingEntry;
  bytes: number;
  resolve: (outcome: SaveOutcome) => void;
  reject: (error: unknown) => void;
}

/**
 * Makes many notifications durable in one commit. A group closes after three turns of the event loop without a new
 * entry. One turn would be too short, because Node accepts one connection per turn, so each group would have one entry.
 * While entries arrive, the group stays open for at most 5 ms or, if the last commit took longer, for the duration of
 * that commit, up to 100 ms.
 */
export class GroupCommit {
  readonly #options: GroupCommitOptions;
  #waiting: QueuedEntry[] = [];
  #waitingBytes = 0;
  #working = false;
  #seen = 0;
  #quietTurns = 0;
  #collectingSinceMs = 0;
  #lastCommitMs = 0;
  #idle: (() => void)[] = [];
  /**
   * Number of notifications refused after the disk last worked, and the time of the last log line about them. The time
   * is undefined while the disk works.
   */
  #putOff = 0;
  #toldMonoMs: number | undefined;

  constructor(options: GroupCommitOptions) {
    this.#options = options;
  }

  /**
   * Resolves when `entry` is on the disk. Rejects with the sink's error if it was not stored, and with `storage-busy`
   * at once if too many entries wait.
   */
  add(entry: IncomingEntry, bytes: number): Promise<SaveOutcome> {
    if (this.#waiting.length >= WAITING_MAX || this.#waitingBytes + bytes > WAITING_BYTES_MAX) {
      const message = `${this.#waiting.length} notifications already wait for the disk; this one was not kept.`;
      return Promise.reject(new TillsyncError('storage-busy', message));
    }
    return new Promise((resolve, reject) => {
      this.#waiting.push({ entry, bytes, resolve, reject });
      this.#waitingBytes += bytes;
      if (!this.#working) this.#collect();
    });
  }

  /** Resolves when no commit waits or runs. */
  drained(): Promise<void> {
    return this.#working ? new Promise((resolve) => this.#idle.push(resolve)) : Promise.resolve();
  }

  #collect(): void {
    this.#working = true;
    this.#seen = this.#waiting.length;
    this.#quietTurns = 0;
    this.#collectingSinceMs = this.#options.clock.monotonicMs();
    setImmediate(this.#turn);
  }

  readonly #turn = (): void => {
    const arrived = this.#waiting.length;
    this.#quietTurns = arrived === this.#seen ? this.#quietTurns + 1 : 0;
    this.#seen = arrived;
    const collectMaxMs = Math.min(Math.max(this.#lastCommitMs, COLLECT_MAX_MS), COLLECT_SLOW_MAX_MS);
    const complete =
      this.#quietTurns >= QUIET_TURNS ||
      arrived >= GROUP_MAX ||
      this.#options.clock.monotonicMs() - this.#collectingSinceMs >= collectMaxMs;
    if (complete) void this.#commit();
    else setImmediate(this.#turn);
  };

  async #commit(): Promise<void> {
    const group = this.#waiting.splice(0, GROUP_MAX);
    for (const { bytes } of group) this.#waitingBytes -= bytes;
    const { clock } = this.#options;
    const beganMs = clock.monotonicMs();
    const saved = await this.#save(group);
    this.#lastCommitMs = clock.monotonicMs() - beganMs;
    setImmediate(() => this.#afterCommit(saved));
  }

  /** Stores a group and answers each of its entries. Never rejects. */
  async #save(group: readonly QueuedEntry[]): Promise<Saved[]> {
    const { sink, log } = this.#options;
    const saved: Saved[] = [];
    const settle = (waiting: QueuedEntry, result: Saved | TillsyncError) => {
      if (result instanceof TillsyncError) return waiting.reject(result);
      saved.push(result);
      waiting.resolve(result.outcome);
    };
    try {
      const outcomes = await sink.save(group.map(({ entry }) => entry));
      for (const [i, waiting] of group.entries()) settle(waiting, savedOr(waiting.entry, outcomes[i]));
    } catch (error) {
      if (isOfTheWholeDisk(error)) {
        for (const { reject } of group) reject(error);
        this.#notePutOff(asTillsyncError(error), group.length);
      } else {
        log.debug({ err: error, notifications: group.length }, 'notifications could not be kept together');
        await this.#saveSingly(group, settle);
      }
    }
    if (saved.length > 0) this.#noteSaved();
    return saved;
  }

  /**
   * Stores the entries of a failed group one by one, so that one bad entry does not cause the refusal of the others.
   * After a fault of the disk itself, the rest is refused without a try.
   */
  async #saveSingly(
    group: readonly QueuedEntry[],
    settle: (waiting: QueuedEntry, result: Saved | TillsyncError) => void,
  ): Promise<void> {
    let diskFault: TillsyncError | undefined;
    let putOff = 0;
    for (const waiting of group) {
      const result = diskFault ?? (await this.#saveOrQuarantine(waiting.entry));
      // An order that breaks a constraint went into quarantine, so a remaining `storage-failed` is a fault of the
      // disk.
      if (isOfTheWholeDisk(result) || hasCode(result, 'storage-failed')) diskFault = result as TillsyncError;
      if (diskFault) putOff += 1;
      settle(waiting, result);
    }
    if (diskFault) this.#notePutOff(diskFault, putOff);
  }

  /** Stores an entry. An order that the store cannot accept is put into quarantine with its whole payload. */
  async #saveOrQuarantine(entry: IncomingEntry): Promise<Saved | TillsyncError> {
    const first = await this.#saveOne(entry);
    if (!(first instanceof TillsyncError) || entry.kind !== 'order' || isOfTheWholeDisk(first)) return first;
    const { source, observedAtMs: receivedAtMs, raw: payload } = entry.observation;
    const reason = `The mirror could not take this order (${first.code}).`;
    return this.#saveOne({ kind: 'unreadable', unreadable: { source, receivedAtMs, reason, payload } });
  }

  async #saveOne(entry: IncomingEntry): Promise<Saved | TillsyncError> {
    try {
      const [outcome] = await this.#options.sink.save([entry]);
      return savedOr(entry, outcome);
    } catch (error) {
      return asTillsyncError(error);
    }
  }

  /** Logs the fault of the disk at once, then at most once a minute until the disk works again. */
  #notePutOff(error: TillsyncError, notifications: number): void {
    const { clock, log, onPutOff } = this.#options;
    this.#putOff += notifications;
    const nowMs = clock.monotonicMs();
    if (this.#toldMonoMs === undefined || nowMs - this.#toldMonoMs >= TOLD_EVERY_MS) {
      this.#toldMonoMs = nowMs;
      log.error(
        { err: error, notifications: this.#putOff },
        'notifications could not be kept; their sender was asked to come again',
      );
    }
    onPutOff?.(error);
  }

  #noteSaved(): void {
    if (this.#toldMonoMs === undefined) return;
    this.#options.log.info({ putOff: this.#putOff }, 'notifications are kept again');
    this.#toldMonoMs = undefined;
    this.#putOff = 0;
  }

  #afterCommit(saved: readonly Saved[]): void {
    try {
      if (saved.length > 0) this.#options.onSaved?.(saved);
    } catch (error) {
      this.#options.log.error({ err: error }, 'what follows a kept notification failed');
    }
    if (this.#waiting.length > 0) {
      this.#collect();
      return;
    }
    this.#working = false;
    for (const resolve of this.#idle.splice(0)) resolve();
  }
}

function savedOr(entry: IncomingEntry, outcome: SaveOutcome | undefined): Saved | TillsyncError {
  return outcome ? { entry, outcome } : new TillsyncError('internal', 'The store gave no outcome.');
}
