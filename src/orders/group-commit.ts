import { asTillsyncError, hasCode, TillsyncError } from '../core/errors.ts';
import type { Log } from '../core/log.ts';
import type { Clock } from '../core/time.ts';
import type { IntakeEntry, IntakeOutcome, OrderKeeper } from './order.ts';

const AGAIN_AFTER_MS = 60_000;

/** Tells of a disk that keeps nothing: at once, once a minute while it lasts, and when it is over. */
export class PutOffLog {
  readonly #log: Log;
  readonly #clock: Clock;
  #notifications = 0;
  #toldMonoMs: number | undefined;

  constructor({ log, clock }: { log: Log; clock: Clock }) {
    this.#log = log;
    this.#clock = clock;
  }

  /** So many notifications were put off. */
  putOff(error: unknown, notifications: number): void {
    this.#notifications += notifications;
    const nowMs = this.#clock.monotonicMs();
    if (this.#toldMonoMs !== undefined && nowMs - this.#toldMonoMs < AGAIN_AFTER_MS) return;
    this.#toldMonoMs = nowMs;
    this.#log.error(
      { err: error, notifications: this.#notifications },
      'notifications could not be kept; their sender was asked to come again',
    );
  }

  /** Something was kept. */
  kept(): void {
    if (this.#toldMonoMs === undefined) return;
    this.#log.info({ putOff: this.#notifications }, 'notifications are kept again');
    this.#toldMonoMs = undefined;
    this.#notifications = 0;
  }
}

/** Told of each entry by its index: what was kept in the end and with which outcome, or why nothing was. */
export type SettleEntry = (index: number, entry: IntakeEntry, result: IntakeOutcome | TillsyncError) => void;

/**
 * Keeps entries one by one after their group was refused, so that one that the store cannot take refuses none
 * of its neighbours. Such an order goes to quarantine whole. As soon as the disk itself proves to be at fault,
 * the rest is refused untried.
 */
export async function keepSingly(
  keeper: OrderKeeper,
  entries: readonly IntakeEntry[],
  settle: SettleEntry,
): Promise<void> {
  for (const [index, entry] of entries.entries()) {
    const result = await keepOrQuarantine(keeper, entry);
    if ('error' in result && isOfTheDisk(result.error)) {
      for (let rest = index; rest < entries.length; rest++) {
        settle(rest, entries[rest] ?? entry, result.error);
      }
      return;
    }
    if ('error' in result) settle(index, entry, result.error);
    else settle(index, result.entry, result.outcome);
  }
}

/** A fault that every entry would meet alike. `storage-failed` may also be one entry that breaks a constraint. */
export function isOfTheWholeDisk(error: unknown): boolean {
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

/** As above, for an entry that could not even be quarantined: then `storage-failed` is the disk as well. */
function isOfTheDisk(error: TillsyncError): boolean {
  return isOfTheWholeDisk(error) || error.code === 'storage-failed';
}

type SingleResult = { entry: IntakeEntry; outcome: IntakeOutcome } | { error: TillsyncError };

async function keepOrQuarantine(keeper: OrderKeeper, entry: IntakeEntry): Promise<SingleResult> {
  const first = await keepOne(keeper, entry);
  if ('outcome' in first || entry.kind !== 'order' || isOfTheWholeDisk(first.error)) return first;
  const { source, observedAtMs, raw } = entry.observation;
  const reason = `The mirror could not take this order (${first.error.code}).`;
  return await keepOne(keeper, {
    kind: 'unreadable',
    unreadable: { source, receivedAtMs: observedAtMs, reason, payload: raw },
  });
}

async function keepOne(keeper: OrderKeeper, entry: IntakeEntry): Promise<SingleResult> {
  try {
    const [outcome] = await keeper.keep([entry]);
    if (outcome === undefined) throw new Error('The store gave no outcome.');
    return { entry, outcome };
  } catch (error) {
    return { error: asTillsyncError(error) };
  }
}

export interface Kept {
  entry: IntakeEntry;
  outcome: IntakeOutcome;
}

export interface GroupCommitOptions {
  keeper: OrderKeeper;
  clock: Clock;
  log: Log;
  /** Told of everything that became durable, after its senders were answered. */
  onKept?: ((kept: readonly Kept[]) => void) | undefined;
  /** Told when a whole group could not be kept, after its senders were put off. */
  onPutOff?: ((error: TillsyncError) => void) | undefined;
  /** Entries that may wait while a commit is under way; beyond it `add` refuses. */
  waitingMax?: number;
  waitingBytesMax?: number;
}

const QUIET_TURNS = 3;
const GROUP_MAX = 200;
const COLLECT_MAX_MS = 5;
/** On a slow disk, where the few that arrive in 5 ms would each time wait for a commit of their own. */
const COLLECT_SLOW_MAX_MS = 100;
const WAITING_MAX = 2_000;
const WAITING_BYTES_MAX = 32 * 1024 * 1024;

interface Waiting {
  entry: IntakeEntry;
  bytes: number;
  resolve: (outcome: IntakeOutcome) => void;
  reject: (error: unknown) => void;
}

/**
 * Makes many notifications durable in one commit. A group is what arrives until three turns of the event loop
 * bring nothing new: Node accepts one new connection a turn, so a group of a single turn would hold one entry. As
 * long as something comes it is collected for 5 ms, or for as long as the commit before took.
 */
export class GroupCommit {
  readonly #options: GroupCommitOptions;
  readonly #putOffLog: PutOffLog;
  #waiting: Waiting[] = [];
  #waitingBytes = 0;
  #working = false;
  #seen = 0;
  #quietTurns = 0;
  #collectingSinceMs = 0;
  #lastCommitMs = 0;
  #idle: (() => void)[] = [];

  constructor(options: GroupCommitOptions) {
    this.#options = options;
    this.#putOffLog = new PutOffLog(options);
  }

  /**
   * Resolves once `entry` is on the disk. Rejects with the keeper's error when it was not kept, and with
   * `storage-busy` at once when too much waits already.
   */
  add(entry: IntakeEntry, bytes: number): Promise<IntakeOutcome> {
    const { waitingMax = WAITING_MAX, waitingBytesMax = WAITING_BYTES_MAX } = this.#options;
    if (this.#waiting.length >= waitingMax || this.#waitingBytes + bytes > waitingBytesMax) {
      const message = `${this.#waiting.length} notifications already wait for the disk; this one was not kept.`;
      return Promise.reject(new TillsyncError('storage-busy', message));
    }
    return new Promise((resolve, reject) => {
      this.#waiting.push({ entry, bytes, resolve, reject });
      this.#waitingBytes += bytes;
      if (!this.#working) this.#collect();
    });
  }

  /** Resolves when nothing waits and no commit is under way. */
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
    const complete =
      this.#quietTurns >= QUIET_TURNS ||
      arrived >= GROUP_MAX ||
      this.#options.clock.monotonicMs() - this.#collectingSinceMs >= this.#collectMaxMs();
    if (complete) void this.#commit();
    else setImmediate(this.#turn);
  };

  #collectMaxMs(): number {
    return Math.min(Math.max(this.#lastCommitMs, COLLECT_MAX_MS), COLLECT_SLOW_MAX_MS);
  }

  async #commit(): Promise<void> {
    const group = this.#waiting.splice(0, GROUP_MAX);
    for (const { bytes } of group) this.#waitingBytes -= bytes;
    const { clock } = this.#options;
    const beganMs = clock.monotonicMs();
    const kept = await this.#keep(group);
    this.#lastCommitMs = clock.monotonicMs() - beganMs;
    setImmediate(() => this.#afterCommit(kept));
  }

  /** Keeps a group and answers each of its entries; never rejects. */
  async #keep(group: readonly Waiting[]): Promise<Kept[]> {
    const { keeper } = this.#options;
    const kept: Kept[] = [];
    const settle = (index: number, entry: IntakeEntry, result: IntakeOutcome | TillsyncError) => {
      if (result instanceof TillsyncError) group[index]?.reject(result);
      else {
        kept.push({ entry, outcome: result });
        group[index]?.resolve(result);
      }
    };
    try {
      const outcomes = await keeper.keep(group.map(({ entry }) => entry));
      group.forEach(({ entry }, i) => {
        settle(i, entry, outcomes[i] ?? new TillsyncError('internal', 'The store gave no outcome.'));
      });
    } catch (error) {
      if (isOfTheWholeDisk(error)) {
        for (const { reject } of group) reject(error);
        this.#putOffLog.putOff(error, group.length);
        this.#options.onPutOff?.(asTillsyncError(error));
      } else {
        const { log } = this.#options;
        log.error({ err: error, notifications: group.length }, 'notifications could not be kept together');
        const entries = group.map(({ entry }) => entry);
        await keepSingly(keeper, entries, settle);
      }
    }
    if (kept.length > 0) this.#putOffLog.kept();
    return kept;
  }

  #afterCommit(kept: readonly Kept[]): void {
    try {
      if (kept.length > 0) this.#options.onKept?.(kept);
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
