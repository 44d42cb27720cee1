import { afterAll, beforeAll, expect, test } from 'vitest';
import { changesAnswer } from '../../src/api/change-schemas.ts';
import { openWorkplace, until, type Workplace } from '../support/workplace.ts';

let place: Workplace;
let url: string;

beforeAll(async () => {
  place = await openWorkplace(23);
  place.env.TILLSYNC_LOCAL_API_KEY = 'the-key-of-all-rights';
  url = (await place.run()).localUrl;
  await until('the catalogue is read', async () => {
    const { body } = await call('GET', '/v1/status');
    return body.freshness.some((each: { subject: string; state: string }) => {
      return each.subject === 'catalog.sweep' && each.state === 'ok';
    });
  });
});
afterAll(() => place.close());

async function call(method: string, path: string, body?: string, key = 'the-key-of-all-rights') {
  const answer = await fetch(`${url}${path}`, {
    method,
    headers: { 'x-api-key': key, ...(body !== undefined && { 'content-type': 'text/csv' }) },
    ...(body !== undefined && { body }),
  });
  // biome-ignore lint/suspicious/noExplicitAny: tests look into answers freely
  return { status: answer.status, body: (await answer.json()) as any };
}

/** Returns a CSV line for each stock of branch sub-1 as the platform has it. */
const stocks = () =>
  place.sandbox.control
    .products()
    .flatMap(({ children }) => children)
    .flatMap(({ sku, stocks }) =>
      stocks
        .filter(({ subsidiaryId }) => subsidiaryId === 'sub-1')
        .map(({ qty }) => ({ sku, line: `${sku},${qty}` })),
    );
const csv = (lines: readonly string[]) => ['sku,qty', ...lines].join('\n');
const without = (sku: number) => stocks().flatMap((each) => (each.sku === sku ? [] : [each.line]));
const onPlatform = (sku: number) => place.sandbox.control.stockOf(sku, 'sub-1');
const changes = async () => (await call('GET', '/v1/outbox')).body.changes;

test('a whole inventory by HTTP does what push --full does, and a dry run only tells', async () => {
  const [first, second] = stocks();
  if (!first || !second) throw new Error('the shop has too few stocks');
  const lines = without(first.sku).filter((line) => !line.startsWith(`${second.sku},`));
  const body = csv([...lines, `${second.sku},77`, '999999,4']);
  const query = 'full=true&branch=sub-1&missing=zero';

  const before = await changes();
  const told = await call('POST', `/v1/stock?${query}&dryRun=true`, body);
  expect(changesAnswer.parse(told.body)).toEqual(told.body);
  expect(told).toMatchObject({
    status: 200,
    body: {
      ...{ total: lines.length + 2, pending: 2, held: 0, rejected: 0 },
      results: [
        { index: lines.length, preview: { values: { qty: 77 }, verdict: 'send' } },
        { index: lines.length + 2, unnamed: `sku ${first.sku} in sub-1`, preview: { values: { qty: 0 } } },
      ],
      inventory: { ...{ branch: 'sub-1', different: 1, missing: 1, unclear: 0 }, hold: null },
    },
  });
  expect(told.body.inventory.unknownSample).toContain('sku 999999');
  expect(await changes()).toEqual(before);
  const done = await call('POST', `/v1/stock?${query}&wait=20`, body);
  expect(done).toMatchObject({
    status: 200,
    body: {
      results: [
        { outcome: { state: 'done' } },
        { unnamed: `sku ${first.sku} in sub-1`, outcome: { state: 'done' } },
      ],
      inventory: { different: 1, missing: 1 },
    },
  });
  expect([onPlatform(first.sku), onPlatform(second.sku)]).toEqual([0, 77]);
});

test('an inventory that empties the shop is held, and what cannot be asked is refused by name', async () => {
  const [only] = stocks();
  const empty = await call('POST', '/v1/stock?full=true&branch=sub-1&missing=zero', csv([only?.line ?? '']));
  expect(empty.body).toMatchObject({
    inventory: { hold: expect.stringContaining('guard.missing_share_max') },
  });
  expect(empty.body.results.length).toBeGreaterThan(5);
  expect(new Set(empty.body.results.map(({ state }: { state: string }) => state))).toEqual(new Set(['held']));

  const refused = async (query: string) => {
    const { status, body } = await call('POST', `/v1/stock?${query}`, csv(['1001,1']));
    return [status, body.error.code, body.error.message];
  };
  const count = (await changes()).length;
  expect(await refused('full=true&branch=B77')).toEqual([
    ...[400, 'usage', 'branch: found "B77", which names no configured branch.'],
  ]);
  expect(await refused('full=true&branch=B2')).toEqual([
    ...[400, 'usage', expect.stringContaining('subsidiary_id')],
  ]);
  expect(await refused('missing=zero')).toEqual([400, 'usage', expect.stringContaining('whole inventory')]);
  expect(await refused('full=yes')).toEqual([400, 'usage', expect.stringContaining('full: true or false')]);
  expect(await refused('dryRun=true&wait=3')).toEqual([400, 'usage', expect.stringContaining('dryRun')]);
  const many = csv(Array.from({ length: 20_001 }, (_, i) => `${i},1`));
  expect(await call('POST', '/v1/stock?full=true', many)).toMatchObject({
    status: 413,
    body: {
      error: {
        message: 'More than 20000 items came in one request. Nothing was taken.',
        hint: expect.stringContaining('push stock FILE --full'),
      },
    },
  });
  expect((await changes()).length).toBe(count);
});

test('a key without the right is refused by the name of the right', async () => {
  const { stdout } = await place.command('key', 'add', 'prices-only', '--may', 'prices');
  const refused = await call('POST', '/v1/stock?full=true&dryRun=true', csv(['1001,1']), stdout.trim());
  expect(refused).toMatchObject({
    status: 403,
    body: { error: { code: 'forbidden', message: expect.stringContaining('has not the right stock') } },
  });
});
