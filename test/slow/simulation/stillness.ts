import { channel } from 'node:diagnostics_channel';
import type { AddressInfo } from 'node:net';
import type { FastifyInstance } from 'fastify';
import { API_KEY } from '../../support/api-key.ts';
import { untilIdle } from '../../support/fake-clock.ts';

/**
 * Real time that calls may take. A call within one machine takes milliseconds; a longer one waits for simulated time.
 */
const PATIENCE_MS = 2_000;

/** Fastify announces each new server here. */
const SERVERS = channel('fastify.initialization');

/**
 * Makes requests to the daemon, one after the other; simulated time stands still until each is answered. The requests
 * go directly into the daemon's servers, without sockets, which other tests cover.
 */
export class Stillness {
  #servers: FastifyInstance[] = [];
  #underWay = 0;
  #turn: Promise<unknown> = Promise.resolve();
  /** How often simulated time advanced before a call was answered, which makes the run hard to repeat. */
  overruns = 0;

  /** Waits until all ready work is done and, at most `PATIENCE_MS` long, until all calls are answered. */
  readonly settle = async (): Promise<void> => {
    await untilIdle();
    if (this.#underWay === 0) return;
    const startMs = performance.now();
    while (this.#underWay > 0) {
      await untilIdle();
      if (performance.now() - startMs < PATIENCE_MS) continue;
      this.overruns += 1;
      return;
    }
  };

  /** Runs `start`, which starts a daemon. From then on, calls reach only the servers that `start` has made. */
  async begin<T>(start: () => Promise<T>): Promise<T> {
    const servers: FastifyInstance[] = [];
    const onMade = (message: unknown) => servers.push((message as { fastify: FastifyInstance }).fastify);
    SERVERS.subscribe(onMade);
    try {
      return await start();
    } finally {
      SERVERS.unsubscribe(onMade);
      this.#servers = servers;
    }
  }

  /** Makes every later call fail, as if nothing listened. */
  hangUp(): void {
    this.#servers = [];
  }

  /** Makes a request; rejects if nothing listens at the address. */
  call(
    url: string,
    { method = 'GET', headers = {}, body }: HttpWish = {},
  ): Promise<{ status: number; text: string }> {
    this.#underWay += 1;
    const send = async () => {
      const { port, host } = new URL(url);
      const listensThere = (at: AddressInfo | string) => typeof at === 'object' && at.port === Number(port);
      const server = this.#servers.find((each) => each.addresses().some(listensThere));
      if (!server) throw new Error('connection refused');
      const route = url.slice(url.indexOf(host) + host.length);
      const answer = await server.inject({
        method,
        url: route,
        headers: { host, ...(route.startsWith('/v1/') && { 'x-api-key': API_KEY }), ...headers },
        ...(body !== undefined && { payload: body }),
      });
      return { status: answer.statusCode, text: answer.payload };
    };
    const answered = this.#turn.then(send);
    this.#turn = answered.catch(() => {});
    return answered.finally(() => {
      this.#underWay -= 1;
    });
  }
}

interface HttpWish {
  method?: 'GET' | 'POST';
  headers?: Record<string, string>;
  body?: string;
}
