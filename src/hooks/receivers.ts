import { createHmac, randomUUID } from 'node:crypto';
import { Poster } from '../core/post.ts';
import { runProgram } from '../core/program.ts';
import type { Clock } from '../core/time.ts';
import { type HookMessage, type HookSettings, withoutCustomer } from './hook.ts';

/** Result of one try to deliver an event. It contains no customer data, except in a test of a hook. */
export interface HookAnswer {
  ok: boolean;
  /** Sentence without its full stop, such as `printer.local answered 500`. */
  what: string;
  /** End of the program's output, or beginning of the answer's body. */
  text: string;
  retryAfterMs?: number;
}

/** Sends a hook's events to its program or address. */
export interface HookReceiver {
  /** Sends one event. Throws only `aborted`. */
  send(event: HookMessage, signal: AbortSignal): Promise<HookAnswer>;
  close(): void;
}

interface HookReceiverOptions {
  hook: HookSettings;
  /** Secrets that sign each POST: none, one, or during a rotation the new one before the old one. */
  secrets: readonly string[];
  /** Environment of this process. A program gets only a small part of it, without secrets. */
  env: NodeJS.ProcessEnv;
  /** Version of tillsync. */
  version: string;
  clock: Pick<Clock, 'nowMs'>;
}

const TEXT_MAX = 500;

export function hookReceiver({ hook, env, ...how }: HookReceiverOptions): HookReceiver {
  return hook.url === '' ? programReceiver(hook, env) : postReceiver(hook, how);
}

const STANDARD_SECRET = /^whsec_([A-Za-z0-9+/]+={0,2})$/;

/**
 * Returns the signing key as Standard Webhooks defines it: the decoded base64 after `whsec_`, otherwise the secret's
 * own bytes.
 */
function keyOf(secret: string): Buffer {
  const [, base64] = STANDARD_SECRET.exec(secret) ?? [];
  return Buffer.from(base64 ?? secret, base64 === undefined ? 'utf8' : 'base64');
}

/**
 * Returns the headers that sign a body: those of Standard Webhooks with a signature for each secret, and for older
 * receivers an HMAC of only the body with the first secret.
 */
function signaturesOf(body: string, id: string, nowMs: number, secrets: readonly [string, ...string[]]) {
  const timestamp = String(Math.floor(nowMs / 1000));
  const signatures = secrets.map((secret) => {
    const hmac = createHmac('sha256', keyOf(secret)).update(`${id}.${timestamp}.${body}`);
    return `v1,${hmac.digest('base64')}`;
  });
  return {
    'webhook-id': id,
    'webhook-timestamp': timestamp,
    'webhook-signature': signatures.join(' '),
    'x-tillsync-signature': `sha256=${createHmac('sha256', secrets[0]).update(body).digest('hex')}`,
  };
}

/**
 * Returns the id of an event for its receiver. It is the same for each try, so that the receiver notices a repetition.
 */
function idOf(event: HookMessage): string {
  if (event.test) return `test_${randomUUID()}`;
  if ('id' in event) return event.id;
  // A mirror that was made anew numbers settled changes from 1 again, so the time of settling is part of the id.
  return 'change' in event
    ? `rejected_${event.seq}_${Date.parse(event.change.settledAt ?? '')}`
    : `event_${event.seq}`;
}

/** Removes the customer's data from an answer, except in a test, where the person sees the whole answer. */
function withoutPeople(text: string, event: HookMessage): string {
  return event.test || 'change' in event ? text : withoutCustomer(text, event.order);
}

function postReceiver(
  { url, timeoutMs }: HookSettings,
  { secrets, version, clock }: Pick<HookReceiverOptions, 'secrets' | 'version' | 'clock'>,
) {
  const poster = new Poster(url, timeoutMs);
  const [first, ...others] = secrets;
  const receiver: HookReceiver = {
    async send(event, signal) {
      const body = JSON.stringify(event);
      const headers = {
        'user-agent': `tillsync/${version}`,
        ...(first !== undefined && signaturesOf(body, idOf(event), clock.nowMs(), [first, ...others])),
      };
      const { text, ...answer } = await poster.post(body, headers, signal);
      return { ...answer, text: withoutPeople(text, event).slice(0, TEXT_MAX) };
    },
    close: () => poster.close(),
  };
  return receiver;
}

function programReceiver({ command, timeoutMs }: HookSettings, env: NodeJS.ProcessEnv): HookReceiver {
  return {
    async send(event, signal) {
      const input = `${JSON.stringify(event)}\n`;
      const { ok, what, said, printed } = await runProgram(command, { input, env, timeoutMs, signal });
      const text = withoutPeople(said === '' ? printed : said, event);
      return { ok, what: `the program ${what}`, text: text.slice(-TEXT_MAX) };
    },
    close: () => {},
  };
}
