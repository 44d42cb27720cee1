import { Agent, type Dispatcher, request } from 'undici';
import { TillsyncError } from '../domain/errors.ts';
import type { Clock } from '../domain/time/clock.ts';
import { addressOf, networkFault, noAnswerWithin } from './network-fault.ts';
import type { Transport, TransportAnswer, TransportRequest } from './transport.ts';

export interface HttpTransportOptions {
  /** The platform's base address, with or without a path. */
  baseUrl: string;
  clock: Clock;
  connectTimeoutMs?: number;
}

const CONNECT_TIMEOUT_MS = 10_000;
const KEEP_ALIVE_MS = 10_000;
const CONNECTIONS = 8;

/** HTTP/1.1 by undici with an agent of its own. */
export function createHttpTransport(options: HttpTransportOptions): Transport {
  const base = options.baseUrl.replace(/\/+$/, '');
  const address = addressOf(base);
  // The total timeout below is the only one that counts: undici's own are coarse.
  const common = {
    connect: { timeout: options.connectTimeoutMs ?? CONNECT_TIMEOUT_MS },
    headersTimeout: 0,
    bodyTimeout: 0,
    allowH2: false,
  };
  // Made with the first call: a service listens before it calls.
  let agents: { kept: Agent; fresh: Agent } | undefined;
  const open = () => ({
    kept: new Agent({ ...common, connections: CONNECTIONS, keepAliveTimeout: KEEP_ALIVE_MS }),
    fresh: new Agent({ ...common, pipelining: 0 }),
  });
  return {
    async send(wanted) {
      const limit = timeLimit(options.clock, wanted);
      agents ??= open();
      try {
        const answer = await request(base + wanted.path, {
          method: wanted.method as Dispatcher.HttpMethod,
          headers: wanted.headers,
          body: wanted.body ?? null,
          dispatcher: wanted.freshConnection ? agents.fresh : agents.kept,
          signal: limit.signal,
        });
        return {
          status: answer.statusCode,
          headers: flattened(answer.headers),
          bytes: await readBody(answer.body, wanted.bodyMaxBytes),
        };
      } catch (error) {
        throw error instanceof TillsyncError ? error : (limit.reason() ?? networkFault(error, address));
      } finally {
        limit.end();
      }
    },
    async close() {
      await Promise.all([agents?.kept.destroy(), agents?.fresh.destroy()]);
    },
  };
}

/** One signal for the caller's wish and the total timeout, and which of the two it was. */
function timeLimit(clock: Clock, { timeoutMs, signal }: TransportRequest) {
  const ended = new AbortController();
  const cut = new AbortController();
  let reason: TillsyncError | undefined;
  const stop = (why: TillsyncError) => {
    if (ended.signal.aborted) return;
    reason ??= why;
    cut.abort();
  };
  const onAbort = () => stop(new TillsyncError('aborted', 'Stopped while a request was under way.'));
  if (signal?.aborted) onAbort();
  signal?.addEventListener('abort', onAbort, { once: true });
  if (timeoutMs !== undefined) {
    void clock.sleep(timeoutMs, ended.signal).then(() => stop(noAnswerWithin(timeoutMs)));
  }
  return {
    signal: cut.signal,
    reason: () => reason,
    end() {
      ended.abort();
      signal?.removeEventListener('abort', onAbort);
    },
  };
}

async function readBody(body: AsyncIterable<Uint8Array>, maxBytes: number): Promise<Uint8Array> {
  const chunks: Uint8Array[] = [];
  let size = 0;
  for await (const chunk of body) {
    size += chunk.length;
    // Leaving the loop by a throw destroys the stream and its connection.
    if (size > maxBytes) {
      throw new TillsyncError('platform-garbled', `The platform's answer is larger than ${maxBytes} bytes.`);
    }
    chunks.push(chunk);
  }
  return chunks.length === 1 && chunks[0] ? chunks[0] : Buffer.concat(chunks, size);
}

function flattened(headers: Record<string, string | string[] | undefined>): Record<string, string> {
  const flat: TransportAnswer['headers'] = {};
  for (const [name, value] of Object.entries(headers)) {
    if (value !== undefined) flat[name.toLowerCase()] = Array.isArray(value) ? value.join(', ') : value;
  }
  return flat;
}
