import { createHmac } from 'node:crypto';
import { Poster } from '../core/post.ts';
import { runProgram } from '../core/program.ts';
import { type HookEvent, type HookSettings, withoutCustomer } from './hook.ts';

/** Result of one try. It never names the customer. */
export interface HookAnswer {
  ok: boolean;
  /** One sentence without its full stop, such as `printer.local answered 500`. */
  what: string;
  /** The end of the program's output, or the beginning of the answer. */
  text: string;
  retryAfterMs?: number;
}

/** Receiver of a hook's events. */
export interface HookReceiver {
  /** Throws `aborted` alone. */
  send(event: HookEvent, signal: AbortSignal): Promise<HookAnswer>;
  close(): void;
}

interface HookReceiverOptions {
  hook: HookSettings;
  /** Key that signs each POST. */
  secret: string | undefined;
  /** This process's environment; a program gets a small part of it, without secrets. */
  env: NodeJS.ProcessEnv;
  /** Of tillsync. */
  version: string;
}

const TEXT_MAX = 500;

export function hookReceiver({ hook, secret, env, version }: HookReceiverOptions): HookReceiver {
  return hook.url === '' ? programReceiver(hook, env) : postReceiver(hook, secret, version);
}

/** Returns the signature header of a body: SHA-256 HMAC in hex. */
function signatureOf(body: string, secret: string): string {
  return `sha256=${createHmac('sha256', secret).update(body).digest('hex')}`;
}

/** For a test, the person sees the whole answer. */
function withoutPeople(text: string, { test, order }: HookEvent): string {
  return test ? text : withoutCustomer(text, order);
}

function postReceiver({ url, timeoutMs }: HookSettings, secret: string | undefined, version: string) {
  const poster = new Poster(url, timeoutMs);
  const receiver: HookReceiver = {
    async send(event, signal) {
      const body = JSON.stringify(event);
      const headers = {
        'user-agent': `tillsync/${version}`,
        ...(secret !== undefined && { 'x-tillsync-signature': signatureOf(body, secret) }),
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
