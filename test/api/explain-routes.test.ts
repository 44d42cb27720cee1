/** Tests src/api/explain-routes.ts, and what src/health/explain.ts tells at a hub. */

import { expect, it, onTestFinished } from 'vitest';
import type { AccessOptions } from '../../src/api/access.ts';
import { ChangeSignal } from '../../src/api/api.ts';
import { localApi } from '../../src/api/local-api.ts';
import { orderExplanation, stockExplanations } from '../../src/api/schemas.ts';
import { createLocalServer } from '../../src/api/server.ts';
import type { Services } from '../../src/app/services.ts';
import { silentLog } from '../../src/core/log.ts';
import type { Clock } from '../../src/core/time.ts';
import { keyDigest, type Right } from '../../src/db/api-keys.ts';
import { inSpanish } from '../../src/health/speech.ts';
import { openChain } from '../link/chain-rig.ts';
import { product } from '../outbox/outbox-fixture.ts';
import { API_KEY } from '../support/api-key.ts';
import { NO_RECEIVERS } from '../support/no-receivers.ts';

const TEA = product('p1', 'Tea', [{ sku: '10', stocks: { 'sub-1': ['A', 5], 'sub-2': ['A', 7] } }]);

/** Serves the local API of one store. In these tests, each API key is named after its right. */
async function serve(services: Services, clock: Clock, access: AccessOptions = { apiKey: API_KEY }) {
  const plugin = localApi({
    ...access,
    ...{
      services,
      changes: new ChangeSignal(),
      version: '1.2.3',
      receivers: NO_RECEIVERS,
      clock,
      log: silentLog,
    },
  });
  const server = createLocalServer({ host: '127.0.0.1', port: 0, clock, log: silentLog, plugins: [plugin] });
  const { url } = await server.listen();
  onTestFinished(() => server.close());
  return async (path: string, key?: string) => {
    const headers = { connection: 'close', ...(key !== undefined && { 'x-api-key': key }) };
    const answer = await fetch(`${url}/v1${path}`, { headers });
    return { status: answer.status, body: await answer.json() };
  };
}

const whats = ({ entries }: { entries: { what: string }[] }) => entries.map(({ what }) => what);

/** Checks that the page has a Spanish translation of every sentence. */
function expectSpanish({ entries, now }: { entries: { what: string }[]; now: string[] }) {
  for (const text of [...entries.map(({ what }) => what), ...now]) {
    expect(inSpanish(text), text).toBeDefined();
  }
}

it('a hub tells of an order what its branch has got and acknowledged, and the branch itself', async () => {
  const chain = await openChain();
  const { hub, branches, clock } = chain;
  await chain.settle();
  await hub.order(1, 'B1');
  const { order_id: orderId = '' } = hub.rows<{ order_id: string }>('SELECT order_id FROM orders')[0] ?? {};
  const atHub = await serve(hub.services, clock);
  const ask = async (get = atHub) => {
    const { body } = await get(`/orders/${orderId}/explain`);
    const explained = orderExplanation.strict().parse(body);
    expectSpanish(explained);
    return explained;
  };
  const first = await ask();
  const down = (how: string) =>
    expect.stringMatching(new RegExp(`^${how} for branch B1, as its number \\d+\\.$`));
  expect(whats(first)).toContainEqual(down('Written down'));
  expect(first.now).toContainEqual(
    expect.stringMatching(/^Branch B1 reported last at \S+, when it had number \d; this is its number \d\.$/),
  );

  await chain.settle();
  await branches[0].services.outbox.acknowledge([orderId], 'inbox');
  expect((await ask(await serve(branches[0].services, clock))).now).toContain(
    'Its acknowledgement waits to go up to the hub.',
  );
  await clock.advance(30_000);
  await chain.settle();
  const after = await ask();
  expect(whats(after)).toContainEqual(down('Given to nats-server'));
  expect(whats(after)).toContain('Branch B1 handed up that its POS acknowledged it.');
  expect(after.now).toContainEqual(expect.stringMatching(/^Branch B1 has it, as it reported at 2026-/));
  expect((await atHub('/orders/none/explain')).status).toBe(404);
});

it('a hub tells of a stock that the count came up, for each branch or for one', async () => {
  const chain = await openChain();
  const { hub, branches, clock } = chain;
  await hub.sweep([TEA]);
  await chain.settle();
  await branches[0].count('A', 3, 'first');
  await branches[0].follower.hello();
  const get = await serve(hub.services, clock);
  const ask = async (path: string) => {
    const { stocks } = stockExplanations.strict().parse((await get(path)).body);
    for (const each of stocks) expectSpanish(each);
    return stocks;
  };
  expect((await ask('/stock/10/explain?branch=B1'))[0]?.now.at(-1)).toMatch(
    /^Waiting at branch B1 for the hub, as it reported at \S+: 1\.$/,
  );
  await chain.settle();
  const [one, two, ...more] = await ask('/stock/10/explain');
  expect([one?.subsidiaryId, two?.subsidiaryId, more]).toEqual(['sub-1', 'sub-2', []]);
  expect(whats(one ?? { entries: [] })[0]).toMatch(/^The count of branch B1 came up: 3; change \d+\.$/);
  expect(two?.now).toContain('The POS has not counted it, so it is left alone.');
  expect(await ask('/stock/10/explain?branch=sub-2')).toHaveLength(1);
  expect((await get('/stock/11/explain')).status).toBe(404);
  expect((await get('/stock/10/explain?branch=B9')).status).toBe(400);
});

it('a key needs the right to see orders, or stocks, or the screen', async () => {
  const { hub, clock } = await openChain();
  await hub.sweep([TEA]);
  const keys = (['orders', 'stock', 'screen', 'prices'] as const).map((name) => ({
    name,
    may: [name] as readonly Right[],
    madeAt: '2026-01-01T00:00:00.000Z',
    withdrawnAt: null,
    digest: keyDigest(name, 'utf8'),
  }));
  const namedKeys = { find: (digest: Buffer) => keys.find((key) => key.digest.equals(digest)) };
  const get = await serve(hub.services, clock, { apiKey: 'all', namedKeys });
  const statuses = async (path: string) =>
    Promise.all(
      [...keys.map(({ name }) => name), undefined].map(async (key) => (await get(path, key)).status),
    );
  expect(await statuses('/stock/10/explain')).toEqual([403, 200, 200, 403, 401]);
  expect(await statuses('/orders/none/explain')).toEqual([404, 403, 404, 403, 401]);
});
