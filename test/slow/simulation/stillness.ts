import { channel } from 'node:diagnostics_channel';
import type { AddressInfo } from 'node:net';
import type { FastifyInstance } from 'fastify';
import { untilIdle } from '../../support/fake-clock.ts';

/**
 * Real time that calls may take. A call within one machine takes milliseconds; a longer one waits for simulated time.
 */
const PATIENCE_MS = 2_000;

/** Fastify announces each new server here. */
const SERVERS = channel('fastify.initialization');

/**
 * Makes requests within the simulated time, one after the other, while time stands still until each is answered. They
 * go directly into the daemon's servers; sockets are tested elsewhere.
 */
export class Stillness {
  #servers: FastifyInstance[] = [];
  #underWay = 0;
  #turn: Promise<unknown> = Promise.resolve();
  /** Calls for which time had to advance; each makes the run hard to repeat. */
  overruns = 0;

  /** Lets everything that is ready run to its end. */
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

  /** Runs `start`; from then on, calls reach only the servers made within it. Listening takes no simulated time. */
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
      const answer = await server.inject({
        method,
        url: url.slice(url.indexOf(host) + host.length),
        headers: { host, ...headers },
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
