import { asTillsyncError, TillsyncError } from '../domain/errors.ts';
import type { Log } from '../domain/log.ts';
import type { IntakeEntry, IntakeOutcome, OrderKeeper } from '../domain/order/order-intake.ts';
import type { Clock } from '../domain/time/clock.ts';
import { isOfTheWholeDisk, keepSingly } from './keep-singly.ts';
import { PutOffLog } from './put-off-log.ts';

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
