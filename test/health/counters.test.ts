import { expect, it } from 'vitest';
import { Counters, measuredTransport } from '../../src/health/counters.ts';
import { FakeClock } from '../support/fake-clock.ts';

it.each([
  [200, 'ok'],
  [401, 'unauthorized'],
  [403, 'forbidden'],
  [404, 'client_error'],
  [429, 'rate_limited'],
  [502, 'server_error'],
])('measuredTransport counts an answer of %i as %s', async (status, outcome) => {
  const added: unknown[] = [];
  const { callSeconds } = new Counters();
  const counters = { callSeconds, calls: { add: (_by: number, labels: unknown) => added.push(labels) } };
  const answered = {
    send: async () => ({ status, headers: {}, bytes: new Uint8Array() }),
    close: async () => {},
  };
  const transport = measuredTransport(answered as never, counters as never, new FakeClock());
  await transport.send({ endpoint: 'order.all' } as never);
  expect(added).toEqual([{ endpoint: 'order.all', outcome }]);
});
