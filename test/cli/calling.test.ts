/** Tests src/cli/auth.ts, src/cli/sync.ts, src/cli/webhook.ts and src/cli/run.ts. */

import { mkdtempSync, readdirSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import Database from 'better-sqlite3';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { openMirror } from '../../src/app/mirror.ts';
import { systemClock } from '../../src/core/system-clock.ts';
import { type Sandbox, startSandbox } from '../../src/sandbox/server.ts';
import { seededRandom } from '../support/fake-clock.ts';
import { invoke } from './invoke.ts';
import { tillsync } from './run-process.ts';

const SECRET = 'planted-webhook-secret';
/** Interval of polls, longer than a command runs even on a busy machine. */
const ORDERS_INTERVAL_MS = Math.round(700 * Number(process.env.TILLSYNC_SLOW));
let sandbox: Sandbox;
let directory: string;
let env: Record<string, string>;

beforeEach(async () => {
  const limits = {
    endpointIntervalMs: 20,
    ordersIntervalMs: ORDERS_INTERVAL_MS,
    windowMs: 300_000,
    requestsPerWindow: 1000,
    ordersPerWindow: 100,
  };
  sandbox = await startSandbox({ clock: systemClock, random: seededRandom(11), limits });
  directory = mkdtempSync(join(tmpdir(), 'tillsync-calling-'));
  const file = join(directory, 'config.toml');
  writeFileSync(
    file,
    `[platform]
base_url = "${sandbox.url}"
[storage]
directory = "${directory}"
[webhook]
listen = "127.0.0.1:0"
callback_url = "http://127.0.0.1:9/webhook"
[local]
listen = "127.0.0.1:0"
[orders]
timezone = "America/Santiago"
[limits]
endpoint_interval = "20ms"
orders_interval = "${ORDERS_INTERVAL_MS}ms"`,
  );
  env = { TILLSYNC_CONFIG: file, TILLSYNC_WEBHOOK_SECRET: SECRET };
});

afterEach(async () => {
  expect(sandbox.control.violations()).toEqual([]);
  await sandbox.close();
});

/** Returns a loopback address (of 127.0.0.0/8) that no other process uses, so that all its ports are free. */
const ownLoopback = () =>
  `127.${1 + ((process.pid >> 16) & 0x7f)}.${(process.pid >> 8) & 0xff}.${1 + (process.pid & 0x7f)}`;

const withTokens = () => ({ ...env, TILLSYNC_REFRESH_TOKEN: sandbox.issueTokens().refreshToken });

async function json(words: string[], environment = env, input?: string) {
  const result = await invoke([...words, '--json'], {
    env: environment,
    ...(input !== undefined && { input }),
  });
  expect(result.stdout + result.stderr).not.toMatch(/eyJ[\w-]{8}|planted/);
  return { ...result, document: JSON.parse(result.stdout) };
}

describe('tokens', () => {
  test('are handed over on standard input, never shown, and exchanged', async () => {
    const pair = sandbox.issueTokens();
    const set = await json(['auth', 'set'], env, JSON.stringify(pair));
    expect(set).toMatchObject({ code: 0, document: { state: 'ok', generation: 1 } });
    const refreshed = await json(['auth', 'refresh']);
    expect(refreshed).toMatchObject({ code: 0, document: { state: 'ok', generation: 2 } });
    expect(sandbox.control.deadRefreshUses()).toEqual([]);
  });

  test('take the place of good ones only once the platform has taken them, or untried on demand', async () => {
    await json(['auth', 'set'], env, sandbox.issueTokens().refreshToken);
    const refused = await json(['auth', 'set'], env, 'eyJ-of-nobody');
    expect(refused).toMatchObject({ code: 4, document: { error: { code: 'auth-required' } } });
    const offered = sandbox.issueTokens().refreshToken;
    const taken = await json(['auth', 'set'], env, offered);
    expect(taken).toMatchObject({ code: 0, document: { state: 'ok', generation: 2 } });
    expect((await invoke(['auth', 'set'], { env, input: offered })).stdout).toContain('nothing was changed');
    sandbox.control.setFault({ kind: 'status', status: 503, endpoint: 'token.refresh' });
    const untriable = await json(['auth', 'set'], env, sandbox.issueTokens().refreshToken);
    expect(untriable.document.error).toMatchObject({ hint: expect.stringContaining('--untried') });
    const untried = await json(['auth', 'set', '--untried'], env, sandbox.issueTokens().refreshToken);
    expect(untried).toMatchObject({ code: 0, document: { generation: 3 } });
  });

  test('that are not there or refused end with 4', async () => {
    expect(await json(['sync', 'orders'])).toMatchObject({
      code: 4,
      document: { error: { code: 'auth-required' } },
    });
    const tokens = withTokens();
    sandbox.control.revokeRefreshTokens();
    const refused = await invoke(['sync', 'orders'], { env: tokens });
    expect(refused).toMatchObject({ code: 4, stderr: expect.not.stringContaining('generation') });
    expect(refused.stderr.match(/refuse/g)).toHaveLength(1);
    expect((await json(['auth', 'refresh'], tokens)).code).toBe(4);
    const status = await json(['auth', 'status']);
    expect(status).toMatchObject({
      code: 4,
      document: { state: 'locked-out', lockedOut: { cause: 'refused' } },
    });
    const codes = async () =>
      ((await json(['status'])).document.verdict as { findings: { code: string }[] }).findings.map(
        ({ code }) => code,
      );
    expect(await json(['auth', 'set'], env, 'eyJ-of-nobody')).toMatchObject({ code: 4 });
    const { state, generation, savedAt, lockedOut } = status.document;
    expect((await json(['auth', 'status'])).document).toMatchObject({
      state,
      generation,
      savedAt,
      lockedOut,
    });
    expect(await codes()).toContain('auth.locked-out');
    const { refreshToken: untried } = sandbox.issueTokens();
    expect(await json(['auth', 'set', '--untried'], env, untried)).toMatchObject({ code: 0 });
    expect(await codes()).not.toContain('auth.locked-out');
    const healed = await invoke(['auth', 'set'], { env, input: sandbox.issueTokens().refreshToken });
    expect(healed).toMatchObject({ code: 0, stderr: 'trying the new tokens\n' });
    expect((await json(['auth', 'status'])).code).toBe(0);
    expect((await json(['status'])).document.alarms).toEqual([]);
  });

  test('are told of before the first start, and nothing is made by asking', async () => {
    expect(await json(['auth', 'status'])).toMatchObject({ code: 4, document: { state: 'none' } });
    expect(readdirSync(directory)).toEqual(['config.toml']);
    await json(['auth', 'set', '--untried'], env, sandbox.issueTokens().refreshToken);
    const told = await invoke(['auth', 'status'], { env });
    expect(told).toMatchObject({ code: 0, stderr: '' });
    expect(told.stdout).toContain('An access token is fetched with the first call');
  });

  test('that were stored untried are tried by a refresh', async () => {
    const state = () => {
      const db = new Database(join(directory, 'mirror.db'), { readonly: true });
      const found = db.prepare("SELECT state FROM freshness WHERE subject = 'auth'").pluck().get();
      db.close();
      return found;
    };
    await json(['auth', 'set', '--untried'], env, sandbox.issueTokens().refreshToken);
    expect(state()).toBe('waiting');
    expect((await json(['auth', 'refresh'])).code).toBe(0);
    expect(state()).toBe('ok');
  });

  test('of another company are refused before anything is asked of the platform, unless that is meant', async () => {
    const own = await invoke(['auth', 'set'], { env, input: sandbox.issueTokens().refreshToken });
    expect(own.stdout).toContain('Company: company-1.');
    const before = (await json(['auth', 'status'])).document;
    const offered = sandbox.control.issueTokens('company-2');
    const calls = sandbox.control.calls().length;
    for (const words of [
      ['auth', 'set'],
      ['auth', 'set', '--untried'],
    ]) {
      const refused = await json(words, env, offered.refreshToken);
      expect(refused).toMatchObject({
        code: 2,
        document: { error: { code: 'usage', message: expect.stringContaining('of company company-2') } },
      });
    }
    expect(sandbox.control.calls()).toHaveLength(calls);
    const { generation, savedAt } = before;
    expect((await json(['auth', 'status'])).document).toMatchObject({ generation, savedAt });
    const moved = await invoke(['auth', 'set', '--other-company'], { env, input: offered.refreshToken });
    expect(moved).toMatchObject({ code: 0, stdout: expect.stringContaining('Company: company-2.') });
    expect(await json(['auth', 'set'], env, sandbox.issueTokens().refreshToken)).toMatchObject({ code: 2 });
    expect(sandbox.control.deadRefreshUses()).toEqual([]);
  });

  test('that are no tokens change nothing', async () => {
    const result = await json(['auth', 'set'], env, 'planted and wrong');
    expect(result).toMatchObject({ code: 2, document: { error: { code: 'usage' } } });
    expect((await invoke(['status'], { env })).code).toBe(1);
  });
});

describe('orders', () => {
  test('are polled and mirrored, and a second poll says why it waits', async () => {
    const tokens = withTokens();
    const order = sandbox.control.createOrder();
    const first = await json(['sync', 'orders'], tokens);
    expect(first).toMatchObject({ code: 0, document: { records: 1, created: 1, unreadable: 0 } });
    const second = await invoke(['sync', 'orders'], { env });
    expect(second.code).toBe(0);
    expect(second.stdout).toMatch(/^1 order of .*: 0 new, 0 changed, 1 as they were\.\nNumbers: \d+\.\n$/);
    expect(second.stderr).toContain('next order poll allowed in ');
    const { document } = await json(['order', 'show', order.internalOrderId]);
    expect(document.order).toMatchObject({ code: order.code, status: order.status });
  });

  test('of given days are asked for, and impossible days refused', async () => {
    const { document } = await json(
      ['sync', 'orders', '--from', '2026-03-01', '--to', '2026-03-02'],
      withTokens(),
    );
    expect(document.window).toEqual({ startDate: '2026-03-01', endDate: '2026-03-02' });
    for (const words of [
      ['--from', '2026-02-30'],
      ['--to', '2026-03-01'],
      ['--from', '2026-03-02', '--to', '2026-03-01'],
      ['--from', '2026-03-02', '--wide'],
    ]) {
      expect((await json(['sync', 'orders', ...words])).code).toBe(2);
    }
  });

  test('that nobody can read end with 3 or 1, wait in quarantine, and are read again', async () => {
    const tokens = withTokens();
    await invoke(['sync', 'orders'], { env: tokens });
    const mirror = openMirror({ path: join(directory, 'mirror.db'), clock: systemClock });
    const items = [{ product: { name: 'Coffee' }, amount: 1 }];
    const createdAt = '2026-03-01T12:00:00Z';
    const payload = JSON.stringify({ bestellnummer: 'x-1', status: 'ready', createdAt, items });
    const reason = 'No order id.';
    await mirror.save(
      [payload, '{"colour":"red"}'].map((text) => ({
        kind: 'unreadable',
        unreadable: { source: 'webhook', receivedAtMs: systemClock.nowMs(), reason, payload: text },
      })),
    );
    await mirror.close();
    expect((await json(['quarantine', 'retry', '--all'])).code).toBe(3);
    const learnt = { ...env, TILLSYNC_ORDERS_FIELDS: '{"order_id":["bestellnummer"]}' };
    const { document, code } = await json(['quarantine', 'retry', '--all'], learnt);
    expect(code).toBe(3);
    expect(document.results).toMatchObject([
      { kept: ['x-1'] },
      { kept: [], unreadable: [expect.any(String)] },
    ]);
    expect((await json(['quarantine', 'list'])).document.quarantine).toHaveLength(1);
    const { stderr } = await invoke(['quarantine', 'retry', '--all'], { env: learnt });
    expect(stderr).toMatch(/^\d+: stays: No order/m);
    expect((await json(['order', 'show', 'x-1'])).code).toBe(0);
    expect((await json(['quarantine', 'retry'])).code).toBe(2);
    expect((await json(['quarantine', 'retry', '99'])).code).toBe(1);

    const [left] = (await json(['quarantine', 'list'])).document.quarantine;
    expect((await json(['quarantine', 'delete'])).code).toBe(2);
    expect((await json(['quarantine', 'delete', '99'])).code).toBe(1);
    expect((await json(['quarantine', 'delete', String(left.quarantineId)])).document.deleted).toEqual([
      left,
    ]);
    expect((await json(['quarantine', 'list'])).document.quarantine).toEqual([]);
    expect(await invoke(['quarantine', 'delete', '--all'], { env })).toMatchObject({
      code: 0,
      stderr: 'Nothing is in quarantine.\n',
    });
    const [noted] = (await json(['audit'])).document.audit;
    expect(noted).toMatchObject({
      action: 'quarantine.delete',
      subject: `entry ${left.quarantineId}`,
      detail: expect.stringMatching(/^from the webhook, received 20/),
    });
  });
});

describe('the webhook', () => {
  test('is set, shown, switched off and given a new secret', async () => {
    const tokens = withTokens();
    expect((await json(['webhook', 'show'], tokens)).document).toMatchObject({
      readable: true,
      webhook: null,
    });
    const set = await json(['webhook', 'set']);
    expect(set.document.webhook).toEqual({
      callbackUrl: 'http://127.0.0.1:9/webhook',
      active: true,
      hasSecret: true,
    });
    expect(sandbox.control.webhook()).toMatchObject({ secret: SECRET });
    expect((await json(['webhook', 'rotate-secret'])).code).toBe(0);
    const rotated = sandbox.control.webhook()?.secret ?? '';
    expect(rotated).not.toBe(SECRET);
    const off = await invoke(['webhook', 'set', '--off', '--url', 'https://shop.test/x'], { env });
    expect(off.stdout).toMatch(/active: +no/);
    expect(sandbox.control.webhook()).toEqual({
      callbackUrl: 'https://shop.test/x',
      active: false,
      secret: rotated,
    });
    const shown = await invoke(['webhook', 'show'], { env });
    expect(shown.stderr).toMatch(/set it with: tillsync .*--config \S+ webhook set/);
    expect(shown.stdout + shown.stderr + off.stdout).not.toContain(rotated);
    // The choice holds until the person makes another one.
    expect(shown.stderr).toContain('Callbacks are off, as you chose');
    const again = await invoke(['webhook', 'set'], { env });
    expect(again.stdout).toMatch(/active: +no/);
    expect((await json(['status'])).document.freshness).toContainEqual(
      expect.objectContaining({ subject: 'orders.webhook', state: 'off' }),
    );
    expect((await invoke(['webhook', 'set', '--on'], { env })).stdout).toMatch(/active: +yes/);
    expect((await json(['webhook', 'set', '--on', '--off'])).code).toBe(2);
  });

  test('loses its secret by choice alone, with a warning, and gets one where there is none', async () => {
    const bare: Record<string, string> = { ...withTokens() };
    delete bare.TILLSYNC_WEBHOOK_SECRET;
    expect((await json(['webhook', 'set'], bare)).code).toBe(0);
    expect(sandbox.control.webhook()?.secret).toHaveLength(43);
    const cleared = await invoke(['webhook', 'set', '--no-secret'], { env: bare });
    expect(cleared).toMatchObject({
      code: 0,
      stderr: expect.stringContaining('anyone who finds the address'),
    });
    expect(sandbox.control.webhook()?.secret).toBe('');
    await json(['webhook', 'set'], bare);
    expect(sandbox.control.webhook()?.secret).toBe('');
    expect((await invoke(['webhook', 'show'], { env: bare })).stderr).toContain(
      'need no secret, as you chose',
    );
    await json(['webhook', 'rotate-secret'], bare);
    expect(sandbox.control.webhook()?.secret).toHaveLength(43);
    expect((await json(['webhook', 'set', '--no-secret', '--keep-secret'], bare)).code).toBe(2);
  });

  test('that the platform does not let read is told from memory', async () => {
    sandbox.control.configure({ webhookReadPath: null });
    await json(['webhook', 'set'], withTokens());
    expect((await json(['webhook', 'show'])).document).toMatchObject({
      readable: false,
      webhook: null,
      registered: 'http://127.0.0.1:9/webhook',
    });
  });

  test('without an address is wrong usage', async () => {
    const bare = { ...env, TILLSYNC_WEBHOOK_CALLBACK_URL: '' };
    expect((await json(['webhook', 'set'], bare)).code).toBe(2);
    expect((await json(['webhook', 'set', '--url', 'shop.test'], bare)).code).toBe(2);
  });
});

describe('the daemon', () => {
  // Runs only with the bulk tests, because the next test, which runs the daemon inside this process, always runs.
  test('runs as a process, hides secrets from its log, and ends with 0 at SIGTERM', {
    tags: ['bulk'],
  }, async () => {
    const tokens = withTokens();
    const order = sandbox.control.createOrder();
    const result = await tillsync(['run'], {
      env: { ...tokens, TILLSYNC_LOG_LEVEL: 'debug' },
      signalWhen: { text: 'tillsync is running', signal: 'SIGTERM' },
    });
    expect(result).toMatchObject({ code: 0, stderr: '' });
    const lines = result.stdout
      .trim()
      .split('\n')
      .map((line) => JSON.parse(line));
    expect(lines.at(-1)).toMatchObject({ level: 'info', msg: 'tillsync has ended' });
    expect(result.stdout).not.toMatch(/eyJ[\w-]{8}|planted/);
    expect(order.code).toBeGreaterThan(0);
  });

  test('is tried by webhook test, without a trace', async () => {
    const listen = `${ownLoopback()}:8787`;
    const own = {
      ...withTokens(),
      TILLSYNC_WEBHOOK_LISTEN: listen,
      TILLSYNC_WEBHOOK_CALLBACK_URL: `http://${listen}/webhook`,
    };
    const down = await json(['webhook', 'test'], own);
    expect(down).toMatchObject({ code: 1, document: { ok: false } });
    const stop = new AbortController();
    const running = invoke(['run'], { env: own, stop });
    await expect
      .poll(async () => (await json(['webhook', 'test'], own)).document, {
        timeout: 60_000 * Number(process.env.TILLSYNC_SLOW),
      })
      .toMatchObject({
        ok: true,
        results: [
          { what: 'local', ok: true, message: 'reached, and a wrong secret is refused' },
          { what: 'local', ok: true, message: 'the secret in use is accepted' },
          { what: 'public', ok: true },
        ],
      });
    expect((await json(['status'], own)).document.running).toBe(true);
    stop.abort();
    expect((await running).code).toBe(0);
    expect((await json(['status'], own)).document.running).toBe(false);
    expect((await json(['quarantine', 'list'])).document.quarantine).toEqual([]);
  });
});

test('with --no-wait a command that would have to wait for its turn ends at once and says until when', async () => {
  // The interval is an hour, so that no machine is too slow to be refused.
  const tokens = { ...withTokens(), TILLSYNC_LIMITS_ORDERS_INTERVAL: '1h' };
  expect((await json(['sync', 'orders', '--no-wait'], tokens)).code).toBe(0);
  const calls = sandbox.control.calls('order.all').length;
  const { code, stderr } = await invoke(['sync', 'orders', '--no-wait'], { env: tokens });
  expect(code).toBe(1);
  expect(stderr).toMatch(/Nothing was asked: next order poll allowed in \d[\dhms ]*\./);
  expect(sandbox.control.calls('order.all')).toHaveLength(calls);
  const { document } = await json(['sync', 'diff', 'orders', '--no-wait'], tokens);
  expect(document.error).toMatchObject({ code: 'rate-limited', retryAfterMs: expect.any(Number) });
  const branches = { ...tokens, TILLSYNC_BRANCHES: '[{"subsidiary_id":"sub-1"}]' };
  const all = await invoke(['sync', 'diff', '--no-wait'], { env: branches });
  expect([all.code, all.stdout]).toEqual([1, expect.stringMatching(/^0 counted stocks: .*\n\d+ products: /)]);
  expect(all.stderr).toMatch(/^orders are compared last: next order poll allowed in \d[\dhms ]*\n/);
  expect(all.stderr).toMatch(/Nothing was asked: next order poll allowed in \d[\dhms ]*\./);
  // Without the option the command waits, and says so once when there is no terminal. It is stopped while it waits.
  const waits = { text: 'waiting: next order poll allowed in', signal: 'SIGINT' } as const;
  const patient = await invoke(['sync', 'orders'], { env: branches, signalWhen: waits });
  expect(patient.code).toBe(130);
  expect(patient.stderr.match(/waiting: next order poll allowed in/g)).toHaveLength(1);
  expect(sandbox.control.calls('order.all')).toHaveLength(calls);
});
