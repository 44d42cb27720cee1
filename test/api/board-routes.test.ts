import { Agent, request } from 'undici';
import { afterEach, beforeEach, expect, it } from 'vitest';
import { localApi } from '../../src/api/api.ts';
import { boardAnswer, boardRoutes, trendsAnswer } from '../../src/api/board-routes.ts';
import { createLocalServer, type LocalServer } from '../../src/api/server.ts';
import { silentLog } from '../../src/core/log.ts';
import { FakeClock } from '../support/fake-clock.ts';
import { sampleOrder } from './api-samples.ts';

const clock = new FakeClock();
let server: LocalServer;
let dispatcher: Agent;
let url: string;
let asked: unknown[];

beforeEach(async () => {
  asked = [];
  const { items: _, ...order } = sampleOrder('a', 7, 'ready');
  const families = [
    boardRoutes({
      clock,
      source: {
        newestSeq() {
          asked.push('seq');
          return 9;
        },
        board(limits) {
          asked.push(limits);
          return [boardAnswer.shape.orders.element.parse(order)];
        },
        trends(nowMs, hours) {
          asked.push(nowMs);
          return [{ from: 'f', orders: hours, pushed: 0, pushMedianMs: null, pushP95Ms: null }];
        },
      },
    }),
  ];
  const plugins = [localApi({ families, version: '1.0.0' })];
  server = createLocalServer({ host: '127.0.0.1', port: 0, clock, log: silentLog, plugins });
  dispatcher = new Agent();
  url = (await server.listen()).url;
});

afterEach(async () => {
  await server.close();
  await dispatcher.destroy();
});

async function get(path: string) {
  const answer = await request(`${url}/v1${path}`, { dispatcher });
  return (await answer.body.json()) as Record<string, unknown>;
}

it('asks where the feed is before it reads the board, so that nothing falls between', async () => {
  const answer = await get('/board');
  expect(boardAnswer.parse(answer)).toEqual(answer);
  expect(answer).toMatchObject({ newest: 9, orders: [{ orderId: 'a', seq: 7 }] });
  expect(asked).toEqual(['seq', { open: 200, ended: 30 }]);
});

it('works the trends out once for all who look, and anew after a while', async () => {
  const answer = await get('/trends');
  expect(trendsAnswer.parse(answer)).toEqual(answer);
  expect(answer.hours).toMatchObject([{ orders: 24 }]);
  await clock.advance(14_999);
  expect(await get('/trends')).toEqual(answer);
  expect(asked).toHaveLength(1);
  await clock.advance(1);
  expect((await get('/trends')).at).not.toBe(answer.at);
  expect(asked).toHaveLength(2);
});
