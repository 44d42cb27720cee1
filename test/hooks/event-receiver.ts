import { createServer, type IncomingHttpHeaders, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { onTestFinished } from 'vitest';
import type { HookEvent, HookSettings } from '../../src/hooks/hook.ts';

export interface Received {
  event: HookEvent;
  body: string;
  headers: IncomingHttpHeaders;
  path: string;
}

/** A real HTTP receiver of a hook. It records requests and answers as the test wants. */
export interface EventReceiver {
  url: string;
  received: Received[];
  /** Number of requests that wait for an answer now, and the greatest number at any time. */
  open: number;
  openMax: number;
  /** Status of the next answers, or a function that answers. */
  answer: number | ((response: ServerResponse, event: HookEvent) => void);
  seqs(): number[];
  /** Resolves when this many events have arrived. Throws if they do not arrive in time. */
  until(count: number): Promise<void>;
}

export async function eventReceiver(): Promise<EventReceiver> {
  const server = createServer((request, response) => {
    let body = '';
    request.setEncoding('utf8').on('data', (text: string) => {
      body += text;
    });
    request.on('end', () => {
      const event = JSON.parse(body) as HookEvent;
      receiver.open += 1;
      receiver.openMax = Math.max(receiver.openMax, receiver.open);
      response.on('close', () => {
        receiver.open -= 1;
      });
      receiver.received.push({ event, body, headers: request.headers, path: request.url ?? '' });
      const { answer } = receiver;
      if (typeof answer === 'number') response.writeHead(answer).end();
      else answer(response, event);
    });
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  onTestFinished(() => {
    server.closeAllConnections();
    server.close();
  });
  const receiver: EventReceiver = {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}/events`,
    received: [],
    open: 0,
    openMax: 0,
    answer: 204,
    seqs: () => receiver.received.map(({ event }) => event.seq),
    until: (count) => until(() => receiver.received.length >= count),
  };
  return receiver;
}

/** Waits in real time for sockets and processes, while the injected clock stands still. */
export async function until(isSo: () => boolean, withinMs = 5_000): Promise<void> {
  const endMs = performance.now() + withinMs * Number(process.env.TILLSYNC_SLOW);
  while (!isSo()) {
    if (performance.now() > endMs) throw new Error('it did not come about');
    await new Promise((resolve) => setTimeout(resolve, 2));
  }
}

export function hook(name: string, changes: Partial<HookSettings> = {}): HookSettings {
  const usual = {
    url: '',
    command: [],
    events: ['order'],
    statuses: [],
    prepareBeforeMs: 20 * 60_000,
    from: 'now',
    timeoutMs: 5_000,
  } as const;
  return { name, ...usual, ...changes };
}
