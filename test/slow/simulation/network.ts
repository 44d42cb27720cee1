import { TillsyncError } from '../../../src/core/errors.ts';
import type { Clock } from '../../../src/core/time.ts';
import type { Transport, TransportAnswer } from '../../../src/platform/transport.ts';
import type { SandboxCore } from '../../../src/sandbox/sandbox.ts';

type TransportRequest = Parameters<Transport['send']>[0];

/** The network between the store and the platform. */
export class Network {
  isDown = false;
  /** Number of token refreshes that may have reached the platform although the store got no answer. */
  lostRefreshes = 0;
  /** Called for a change that the platform may or may not have accepted, as far as the store knows. */
  onLost: (() => void) | undefined;
  /** Called when the platform has answered and the store does not know it yet. */
  onAnswered: ((request: TransportRequest) => void) | undefined;
  readonly #sandbox: SandboxCore;
  readonly #clock: Clock;

  constructor(sandbox: SandboxCore, clock: Clock) {
    this.#sandbox = sandbox;
    this.#clock = clock;
  }

  /** Returns the connection of one process to the platform, which fails once the process is dead (`isCut`). */
  transport(life: { isCut: boolean }): Transport {
    return {
      send: async (request) => {
        if (this.isDown || life.isCut) throw neverSent();
        const isRefresh = request.endpoint === 'token.refresh' || request.path === '/token/refresh';
        try {
          const answer = await this.#carry(request, life);
          if (isRefresh && !isPair(answer)) this.lostRefreshes += 1;
          return answer;
        } catch (error) {
          if (isRefresh) this.lostRefreshes += 1;
          throw error;
        }
      },
      close: async () => {},
    };
  }

  async #carry(request: TransportRequest, life: { isCut: boolean }): Promise<TransportAnswer> {
    const over = new AbortController();
    const { signal: wish } = request;
    const giveUp = () => over.abort();
    wish?.addEventListener('abort', giveUp, { once: true });
    const answered = this.#ask(request, over.signal);
    const { timeoutMs } = request;
    const timedOut =
      timeoutMs === undefined
        ? new Promise<undefined>(() => {})
        : this.#clock.sleep(timeoutMs, over.signal).then(() => undefined);
    try {
      const answer = await Promise.race([answered, timedOut]);
      if (answer) this.onAnswered?.(request);
      const isLost = !answer || answer.status >= 500;
      if (isLost && request.method === 'PUT' && request.path.startsWith('/product')) this.onLost?.();
      if (wish?.aborted) throw new TillsyncError('aborted', 'Stopped while a request was under way.');
      if (!answer || this.isDown || life.isCut) throw unreachable();
      return answer;
    } finally {
      over.abort();
      wish?.removeEventListener('abort', giveUp);
    }
  }

  async #ask(request: TransportRequest, signal: AbortSignal): Promise<TransportAnswer | undefined> {
    const { method, path: url, body } = request;
    const headers = Object.fromEntries(
      Object.entries(request.headers).map(([name, text]) => [name.toLowerCase(), text]),
    );
    const answer = await this.#sandbox.handle({ method, url, headers, body, signal });
    if (answer.kind === 'dropped') return undefined;
    if (answer.slowMs > 0) await this.#clock.sleep(answer.slowMs, signal);
    return { status: answer.status, headers: answer.headers, bytes: Buffer.from(answer.body) };
  }
}

function isPair({ status, bytes }: TransportAnswer): boolean {
  if (status === 429 || status === 403 || status === 401) return true;
  try {
    return status === 200 && JSON.parse(Buffer.from(bytes).toString()).success === true;
  } catch {
    return false;
  }
}

function neverSent(): TillsyncError {
  const cause = Object.assign(new Error('connect ENETUNREACH'), { code: 'ENETUNREACH' });
  return new TillsyncError('platform-unreachable', 'The network is down.', { cause });
}

function unreachable(): TillsyncError {
  return new TillsyncError('platform-unreachable', 'The platform gave no whole answer.');
}
