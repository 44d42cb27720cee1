import { TillsyncError } from '../core/errors.ts';
import { Waker } from '../core/loop.ts';
import type { Clock } from '../core/time.ts';
import type { Hub } from './hub.ts';
import type { BranchLink, DownMessage, Hello, Question } from './link.ts';

const LOOK_EVERY_MS = 200;
const SIGN_OF_LIFE_MS = 5_000;
/** If `take` returns false, its messages are passed to it again after this time. */
const AGAIN_AFTER_MS = 1_000;

export interface OwnStoreLinkOptions {
  /** Permanent id of the branch at the hub. */
  branch: string;
  /** Returns the position of the shop's mirror in the feed. */
  place: () => Pick<Hello, 'epoch' | 'mark'>;
  /** Runs a step of the hub. */
  atHub: <T>(step: () => T) => T;
  clock: Clock;
}

/**
 * Links a hub with the shop on the hub's machine, inside one process. The shop reads the hub's feed directly, so it
 * gets orders even while nats-server is down.
 */
export class OwnStoreLink implements BranchLink {
  readonly #options: OwnStoreLinkOptions;
  readonly #news: Waker;
  #hub: Hub | undefined;

  constructor(options: OwnStoreLinkOptions) {
    this.#options = options;
    this.#news = new Waker(options.clock);
  }

  /** Sets the hub to read from; undefined after the hub has ended. */
  attach(hub: Hub | undefined): void {
    this.#hub = hub;
    this.#news.wake();
  }

  /** Wakes the reader. Call it when the feed may have new entries. */
  wake(): void {
    this.#news.wake();
  }

  async follow(take: (messages: DownMessage[]) => Promise<boolean>, signal: AbortSignal): Promise<void> {
    const { branch, place, clock } = this.#options;
    const hub = this.#attached();
    let after = hub.feedPlace(branch, place());
    let toldMs = clock.monotonicMs();
    while (!signal.aborted && this.#hub === hub) {
      const messages = await hub.entriesAfter(branch, after);
      const last = messages.at(-1);
      if (last) {
        if (await take(messages)) {
          await hub.noteTaken(messages);
          after = last.n;
        } else {
          await clock.sleep(AGAIN_AFTER_MS, signal);
          after = hub.feedPlace(branch, place());
        }
        continue;
      }
      if (clock.monotonicMs() >= toldMs + SIGN_OF_LIFE_MS) {
        toldMs = clock.monotonicMs();
        await take([]);
      }
      await this.#news.rest(LOOK_EVERY_MS, signal);
    }
  }

  async ask(question: Question, body: string): Promise<string> {
    const { branch, atHub } = this.#options;
    const answer = await atHub(() => this.#attached().answer(branch, question, Buffer.from(body)));
    if (answer === undefined)
      throw new TillsyncError('link-down', 'The hub answers the shop it stands in later.');
    return answer;
  }

  /** Sets no handler, because a person at the hub runs the commands on this machine directly. */
  answer(): void {}

  async close(): Promise<void> {}

  #attached(): Hub {
    if (this.#hub) return this.#hub;
    throw new TillsyncError('link-down', 'The hub in this process has not begun yet.');
  }
}
