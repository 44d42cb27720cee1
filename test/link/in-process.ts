import { TillsyncError } from '../../src/core/errors.ts';
import type {
  BranchLink,
  DownMessage,
  HubLink,
  QuestionHandler,
  SupportHandler,
} from '../../src/link/link.ts';

function down(): TillsyncError {
  return new TillsyncError('link-down', 'The link is down.');
}

/** Replaces the server between a hub and its branches inside one process. Tests and simulations can make it fail. */
export class InProcessServer {
  #made = 1;
  readonly #kept = new Map<string, DownMessage[]>();
  /** Number of messages that each branch has received. */
  readonly #taken = new Map<string, number>();
  readonly #waiting = new Set<() => void>();
  #handler: QuestionHandler | undefined;
  readonly #support = new Map<string, SupportHandler>();
  isDown = false;
  /** True if the server's disk is full. It still answers questions. */
  isFull = false;
  /** Number of questions that are handled but whose answers are lost. */
  lostAnswers = 0;
  /** Number of messages that are stored but whose acknowledgement to the hub is lost. */
  lostAcknowledgements = 0;
  /** Number of batches whose acknowledgement by the branch is lost, so that they are sent again. */
  lostTakes = 0;

  /** Deletes all messages, as if the server's files were deleted. */
  lose(): void {
    this.#made += 1;
    this.#kept.clear();
    this.#taken.clear();
  }

  /** Deletes a branch's received messages and `count` more, as the server does after the retention time. */
  expire(branch: string, count: number): void {
    this.#kept.get(branch)?.splice(0, (this.#taken.get(branch) ?? 0) + count);
    this.#taken.set(branch, 0);
  }

  /** Returns the number of messages that a branch has not received yet. */
  pending(branch: string): number {
    return (this.#kept.get(branch)?.length ?? 0) - (this.#taken.get(branch) ?? 0);
  }

  hub(): HubLink {
    return {
      prepare: async () => {
        if (this.isDown) throw down();
        return `place-${this.#made}`;
      },
      publish: async (messages) => {
        for (const message of messages) {
          if (this.isDown || this.isFull) throw down();
          this.#kept.set(message.branch, [...(this.#kept.get(message.branch) ?? []), message]);
          if (this.lostAcknowledgements > 0) {
            this.lostAcknowledgements -= 1;
            throw down();
          }
        }
        for (const wake of this.#waiting) wake();
      },
      answer: async (handler) => {
        this.#handler = handler;
      },
      ask: async (branch, question, body) => {
        const handler = this.#support.get(branch);
        if (this.isDown || !handler) throw down();
        return handler(question, body);
      },
      close: async () => {
        this.#handler = undefined;
      },
    };
  }

  branch(name: string): BranchLink {
    return {
      follow: async (take, signal) => {
        while (!signal.aborted) {
          if (this.isDown) throw down();
          const from = this.#taken.get(name) ?? 0;
          const messages = this.#kept.get(name)?.slice(from, from + 200) ?? [];
          if (messages.length > 0) {
            if (!(await take(messages)) || this.lostTakes > 0) {
              this.lostTakes = Math.max(0, this.lostTakes - 1);
              throw down();
            }
            this.#taken.set(name, from + messages.length);
          } else {
            await take([]);
            if (!signal.aborted) await this.#more(signal);
          }
        }
      },
      ask: async (question, body) => {
        if (this.isDown || !this.#handler) throw down();
        const answer = await this.#handler(name, question, Buffer.from(body));
        if (answer === undefined) throw down();
        if (this.lostAnswers > 0) {
          this.lostAnswers -= 1;
          throw down();
        }
        return answer;
      },
      answer: (handler) => {
        this.#support.set(name, handler);
      },
      close: async () => {
        this.#support.delete(name);
      },
    };
  }

  async #more(signal: AbortSignal): Promise<void> {
    const { promise, resolve } = Promise.withResolvers<void>();
    this.#waiting.add(resolve);
    signal.addEventListener('abort', () => resolve(), { once: true });
    await promise;
    this.#waiting.delete(resolve);
  }
}
