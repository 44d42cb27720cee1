import { writeFileSync } from 'node:fs';
import path from 'node:path';
import Database from 'better-sqlite3';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { commandOrigin } from '../../src/app/installation.ts';
import { openWorkplace, type Workplace } from '../support/workplace.ts';
import { commandsAt } from './invoke.ts';

const ANA = 'cli root (sudo by ana)';
let place: Workplace;
let at: ReturnType<typeof commandsAt>;

beforeAll(async () => {
  place = await openWorkplace(47);
  at = commandsAt(place, ANA);
  expect((await at.run(['sync', 'catalog'])).code).toBe(0);
});
afterAll(() => place.close());

/** Returns the audit entries, newest first. */
async function audited(...words: string[]) {
  const { document } = await at.json(['audit', ...words]);
  return document.audit as { who: string; action: string; subject: string; detail: string | null }[];
}

describe('who did it', () => {
  test('a command tells its user, and whoever used sudo', () => {
    const user = commandOrigin({});
    expect(user).toMatch(/^cli [\w-]+$/);
    expect(commandOrigin({ SUDO_USER: 'ana' })).toBe(`${user} (sudo by ana)`);
    expect(commandOrigin({ SUDO_USER: 'ana\n\u001b[2J' })).toBe(user);
  });

  test('each change carries who handed it over, and from which file', async () => {
    const file = path.join(place.directory, 'counts of today.csv');
    writeFileSync(file, 'externalId,qty\nA-1001-1,3\n');
    await at.run(['push', 'stock', file]);
    await at.run(['push', 'stock', '-', '--format', 'csv'], 'externalId,qty\nLATER-2,3\n');
    await at.run(['product', 'set', '--sku', '1001', '--price', '4321']);
    const { document } = await at.json(['outbox', 'list']);
    expect(document.changes.map(({ origin }: { origin: string }) => origin)).toEqual([
      ANA,
      `${ANA}, standard input`,
      `${ANA}, counts of today.csv`,
    ]);
    expect((await at.run(['outbox', 'list'])).stdout).toMatch(/BY .*\n.*cli root \(sudo by ana\)/);
  });

  test('a product tells its last changes with who handed them over', async () => {
    const { document } = await at.json(['product', 'show', '--sku', '1001']);
    expect(document.changes).toMatchObject([
      { body: { price: 4321 }, origin: ANA },
      { body: { qty: 3 }, origin: `${ANA}, counts of today.csv` },
    ]);
    expect((await at.run(['product', 'show', '--sku', '1001'])).stdout).toContain('price 4321');
  });

  test('the newer word for a stock that waits is that of its own hand-over', async () => {
    const bea = commandsAt(place, 'cli bea');
    await bea.run(['stock', 'set', '--external-id', 'A-1001-1', '--qty', '4']);
    const { document } = await at.json(['outbox', 'list', '--target', 'A-1001-1']);
    expect(document.changes).toMatchObject([{ body: { qty: 4 }, origin: 'cli bea', replaced: 1 }]);
  });
});

describe('what operators did', () => {
  test('decisions about changes', async () => {
    const { document } = await at.json(['outbox', 'list']);
    const [price, rejected] = document.changes as { changeId: number }[];
    expect((await at.run(['outbox', 'discard', `${price?.changeId}`])).code).toBe(0);
    expect((await at.run(['outbox', 'discard', '999'])).code).toBe(1);
    await at.run(['outbox', 'retry', `${rejected?.changeId}`]);
    const discarded = (await audited()).find(({ action }) => action === 'outbox.discard');
    expect(discarded).toMatchObject({ who: ANA, subject: `change ${price?.changeId}` });
    expect(discarded?.detail).toMatch(/^product .*price 4321$/);
    expect((await audited()).filter(({ subject }) => subject === 'change 999')).toEqual([]);
  });

  test('acknowledgements by command, tokens, webhook and wide polls', async () => {
    await at.run(['order', 'ack', 'ord-1', 'ord-2']);
    const { refreshToken } = place.sandbox.issueTokens();
    expect((await at.run(['auth', 'set'], refreshToken)).code).toBe(0);
    expect((await at.run(['webhook', 'set', '--url', 'https://shop.example/in?key=hidden'])).code).toBe(0);
    expect((await at.run(['webhook', 'rotate-secret'])).code).toBe(0);
    expect((await at.run(['sync', 'orders'])).code).toBe(0);
    expect((await at.run(['sync', 'orders', '--from', '2026-03-01'])).code).toBe(0);
    const found = await audited('--limit', '5');
    expect(found).toMatchObject([
      { action: 'sync.orders', subject: '2026-03-01 to 2026-03-01' },
      { action: 'webhook.rotate-secret', subject: new URL(place.config.webhook.callbackUrl).host },
      { action: 'webhook.set', subject: 'shop.example', detail: 'on, with its secret' },
      { action: 'auth.set', subject: 'tokens', detail: 'the platform took them' },
      { action: 'order.ack', subject: '2 orders', detail: 'ord-1, ord-2' },
    ]);
    expect(found.every(({ who }) => who === ANA)).toBe(true);
    const all = JSON.stringify(await audited());
    for (const secret of [refreshToken, place.env.TILLSYNC_WEBHOOK_SECRET, 'hidden']) {
      expect(all).not.toContain(secret);
    }
  });

  test('is told since a day, as a table, and nothing of it twice', async () => {
    expect(await audited('--since', '2199-01-01')).toEqual([]);
    expect((await at.run(['audit', '--since', '2199-01-01'])).stderr).toBe('Nothing was noted.\n');
    expect((await at.run(['audit'])).stdout).toMatch(/^WHEN \(America\/Santiago\) +WHO +DID +ON WHAT/);
    const db = new Database(path.join(place.storage, 'mirror.db'), { readonly: true });
    const count = db.prepare('SELECT count(*) FROM _audit').pluck().get();
    db.close();
    expect(await audited()).toHaveLength(Number(count));
  });
});
