import { gunzipSync } from 'node:zlib';
import { Agent, request } from 'undici';
import { afterEach, beforeEach, expect, it } from 'vitest';
import { pageRoutes } from '../../src/api/page-routes.ts';
import { createLocalServer } from '../../src/api/server.ts';
import { TillsyncError } from '../../src/core/errors.ts';
import { silentLog } from '../../src/core/log.ts';
import { FakeClock } from '../support/fake-clock.ts';

type LocalServer = ReturnType<typeof createLocalServer>;

const files = new Map(
  Object.entries({
    'index.html': '<!doctype html><title>x</title>',
    'main.js': `${'console.log(1);'.repeat(50)}`,
    'main.css': 'a{}',
    'icon.svg': '<svg xmlns="http://www.w3.org/2000/svg"/>',
    'tsconfig.json': '{"secret": true}',
  }).map(([name, text]) => [name, Buffer.from(text)] as const),
);
let server: LocalServer;
let dispatcher: Agent;
let url: string;
let loads = 0;
let failure: Error | undefined;

beforeEach(async () => {
  loads = 0;
  failure = undefined;
  const load = async () => {
    loads += 1;
    if (failure) throw failure;
    return files;
  };
  const plugins = [pageRoutes(load, silentLog)];
  server = createLocalServer({
    host: '127.0.0.1',
    port: 0,
    clock: new FakeClock(),
    log: silentLog,
    plugins,
  });
  dispatcher = new Agent();
  url = (await server.listen()).url;
});

afterEach(async () => {
  await server.close();
  await dispatcher.destroy();
});

async function get(path: string, headers: Record<string, string> = {}) {
  const answer = await request(`${url}${path}`, { dispatcher, headers });
  const bytes = Buffer.from(await answer.body.arrayBuffer());
  return { status: answer.statusCode, headers: answer.headers, bytes };
}

it('serves the page and its parts by their types, and nothing else', async () => {
  const page = await get('/');
  expect(page.status).toBe(200);
  expect(page.headers['content-type']).toBe('text/html; charset=utf-8');
  expect(page.bytes).toEqual(files.get('index.html'));
  expect((await get('/page/main.js')).headers['content-type']).toBe('text/javascript; charset=utf-8');
  expect((await get('/page/icon.svg')).headers['content-type']).toBe('image/svg+xml');
  for (const path of ['/page/tsconfig.json', '/page/', '/page/main.ts', '/page/..%2Findex.html', '/page']) {
    expect((await get(path)).status, path).toBe(404);
  }
  expect(loads).toBe(1);
});

it('lets nothing in from elsewhere, nothing inline, and nobody frame it', async () => {
  for (const path of ['/', '/page/main.js', '/page/icon.svg']) {
    const { headers } = await get(path);
    const policy = String(headers['content-security-policy']);
    expect(policy).toContain("default-src 'none'");
    expect(policy).toContain("script-src 'self'");
    expect(policy).toContain("frame-ancestors 'none'");
    expect(policy).toContain("require-trusted-types-for 'script'");
    expect(policy).not.toMatch(/unsafe|https?:|\*|data:|blob:/);
    expect(headers).toMatchObject({
      'x-frame-options': 'DENY',
      'x-content-type-options': 'nosniff',
      'referrer-policy': 'no-referrer',
      'cross-origin-resource-policy': 'same-origin',
      'cache-control': 'no-cache',
    });
  }
});

it('sends it small, and not again while it is the same', async () => {
  const whole = await get('/page/main.js');
  const small = await get('/page/main.js', { 'accept-encoding': 'br, gzip' });
  expect(small.headers['content-encoding']).toBe('gzip');
  expect(small.bytes.length).toBeLessThan(whole.bytes.length / 2);
  expect(gunzipSync(small.bytes)).toEqual(whole.bytes);
  expect(whole.headers.vary).toBe('accept-encoding');
  const again = await get('/page/main.js', { 'if-none-match': String(whole.headers.etag) });
  expect([again.status, again.bytes.length]).toEqual([304, 0]);
});

it('says what is wrong when the page cannot be had, and tries again', async () => {
  failure = new TillsyncError('not-found', 'The status page is not installed.', { hint: 'Install it.' });
  const answer = await get('/');
  expect(answer.status).toBe(404);
  expect(JSON.parse(answer.bytes.toString()).error.hint).toBe('Install it.');
  failure = undefined;
  expect((await get('/')).status).toBe(200);
});
