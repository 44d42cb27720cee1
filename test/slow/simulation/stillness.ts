import { Agent, type IncomingMessage, request } from 'node:http';
import { untilIdle } from '../../support/fake-clock.ts';

/** A call within one machine takes milliseconds; one that takes longer waits for time to pass. */
const PATIENCE_MS = 2_000;

/** Real HTTP within the simulated time: one call after the other, and time stands still until each is answered. */
export class Stillness {
  #agent = new Agent({ keepAlive: true, maxSockets: 1 });
  #underWay = 0;
  #turn: Promise<unknown> = Promise.resolve();
  /** Calls that time had to go on for; each makes the run hard to repeat. */
  overruns = 0;

  /** Lets everything that is ready run to its end. */
  readonly settle = async (): Promise<void> => {
    await untilIdle();
    const startMs = performance.now();
    while (this.#underWay > 0) {
      await untilIdle();
      if (performance.now() - startMs < PATIENCE_MS) continue;
      this.overruns += 1;
      return;
    }
  };

  /** Lets connections go: whoever was at their other end is about to leave. */
  hangUp(): void {
    this.#agent.destroy();
    this.#agent = new Agent({ keepAlive: true, maxSockets: 1 });
  }

  call(
    url: string,
    { method = 'GET', headers = {}, body }: HttpWish = {},
  ): Promise<{ status: number; text: string }> {
    this.#underWay += 1;
    const send = () =>
      new Promise<{ status: number; text: string }>((resolve, reject) => {
        const outgoing = request(url, { method, agent: this.#agent, headers }, (answer) => {
          void textOf(answer).then((text) => resolve({ status: answer.statusCode ?? 0, text }), reject);
        });
        outgoing.on('error', reject).end(body);
      });
    const answered = this.#turn.then(send);
    this.#turn = answered.catch(() => {});
    return answered.finally(() => {
      this.#underWay -= 1;
    });
  }
}

interface HttpWish {
  method?: string;
  headers?: Record<string, string>;
  body?: string;
}

async function textOf(answer: IncomingMessage): Promise<string> {
  let text = '';
  for await (const piece of answer.setEncoding('utf8')) text += piece;
  return text;
}
