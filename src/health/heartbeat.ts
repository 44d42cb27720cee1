import { asTillsyncError, hasCode, TillsyncError } from '../core/errors.ts';
import type { Log } from '../core/log.ts';
import { Poster } from '../core/post.ts';
import { type Clock, isoUtc } from '../core/time.ts';
import type { FindingCode } from './findings.ts';
import type { Assessment } from './verdict.ts';

/** Codes of red findings that the outside watcher gets; empty if there are none. */
export type RedCodes = readonly FindingCode[];

/**
 * Returns the address for a heartbeat. Without red findings it is the configured address. With red findings, a push
 * address of Uptime Kuma, or an address with a `status` in its query, gets `status=down` and the codes as `msg`; other
 * addresses get `/fail` appended to their path, as healthchecks.io and similar services expect.
 */
export function heartbeatAddress(configured: string, red: RedCodes): string {
  if (red.length === 0) return configured;
  const url = new URL(configured);
  if (/\/api\/push\/[^/]+\/?$/.test(url.pathname) || url.searchParams.has('status')) {
    url.searchParams.set('status', 'down');
    url.searchParams.set('msg', red.join(', '));
  } else {
    url.pathname = `${url.pathname.replace(/\/+$/, '')}/fail`;
  }
  return url.href;
}

/** Result of the last heartbeat. It is stored whenever it changes, so that commands can show it. */
export interface HeartbeatMemory {
  ok: boolean;
  /** When the result last changed, ISO 8601 UTC. */
  since: string;
  /** Why the heartbeat did not arrive; empty if it did. */
  message: string;
}

/** Address and time limit of a heartbeat. */
export interface HeartbeatTarget {
  /** Address of the watcher. It may contain a secret, so messages name only its host. */
  url: string;
  timeoutMs: number;
  /** Version of tillsync. */
  version: string;
}

/**
 * Some services answer 200 to a heartbeat of a monitor that no longer exists. The body of their answer matches this.
 */
const NOT_TAKEN = /^OK \(not found\)|"ok":\s*false/;

/** Sends one heartbeat. Throws a TillsyncError if it did not arrive. */
export async function sendHeartbeat(
  { url, timeoutMs, version }: HeartbeatTarget,
  redCodes: RedCodes,
  signal: AbortSignal,
): Promise<void> {
  const sender = new Poster(url, timeoutMs);
  try {
    const headers = { 'user-agent': `tillsync/${version}` };
    const { ok, what, text } = await sender.get(heartbeatAddress(url, redCodes), headers, signal);
    if (ok && !NOT_TAKEN.test(text)) return;
    const why = ok ? `${sender.host} does not know it` : what;
    throw new TillsyncError('internal', `The heartbeat was not taken: ${why}.`, {
      retryable: true,
      hint: 'Check alarms.heartbeat_url or the secret heartbeat-url with: {tillsync} config test-alarms',
    });
  } finally {
    sender.close();
  }
}

/** Returns the codes of the present red findings. `before` are those of the last heartbeat. */
export function presentRedCodes(assessment: () => Assessment, before: RedCodes = []): RedCodes {
  try {
    const { findings } = assessment();
    return findings.filter(({ level }) => level === 'red').map(({ code }) => code);
  } catch (error) {
    // If the database is busy, the last result is used. If it is unreadable, that is itself a red finding.
    if (hasCode(error, 'storage-busy')) return before;
    return ['storage.failing'];
  }
}

export interface HeartbeatOptions extends HeartbeatTarget {
  everyMs: number;
  /** Returns the present findings. May throw `storage-…`. */
  assessment: () => Assessment;
  remember: (memory: HeartbeatMemory) => void;
  onSent: (outcome: 'ok' | 'failed') => void;
  clock: Clock;
  log: Log;
}

const RETRY_AFTER_MS = 15_000;
/**
 * Sends heartbeats to the outside watcher: at the start, every `everyMs`, and at once when the verdict becomes red or
 * stops being red. A failure is only recorded, because the watcher itself notices missing heartbeats.
 */
export class Heartbeat {
  readonly #o: HeartbeatOptions;
  #last: RedCodes | undefined;
  #dueMonoMs = Number.NEGATIVE_INFINITY;
  #memory: HeartbeatMemory | undefined;

  constructor(options: HeartbeatOptions) {
    this.#o = options;
  }

  /** Sends a heartbeat if one is due. */
  async pingIfDue(signal: AbortSignal): Promise<void> {
    const { clock, everyMs } = this.#o;
    const redCodes = this.redCodes();
    const isAsBefore = this.#last !== undefined && redCodes.length > 0 === this.#last.length > 0;
    if (clock.monotonicMs() < this.#dueMonoMs && isAsBefore) return;
    const startMonoMs = clock.monotonicMs();
    try {
      await sendHeartbeat(this.#o, redCodes, signal);
      this.#last = redCodes;
      this.#dueMonoMs = startMonoMs + everyMs;
      this.#note(true, '');
    } catch (error) {
      if (hasCode(error, 'aborted')) return;
      this.#last = redCodes;
      this.#dueMonoMs = clock.monotonicMs() + Math.min(everyMs, RETRY_AFTER_MS);
      this.#note(false, asTillsyncError(error).message);
    }
  }

  redCodes(): RedCodes {
    return presentRedCodes(this.#o.assessment, this.#last);
  }

  #note(ok: boolean, message: string): void {
    const { clock, log, onSent, remember } = this.#o;
    onSent(ok ? 'ok' : 'failed');
    if (this.#memory?.ok === ok && this.#memory.message === message) return;
    const since = this.#memory?.ok === ok ? this.#memory.since : isoUtc(clock.nowMs());
    if (!ok) log[this.#memory?.ok === false ? 'debug' : 'warn']({}, message);
    else if (this.#memory) log.info({}, 'the heartbeat arrives again');
    const memory = { ok, since, message };
    this.#memory = memory;
    try {
      remember(memory);
    } catch (error) {
      log.debug({ err: error }, 'how the heartbeat fares cannot be written now');
    }
  }
}
