/** Tests src/cli/status.ts and src/cli/quarantine.ts. */

import { mkdtempSync, readdirSync, statSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { beforeAll, describe, expect, test } from 'vitest';
import { openMirror } from '../../src/app/mirror.ts';
import { openState } from '../../src/app/state.ts';
import { FakeClock } from '../support/fake-clock.ts';
import { invoke } from './invoke.ts';

const STORAGE = mkdtempSync(join(tmpdir(), 'tillsync-reading-'));
const env = {
  TILLSYNC_CONFIG: join(import.meta.dirname, '../../config/tillsync.sample.toml'),
  TILLSYNC_PLATFORM_BASE_URL: 'https://platform.test',
  TILLSYNC_STORAGE_DIRECTORY: STORAGE,
};
const OBSERVED = Date.UTC(2026, 0, 2, 3, 4, 5);

beforeAll(async () => {
  const clock = new FakeClock(OBSERVED);
  const mirror = openMirror({ path: join(STORAGE, 'mirror.db'), clock });
  const observe = (orderId: string, status: string) => ({
    kind: 'order' as const,
    observation: {
      source: 'webhook' as const,
      observedAtMs: OBSERVED,
      raw: JSON.stringify({ orderId, status }),
      reading: {
        orderId,
        fields: {
          status,
          code: Number(orderId),
          createdAt: `2026-01-0${orderId}T00:00:00.000Z`,
          customerFirstName: 'Zoë\u001b[2J',
        },
        items: [
          {
            productExternalId: 'E-1',
            productName: 'Pizza',
            quantity: 2,
            comment: null,
            unitPrice: 1000,
            baseUnitPrice: 1100,
            productPrice: 2000,
            productBasePrice: 2200,
            modifiers: [],
          },
        ],
      },
    },
  });
  await mirror.save([observe('1', 'pending'), observe('2', 'ready'), observe('1', 'dispatched')]);
  await mirror.save([
    {
      kind: 'unreadable',
      unreadable: { source: 'webhook', receivedAtMs: OBSERVED, reason: 'No order id.', payload: '{"x":1}' },
    },
  ]);
  mirror.health.report('orders.poll', 'failing', 'The platform does not answer.');
  mirror.health.note('orders.stale', 'No orders for an hour.');
  await mirror.close();
  const state = openState({ path: join(STORAGE, 'state.db'), clock });
  state.tokens.save(
    {
      refreshToken: 'planted-refresh',
      accessToken: 'planted-access',
      accessExpiresAtMs: null,
      accessIssuedAtMs: null,
      refreshExpiresAtMs: null,
      clockSkewMs: 0,
    },
    null,
  );
  state.close();
});

async function json(...words: string[]) {
  const result = await invoke([...words, '--json'], { env });
  expect(result.stderr).toBe('');
  return { code: result.code, document: JSON.parse(result.stdout) };
}

describe('orders', () => {
  test('are listed for people, newest first, with nothing that steers the terminal', async () => {
    const { code, stdout, stderr } = await invoke(['order', 'list'], { env });
    expect({ code, stderr }).toEqual({ code: 0, stderr: '' });
    const [head, ...rows] = stdout.trim().split('\n');
    expect(head).toMatch(
      /^CODE +ORDER +STATUS +CREATED \(America\/Santiago\) +DELIVERY +TO PAY +STORE +CUSTOMER$/,
    );
    expect(rows.map((row) => row.trim().split(/ +/).slice(0, 3))).toEqual([
      ['2', '2', 'ready'],
      ['1', '1', 'dispatched'],
    ]);
    expect(rows[0]).toContain('2026-01-01 21:00:00');
    expect(stdout).not.toContain('\u001b');
  });

  test('are one JSON document, filtered', async () => {
    const { document } = await json('order', 'list', '--open', '--limit', '5');
    expect(document.orders).toMatchObject([{ orderId: '2', status: 'ready', items: [{ quantity: 2 }] }]);
    expect((await json('order', 'list', '--status', 'nowhere')).document).toEqual({ orders: [] });
    const before = await json('order', 'list', '--before', '2026-01-02T01:00:00+02:00');
    expect(before.document.orders.map((order: { orderId: string }) => order.orderId)).toEqual(['1']);
    expect((await invoke(['order', 'list', '--before', 'yesterday'], { env })).code).toBe(2);
  });

  test('are shown whole, also as received', async () => {
    const { document } = await json('order', 'show', '1');
    expect(document).toMatchObject({
      order: { orderId: '1', seq: 3 },
      payload: '{"orderId":"1","status":"dispatched"}',
    });
    const people = await invoke(['order', 'show', '1'], { env });
    expect(people.stdout).toMatch(/status: +dispatched\n/);
    expect(people.stdout).toMatch(/address_zip_code: +-\n/);
    expect(people.stdout).toMatch(/QUANTITY.*\n +2 +E-1 +Pizza/);
    const raw = await invoke(['order', 'show', '1', '--payload'], { env });
    expect(raw.stdout).toBe('{"orderId":"1","status":"dispatched"}\n');
  });

  test('that are not there end with 1 and advice', async () => {
    const result = await invoke(['order', 'show', '9', '--json'], { env });
    expect(result.code).toBe(1);
    expect(JSON.parse(result.stdout)).toMatchObject({ error: { code: 'not-found' } });
    expect(result.stderr).toMatch(/tillsync .*--config \S+ order list/);
  });
});

describe('the feed', () => {
  test('is read after a seq', async () => {
    const { document } = await json('order', 'events', '--after', '1');
    expect(document).toMatchObject({
      newestSeq: 3,
      events: [{ seq: 2 }, { seq: 3, previousStatus: 'pending' }],
    });
    const { stdout } = await invoke(['order', 'events', '--limit', '1', '--json', 'lines'], { env });
    expect(
      stdout
        .trim()
        .split('\n')
        .map((line) => JSON.parse(line).seq),
    ).toEqual([3]);
  });

  test('is followed until the process is asked to end', async () => {
    const result = await invoke(['order', 'events', '--follow'], {
      env,
      signalWhen: { text: 'pending -> dispatched', signal: 'SIGINT' },
    });
    expect(result).toMatchObject({ code: 0, stderr: '' });
    expect(result.stdout.trim().split('\n')).toHaveLength(3);
    const endless = await invoke(['order', 'events', '--follow', '--json'], { env });
    expect(endless.code).toBe(2);
  });
});

describe('the quarantine', () => {
  test('is listed and shown', async () => {
    const { document } = await json('quarantine', 'list');
    expect(document.quarantine).toMatchObject([{ source: 'webhook', reason: 'No order id.', bytes: 7 }]);
    const id = String(document.quarantine[0].quarantineId);
    expect((await json('quarantine', 'show', id)).document).toMatchObject({ payload: '{"x":1}' });
    expect((await invoke(['quarantine', 'show', id, '--payload'], { env })).stdout).toBe('{"x":1}');
    expect((await invoke(['quarantine', 'show', '99'], { env })).code).toBe(1);
    expect((await invoke(['quarantine', 'show', 'x'], { env })).code).toBe(2);
  });
});

describe('the state', () => {
  test('is told while nothing runs, what is wrong first', async () => {
    const { stdout, code } = await invoke(['status'], { env });
    expect(code).toBe(0);
    expect(stdout).toMatch(
      /^.+\nAction needed now: tillsync is not running\. .*tillsync --config \S+ run\nAlso: Unreadable messages in quarantine: 1\..*\n\nState when it stopped:\nALARM orders\.stale, raised .*: No orders for an hour\.\n/,
    );
    expect(stdout).toMatch(/orders by polling: +failing, never worked yet.* The platform does not answer\./);
    expect(stdout).toContain('2 orders (1 open), newest event 3, 1 in quarantine');
    const { document } = await json('status');
    expect(document).toMatchObject({
      running: false,
      verdict: { level: 'red', findings: [{ code: 'service.down' }, { code: 'quarantine' }] },
      disk: { freeBytes: expect.any(Number) },
      alarms: [{ key: 'orders.stale' }],
      auth: { state: 'ok', generation: 1 },
      counts: { orders: 2, openOrders: 1, events: 3, quarantine: 1 },
      waits: [],
    });
    expect(stdout + JSON.stringify(document)).not.toContain('planted');
  });

  test('warns of what the configuration asks for in vain', async () => {
    expect((await invoke(['status'], { env })).stderr).toBe('');
    const asked = { ...env, TILLSYNC_STOCK_PLATFORM_DEDUCTS: 'false' };
    expect((await invoke(['status'], { env: asked })).stderr).toMatch(
      /^Warning: stock\.platform_deducts = false needs stock\.hold_back_unbooked = true\./,
    );
  });

  test('is watched until the process is asked to end', async () => {
    const result = await invoke(['status', '--watch'], {
      env,
      signalWhen: { text: 'in quarantine', signal: 'SIGTERM' },
    });
    expect(result.code).toBe(0);
  });

  test('of tokens never shows them', async () => {
    const { document, code } = await json('auth', 'status');
    expect(code).toBe(0);
    expect(document).toMatchObject({ state: 'ok', generation: 1 });
    expect(JSON.stringify(document)).not.toContain('planted');
  });
});

test('looking creates and changes nothing, and before the first start it says so', async () => {
  const before = readdirSync(STORAGE).map((name) => [name, statSync(join(STORAGE, name)).size]);
  await invoke(['status'], { env });
  expect(readdirSync(STORAGE).map((name) => [name, statSync(join(STORAGE, name)).size])).toEqual(before);
  const empty = mkdtempSync(join(tmpdir(), 'tillsync-empty-'));
  const result = await invoke(['order', 'list'], { env: { ...env, TILLSYNC_STORAGE_DIRECTORY: empty } });
  expect(result.code).toBe(1);
  expect(result.stderr).toContain(`There is no mirror in ${empty} yet.`);
  expect(readdirSync(empty)).toEqual([]);
});
