import { cpSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { openMirror } from '../../src/app/mirror.ts';
import { compileSpellings } from '../../src/orders/merging/field-aliases.ts';
import type { IncomingEntry, OrderReading } from '../../src/orders/merging/order.ts';
import { readOrderText } from '../../src/orders/merging/order-reader.ts';
import { FakeClock } from '../support/fake-clock.ts';
import { sampleNotification } from '../support/order-samples.ts';
import { invoke } from './invoke.ts';

const ROOT = mkdtempSync(join(tmpdir(), 'tillsync-events-'));
const TEMPLATE = join(ROOT, 'template');
const TUESDAY = Date.UTC(2026, 0, 6, 15);
const DAY_MS = 86_400_000;
const MAPPING = '{"order_id":["bestellnummer"],"customer_email":["clientMail"]}';
const IDS = [1, 2].map((number) => String(sampleNotification(number).internalOrderId));

function webhook(receivedMs: number, sent: Record<string, unknown>): IncomingEntry {
  const raw = JSON.stringify(sent);
  const reading = readOrderText(raw, compileSpellings()) as OrderReading | { unreadable: string };
  if ('unreadable' in reading) {
    const { unreadable: reason } = reading;
    const unreadable = { source: 'webhook' as const, receivedAtMs: receivedMs, reason, payload: raw };
    return { kind: 'unreadable', unreadable };
  }
  return { kind: 'order', observation: { source: 'webhook', observedAtMs: receivedMs, raw, reading } };
}

beforeAll(async () => {
  const mirror = openMirror({ path: join(TEMPLATE, 'mirror.db'), clock: new FakeClock(TUESDAY) });
  const { user: _user, ...anonymous } = sampleNotification(1);
  await mirror.save([webhook(TUESDAY, { ...anonymous, clientMail: 'zoë@example.com' })]);
  await mirror.save([webhook(TUESDAY + DAY_MS, { ...anonymous, status: 'ready' })]);
  await mirror.save([webhook(TUESDAY + DAY_MS, sampleNotification(2))]);
  await mirror.save([webhook(TUESDAY, { bestellnummer: 'x-9', status: 'ready', amountToPay: 5 })]);
  await mirror.save([webhook(TUESDAY, { colour: 'red' })]);
  await mirror.close();
});
afterAll(() => rmSync(ROOT, { recursive: true, force: true }));

/** Returns a function that runs commands on orders on a new copy of the template mirror. */
function shop() {
  const storage = mkdtempSync(join(ROOT, 'shop-'));
  cpSync(TEMPLATE, storage, { recursive: true });
  const env = {
    TILLSYNC_CONFIG: join(import.meta.dirname, '../../config/tillsync.sample.toml'),
    TILLSYNC_PLATFORM_BASE_URL: 'https://platform.test',
    TILLSYNC_STORAGE_DIRECTORY: storage,
  };
  return async (words: string, fields = '') => {
    const result = await invoke(['order', ...words.split(' ')], {
      env: fields === '' ? env : { ...env, TILLSYNC_ORDERS_FIELDS: fields },
    });
    return { ...result, document: words.includes('--json') ? JSON.parse(result.stdout) : undefined };
  };
}

describe('order received and show', () => {
  test('tell what came on a day of the company, by order and by source', async () => {
    const events = shop();
    const ids = async (words: string) =>
      (await events(`received --json ${words}`)).document.received.map(({ id }: { id: string }) => id);
    expect(await ids('--since 2026-01-06 --until 2026-01-06')).toEqual(['q2', 'q1', 'p1']);
    expect(await ids('--since 2026-01-06T12:00:01')).toEqual(['o3', 'o2']);
    expect(await ids(`--order ${IDS[0]}`)).toEqual(['o2', 'p1']);
    expect(await ids('--quarantined --limit 1')).toEqual(['q2']);
    expect(await ids('--source poll')).toEqual([]);
    const text = await events(`received --order ${IDS[0]}`);
    expect(text.stdout.split('\n')[1]).toMatch(
      new RegExp(`^o2 .*2026-01-07 12:00:00.*${IDS[0]} .*ready .*newest$`),
    );
  });

  test('received a payload as it came, and say where to look when it is not there', async () => {
    const events = shop();
    expect((await events('received q2 --payload')).stdout).toBe('{"colour":"red"}');
    expect((await events('received p1 --json')).document).toMatchObject({
      orderId: IDS[0],
      status: 'pending',
    });
    const gone = await events('received p7');
    expect(gone.code).toBe(1);
    expect(gone.stderr).toMatch(/tillsync .*--config \S+ order received/);
  });
});

describe('order replay', () => {
  test('shows first what a new mapping would change, then changes it, and the second time nothing', async () => {
    const events = shop();
    const dry = await events('replay --all --dry-run --json', MAPPING);
    expect(dry.code).toBe(3);
    expect(dry.document).toMatchObject({ orders: 3, created: 1, changed: 1, released: 1, isComplete: true });
    expect(dry.document.stay).toMatchObject([{ quarantineId: 2 }]);
    const field = { field: 'customerEmail', before: null, after: 'zoë@example.com' };
    expect(dry.document.changes.at(-1)).toMatchObject({ orderId: IDS[0], fields: [field] });

    const first = await events('replay --all --json', MAPPING);
    expect(first.document).toEqual({ ...dry.document, dryRun: false });
    const after = await events('replay --all --json', MAPPING);
    expect(after.document).toMatchObject({ created: 0, changed: 0, unchanged: 3, released: 0, changes: [] });
    const received = (await events('received --json')).document.received as { id: string; orderId: string }[];
    expect(received.find(({ orderId }) => orderId === 'x-9')).toMatchObject({ id: 'o4' });
    expect(received.find(({ id }) => id === 'q1')).toBeUndefined();
  });

  test('takes what is asked for alone, and says in words what it did', async () => {
    const events = shop();
    const none = await events(`replay --order ${IDS[1]}`, MAPPING);
    expect(none).toMatchObject({ code: 0 });
    expect(none.stdout).toBe('1 payloads of 1 orders were read again: 0 orders new, 0 changed.\n');
    const one = await events('replay --since 2026-01-06T11:59 --until 2026-01-06T12:01', MAPPING);
    expect(one.stderr).toContain(`${IDS[0]}: customerEmail null -> "zoë@example.com"`);
    expect(one.stdout).toContain('3 payloads of 2 orders were read again: 1 orders new, 1 changed.');
    expect(one.stdout).toContain('q2 stays: No order id was found');
    expect((await events('replay --quarantined --order x-9 --json', MAPPING)).document).toMatchObject({
      orders: 0,
      stay: [],
    });
  });

  test.each(['replay', 'replay --all --order x', 'list --since yesterday', 'replay --source fax'])(
    '%s is a wrong use',
    async (words) => {
      expect((await shop()(words)).code).toBe(2);
    },
  );
});
