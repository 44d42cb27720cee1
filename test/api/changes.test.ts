/** Tests src/api/change-routes.ts. */

import { connect } from 'node:net';
import { afterEach, describe, expect, it } from 'vitest';
import { changesAnswer } from '../../src/api/change-schemas.ts';
import { TillsyncError } from '../../src/core/errors.ts';
import { API_KEY } from '../support/api-key.ts';
import { settle } from '../support/fake-clock.ts';
import { type ApiRig, type ApiRigOptions, openApi } from './api-rig.ts';

let rig: ApiRig;
afterEach(() => rig?.close());
const open = async (options?: ApiRigOptions) => {
  rig = await openApi(options);
  return rig;
};

describe('handing changes over', () => {
  it('answers for each item, and lets no bad one spoil its neighbours', async () => {
    const { post, state } = await open();
    const body =
      '[{"externalId":"A","qty":1},{"externalId":"B","qty":-1e300},{"qty":1},{"externalId":"C","qty":NaN},7,' +
      '{"externalId":"D","qty":12345678901234567890},{"externalId":"E","qty":2,"amount":1},' +
      '{"__proto__":{},"externalId":"P","qty":1},{"sku":12,"qty":0,"show":false,"subsidiaryId":"s"}]';
    const answer = await post('/v1/stock', body);
    expect(answer.status).toBe(207);
    expect(changesAnswer.parse(answer.body)).toEqual(answer.body);
    expect(answer.body).toMatchObject({ total: 9, pending: 2, held: 0, rejected: 7 });
    expect(answer.body.results.map((each: { index: number }) => each.index)).toEqual([
      0, 1, 2, 3, 4, 5, 6, 7, 8,
    ]);
    expect(answer.body.results.map((each: { code?: string }) => each.code)).toEqual([
      undefined,
      'bad-value',
      'no-product',
      'bad-text',
      'not-an-object',
      'bad-text',
      'unknown-column',
      'unknown-column',
      undefined,
    ]);
    expect(answer.body.results[1]).toMatchObject({ column: 'qty', state: 'rejected' });
    expect(state.taken).toMatchObject([
      [
        { kind: 'stock', change: { externalId: 'A', qty: 1 } },
        { kind: 'stock', change: { sku: '12', qty: 0, show: false, subsidiaryId: 's' } },
      ],
    ]);
  });

  it('says when to come back where the line of a branch is full, and what of it was taken', async () => {
    const { post, state } = await open();
    const details = { hint: 'Again in 20 seconds.', retryAfterMs: 20_000 };
    const full = new TillsyncError('rate-limited', '20000 changes wait.', details);
    const items = Array.from({ length: 501 }, (_, i) => ({ externalId: `A${i}`, qty: 1 }));
    state.take = async () => Promise.reject(full);
    const none = await post('/v1/stock', items);
    expect([none.status, none.headers['retry-after']]).toEqual([429, '20']);
    expect(none.body).toMatchObject({ error: { code: 'rate-limited', message: '20000 changes wait.' } });
    state.take = async (taken) => {
      if (taken.length < 500) throw full;
      return taken.map((_, i) => ({ changeId: i + 1, state: 'pending', message: null, candidates: [] }));
    };
    const some = await post('/v1/stock', items);
    expect([some.status, some.headers['retry-after']]).toEqual([429, '20']);
    expect(some.body.results).toHaveLength(500);
    expect(some.body.error.message).toBe(
      '20000 changes wait. The items before index 500 were taken, the others not.',
    );
  });

  it('takes product changes, and passes on what is held or rejected and why', async () => {
    const { post, state } = await open();
    const candidate = {
      sku: '1',
      productId: 'p',
      subsidiaryId: 's',
      externalId: 'E',
      field: 'extId' as const,
    };
    state.take = async () => [
      { changeId: 7, state: 'held', message: 'The price jumps.', candidates: [] },
      { changeId: 8, state: 'rejected', message: 'Several.', candidates: [candidate] },
    ];
    const answer = await post('/v1/products', [
      { sku: 1, price: 9 },
      { externalId: 'E', description: '' },
    ]);
    expect(answer.status).toBe(207);
    expect(changesAnswer.parse(answer.body)).toEqual(answer.body);
    expect(answer.body).toMatchObject({
      held: 1,
      rejected: 1,
      results: [
        { index: 0, state: 'held', changeId: 7, message: 'The price jumps.' },
        { index: 1, state: 'rejected', changeId: 8, candidates: [candidate] },
      ],
    });
    expect(state.taken[0]).toMatchObject([
      { kind: 'product', change: { sku: '1', price: 9 } },
      { kind: 'product', change: { externalId: 'E', description: '' } },
    ]);
  });

  it('takes CSV and NDJSON, naming lines', async () => {
    const { post } = await open();
    const csv = await post('/v1/stock', 'externalId,qty\nA,1\nB,x\n', {
      'content-type': 'text/csv; charset=utf-8',
    });
    expect(csv.body.results).toMatchObject([
      { index: 0, line: 2, state: 'pending' },
      { index: 1, line: 3, state: 'rejected', column: 'qty' },
    ]);
    const lines = '{"externalId":"A","qty":1}\n{"externalId":"B","qty":2}\n';
    const ndjson = await post('/v1/stock', lines, { 'content-type': 'application/x-ndjson' });
    expect([ndjson.status, ndjson.body.pending]).toEqual([200, 2]);
  });

  it('reads CSV as push does, and names the parameters of a request', async () => {
    const { post } = await open();
    const as = { 'content-type': 'text/csv' };
    const latin = Buffer.from('C\u00f3digo;Cantidad;Bodega\nPi\u00f1a;1.500,5;2\n', 'latin1');
    const read = await post('/v1/stock?decimal=comma&dryRun=false', latin, as);
    expect(read).toMatchObject({ status: 200, body: { pending: 1 } });
    expect(read.body.notes).toEqual([
      'The file is not UTF-8, so it is read as Windows-1252.',
      'Columns that are passed over: "Bodega".',
    ]);
    const unsure = await post('/v1/stock', 'externalId;qty\nA;1.500\nB;1,5\n', as);
    const told = unsure.body.results.map(({ message }: { message: string }) => message).join(' ');
    expect(told).toContain('Say which: decimal=comma, or decimal=point.');
    expect(told).not.toContain('--decimal');
    expect(unsure.body).not.toHaveProperty('notes');
    const utf16 = await post('/v1/stock', Buffer.from('\ufeffexternalId,qty\nA,1\n', 'utf16le'), as);
    expect([utf16.status, utf16.body.error.message]).toEqual([400, expect.stringContaining('not UTF-8')]);
    const bom = await post('/v1/stock', '\ufeffexternalId,qty\nA,1\n', as);
    expect(bom.body).toMatchObject({ pending: 1 });
  });

  it('takes 100,000 items in small transactions and refuses one more whole', { tags: ['bulk'] }, async () => {
    const { post, state } = await open();
    const items = Array.from({ length: 100_000 }, (_, i) => ({ externalId: `P${i}`, qty: i }));
    const answer = await post('/v1/stock', items);
    expect(answer.status).toBe(200);
    expect(answer.body.pending).toBe(100_000);
    expect(answer.body.results.at(-1)).toEqual({ index: 99_999, state: 'pending', changeId: 100_000 });
    expect(Math.max(...state.taken.map((items) => items.length))).toBeLessThanOrEqual(1000);
    expect(
      state.taken.flat().map((each) => each.kind === 'stock' && 'change' in each && each.change.qty),
    ).toEqual(items.map(({ qty }) => qty));
    state.taken = [];
    const more = await post('/v1/stock', [...items, { externalId: 'X', qty: 1 }]);
    expect([more.status, more.body.error.code]).toEqual([413, 'usage']);
    expect(more.body.error.message).toBe('More than 100000 items came in one request. Nothing was taken.');
    expect(state.taken).toEqual([]);
  });

  it('says which items were taken when the disk refuses on the way', async () => {
    const { post, state } = await open();
    let calls = 0;
    state.take = async (items) => {
      calls += 1;
      if (calls === 2) throw new TillsyncError('storage-full', 'The disk is full.', { hint: 'Make room.' });
      return items.map((_, i) => ({ changeId: i, state: 'pending', message: null, candidates: [] }));
    };
    const items = Array.from({ length: 1500 }, (_, i) => ({ externalId: `P${i}`, qty: i }));
    const answer = await post('/v1/stock', items);
    expect(answer.status).toBe(507);
    expect(answer.body.results).toHaveLength(answer.body.pending);
    expect(answer.body.results.length).toBeGreaterThan(0);
    expect(answer.body.error).toMatchObject({ code: 'storage-full', hint: 'Make room.' });
    expect(answer.body.error.message).toContain(`index ${answer.body.results.length} were taken`);
    calls = 1;
    const none = await post('/v1/stock', items);
    expect([none.status, none.body.results]).toEqual([507, undefined]);
  });

  it.each([
    ['{"products":[]}', 'not a JSON array'],
    ['', 'no item'],
    ['  [ ]', 'no item'],
    ['"a"', 'not a JSON array'],
  ])('refuses %j as a whole', async (body, why) => {
    const { post, state } = await open();
    const answer = await post('/v1/stock', body);
    expect(answer.status).toBe(400);
    expect(answer.body.error.message).toContain(why);
    expect(state.taken).toEqual([]);
  });

  it('names the cut of a body that ends in the middle, and takes what is whole', async () => {
    const { post } = await open();
    const answer = await post('/v1/stock', '\uFEFF [{"externalId":"A","qty":1},{"externalId":"B","q');
    expect(answer.body.results).toMatchObject([{ state: 'pending' }, { state: 'rejected', code: 'cut' }]);
  });

  it.each([
    ['application/json', '[{"externalId":"A","qty":1},{"externalId":"'],
    ['application/x-ndjson', '{"externalId":"A","qty":1}\n{"externalId":"'],
  ])('names an item of %s that never ends, long before the body does', async (type, head) => {
    const { post } = await open();
    const body = `${head}${'a'.repeat(10 * 1024 * 1024)}`;
    const answer = await post('/v1/stock', body, { 'content-type': type });
    expect(answer.status).toBe(207);
    expect(answer.body.results).toMatchObject([{ state: 'pending' }, { state: 'rejected', code: 'cut' }]);
    expect(answer.body.results[1].message).toContain('is too long; nothing from it on was read');
  });

  it.each(['text/plain', 'application/x-www-form-urlencoded', 'multipart/form-data; boundary=x'])(
    'refuses %s, which a web page could send unasked',
    async (type) => {
      const { post, state } = await open();
      const answer = await post('/v1/stock', '[{"externalId":"A","qty":1}]', { 'content-type': type });
      expect([answer.status, answer.body.error.code]).toEqual([415, 'usage']);
      expect((await post('/v1/orders/ack', '["a"]', { 'content-type': type })).status).toBe(415);
      expect([state.taken, state.acked]).toEqual([[], []]);
    },
  );

  it.each(['announced', 'found out'])('refuses a body over the limit, %s', async (how) => {
    const { url, state, port } = await open({ changesMaxBytes: 1000 });
    const body = JSON.stringify(Array.from({ length: 2000 }, () => ({ externalId: 'A', qty: 1 })));
    const head = how === 'announced' ? `Content-Length: ${body.length}` : 'Transfer-Encoding: chunked';
    const sent = how === 'announced' ? body : `${body.length.toString(16)}\r\n${body}\r\n0\r\n\r\n`;
    const text = await raw(
      port,
      `POST /v1/stock HTTP/1.1\r\nHost: ${new URL(url).host}\r\nConnection: close\r\nContent-Type: application/json\r\nX-Api-Key: ${API_KEY}\r\n${head}\r\n\r\n${sent}`,
    );
    expect(text).toMatch(/^HTTP\/1\.1 413 /);
    expect(text).toMatch(/More than [\d.]+ MiB came in one request\. Nothing was taken\./);
    expect(state.taken).toEqual([]);
  });

  it('takes nothing of a body whose sender breaks off', async () => {
    const { port, state, post } = await open();
    const socket = connect(port, '127.0.0.1');
    socket.write(
      `POST /v1/stock HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nX-Api-Key: ${API_KEY}\r\nContent-Length: 999\r\n\r\n[{"externalId":"A","qty":1},`,
    );
    await settle(20);
    socket.destroy();
    await settle(20);
    await post('/v1/stock', [{ externalId: 'B', qty: 1 }]);
    expect(state.taken).toMatchObject([[{ kind: 'stock', change: { externalId: 'B', qty: 1 } }]]);
  });

  it('is kept from nobody by those who send slowly', async () => {
    const { post, port } = await open({ handOversMax: 2 });
    const slow = Array.from({ length: 8 }, () => connect(port, '127.0.0.1'));
    for (const socket of slow) {
      socket.write(
        `POST /v1/stock HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\nx-api-key: ${API_KEY}\r\ncontent-length: 99\r\n\r\n[`,
      );
    }
    await settle(20);
    expect((await post('/v1/stock', [{ externalId: 'A', qty: 1 }])).status).toBe(200);
    for (const socket of slow) socket.destroy();
  });

  it('takes hand-overs one after the other, and no more at once than it may', async () => {
    const { post, state } = await open({ handOversMax: 2 });
    const releases: (() => void)[] = [];
    state.take = (items) =>
      new Promise((resolve) => {
        releases.push(() =>
          resolve(items.map(() => ({ changeId: 1, state: 'pending', message: null, candidates: [] }))),
        );
      });
    const first = post('/v1/stock', [{ externalId: 'A', qty: 1 }]);
    while (releases.length < 1) await settle();
    const second = post('/v1/products', [{ externalId: 'A', price: 1 }]);
    let third = await post('/v1/stock', [{ externalId: 'A', qty: 3 }]);
    for (let tries = 0; third.status !== 429 && tries < 3; tries++)
      third = await post('/v1/stock', [{ externalId: 'A', qty: 3 }]);
    expect([third.status, third.headers['retry-after']]).toEqual([429, '1']);
    expect(state.taken).toHaveLength(1);
    releases[0]?.();
    while (releases.length < 2) await settle();
    releases[1]?.();
    expect([(await first).status, (await second).status]).toEqual([200, 200]);
    expect(state.taken.flat().map(({ kind }) => kind)).toEqual(['stock', 'product']);
    state.take = undefined;
    for (let i = 0; i < 5; i++) {
      expect((await post('/v1/stock', [{ externalId: 'A', qty: i }])).status).toBe(200);
      expect((await post('/v1/stock', 'no JSON')).status).toBe(400);
    }
  });
});

function raw(port: number, text: string): Promise<string> {
  const socket = connect(port, '127.0.0.1');
  return new Promise((resolve) => {
    let all = '';
    socket.on('data', (chunk) => {
      all += chunk.toString();
    });
    socket.on('error', () => {});
    socket.on('close', () => resolve(all));
    socket.write(text);
  });
}
