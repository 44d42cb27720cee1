/** Tests src/health/explain.ts. */
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, onTestFinished, test } from 'vitest';
import { openConnection } from '../../src/db/mirror-connection.ts';
import { order, outgoing, product, SEND_ALL } from '../outbox/outbox-fixture.ts';
import { freshMirror } from '../support/fresh-mirror.ts';
import { invoke, unreachedEnv } from './invoke.ts';

const TEA = product('p1', 'Tea', [{ sku: '10', stocks: { s1: ['A', 5], s2: ['A', 7] } }]);

/** Makes a shop whose POS counted ten pieces of tea, after an order for two of them that the POS has not booked. */
function shop() {
  const directory = mkdtempSync(join(tmpdir(), 'tillsync-explain-'));
  const db = openConnection({ path: freshMirror(directory), readonly: false, group: undefined });
  onTestFinished(() => {
    db.close();
    rmSync(directory, { recursive: true, force: true });
  });
  const out = outgoing(db);
  out.sweep([TEA]);
  const send = () => {
    const { callId, items } = out.dispatcher.claim('stock', 100, { ...SEND_ALL, holdBack: true });
    const done = items.map(({ changeId }) => ({ changeId, state: 'done' as const }));
    if (callId !== null) out.dispatcher.settle(callId, done);
  };
  send();
  order(
    out,
    'o1',
    'B1',
    [
      ['A', 2],
      ['none', 1, 'Cup'],
    ],
    'inProcess',
  );
  out.accept('stock', [{ externalId: 'A', qty: 10, subsidiaryId: 's1' }]);
  send();
  const branches = '[{"subsidiary_id":"s1","external_id":"B1"},{"subsidiary_id":"s2","external_id":"B2"}]';
  const env = unreachedEnv(directory, branches);
  const explained = async (...words: string[]) => {
    const { code, stdout, stderr } = await invoke([...words, '--json'], { env });
    return { code, stderr, document: JSON.parse(stdout) };
  };
  const whats = (entries: { what: string }[]) => entries.map(({ what }) => what);
  return { out, send, whats, explained, run: (...words: string[]) => invoke(words, { env }) };
}

test('order explain says of no line that it takes no stock where it takes of several', async () => {
  const { out, send, whats, explained } = shop();
  const skus = ['20', '21'].map((sku) => ({ sku, stocks: { s1: [`C${sku}`, 5] as [string, number] } }));
  out.sweep([TEA, product('p2', 'Combo', skus)]);
  order(out, 'o2', 'B1', [[null, 1, 'Combo']], 'inProcess');
  out.accept('stock', [{ externalId: 'C20', qty: 10, subsidiaryId: 's1' }]);
  send();
  const { document } = await explained('order', 'explain', 'o2');
  expect(whats(document.entries)).toContain('Took 1 of sku 21 in s1; event 2.');
  expect(document.now.join()).not.toContain('takes no stock');
});

test('order explain tells what was heard, what it took, and what is open of it', async () => {
  const { out, send, whats, explained, run } = shop();
  const { document } = await explained('order', 'explain', 'o1');
  expect(whats(document.entries)).toEqual([
    'Heard by a poll: inProcess; event 1.',
    'Took 2 of sku 10 in s1; event 1.',
  ]);
  expect(document.now).toEqual([
    'The POS has not booked it yet.',
    'Line 2 (Cup) has no sku in the catalogue, so it takes no stock.',
    'It is subtracted from the last count of sku 10 in s1, which cannot contain it.',
  ]);

  out.reservations.acknowledge(['o1'], 'http');
  send();
  order(
    out,
    'o1',
    'B1',
    [
      ['A', 1],
      ['none', 1, 'Cup'],
    ],
    'inProcess',
  );
  order(
    out,
    'o1',
    'B1',
    [
      ['A', 1],
      ['none', 1, 'Cup'],
    ],
    'cancel',
  );
  send();
  const after = (await explained('order', 'explain', 'o1')).document;
  expect(whats(after.entries)).toContain('Acknowledged by the POS of store B1, by http.');
  expect(whats(after.entries)).toContain('Gave 1 back to sku 10 in s1; event 2.');
  expect(whats(after.entries)).toContain('Heard by a poll: changed, and still inProcess; event 2.');
  expect(whats(after.entries)).toContain('Gave 1 back to sku 10 in s1; event 3.');
  expect(after.now).toEqual(['Line 2 (Cup) has no sku in the catalogue, so it takes no stock.']);
  expect((await run('order', 'explain', 'o1')).stdout).toMatch(/TIME \(\S+\) +WHAT\n/);
  expect((await run('order', 'explain', 'o9')).code).toBe(1);
});

test('order explain names a callback that would lead back, and who forgot the customer', async () => {
  const { out, explained, whats } = shop();
  const at = '2026-01-10T12:00:00.000Z';
  out.db
    .prepare(
      `INSERT INTO _held_notifications (order_id, status, known_status, digest, received_at, resolved_at, resolution, payload)
       VALUES ('o1', 'pending', 'inProcess', 'd', ?, ?, 'refuted', '{}')`,
    )
    .run(at, at);
  out.db.prepare("UPDATE _orders SET forgotten_at = ? WHERE order_id = 'o1'").run(at);
  out.db
    .prepare(
      "INSERT INTO _audit (at, who, action, subject) VALUES (?, 'cli ana', 'order.forget', 'order o1')",
    )
    .run(at);
  const told = whats((await explained('order', 'explain', 'o1')).document.entries);
  expect(told).toContain(
    'A callback said pending, which contradicts inProcess: held until a poll says which is right.',
  );
  expect(told).toContain('A poll refuted the held pending.');
  expect(told).toContain('Done by cli ana: order.forget.');
  expect(told).toContain('Its customer was forgotten.');
});

test('stock explain adds up to the quantity that is offered', async () => {
  const { out, send, whats, explained, run } = shop();
  out.safety.set({ sku: '10', subsidiaryId: 's1', qty: 1 });
  const { document } = await explained('stock', 'explain', '10', '--branch', 'B1');
  expect(document.stocks).toHaveLength(1);
  const [{ entries, now }] = document.stocks;
  expect(whats(entries)).toEqual([
    'Order o1 took 2. The last count cannot contain it, so it is taken off.',
    'Handed over by http: 10; change 1.',
    expect.stringMatching(/^Change 1 is done\. Sent: 8\. .*not booked: order o1/),
  ]);
  expect(now).toEqual([
    'When the platform was last read or told, it had 8.',
    'Counted by the POS: 10.',
    'Taken off for orders that the count cannot contain: 2.',
    'Kept back as safety stock: 1.',
    'Can be offered: 7.',
    'The platform should have 8 now, so 7 is to be sent.',
  ]);

  out.reservations.acknowledge(['o1'], 'http');
  send();
  const after = (await explained('stock', 'explain', '10')).document.stocks;
  expect(after[0].now.slice(1)).toEqual([
    'Counted by the POS: 10.',
    'Kept back as safety stock: 1.',
    'Can be offered: 9.',
    'The platform should have 9 now, so nothing is to be sent.',
  ]);
  expect(after[1].now).toEqual([
    'When the platform was last read or told, it had 7.',
    'The POS has not counted it, so it is left alone.',
  ]);
  expect(JSON.stringify(after)).not.toContain('are shown');
  for (let qty = 0; qty < 100; qty++) {
    out.accept('stock', [{ externalId: 'A', qty: 20 + qty, subsidiaryId: 's1' }]);
    send();
    out.accept('stock', [{ externalId: 'A', qty: 10, subsidiaryId: 's1' }]);
    send();
  }
  const [long] = (await explained('stock', 'explain', '10')).document.stocks;
  expect(long.now.at(-1)).toBe('Of changes and of orders only the newest 200 are shown.');
  expect(whats(long.entries).filter((what) => what.startsWith('Handed over by'))).toHaveLength(200);
  expect(whats(long.entries).at(-1)).toMatch(/^Change 201 is done\. Sent: 9\./);
  const none = await run('stock', 'explain', '99');
  expect([none.code, none.stderr]).toEqual([1, expect.stringContaining('product show PRODUCT')]);
});

test('stock explain names a change that a guard holds', async () => {
  const { out, explained, whats } = shop();
  const zero = (subsidiaryId: string) => ({ externalId: 'A', qty: 0, subsidiaryId });
  out.accept('stock', [zero('s2'), zero('s1')], { zeroItemsMax: 1 });
  const [{ entries }] = (await explained('stock', 'explain', '10', '--branch', 'B1')).document.stocks;
  expect(whats(entries).at(-1)).toMatch(/^Change 3 is held by the guard /);
});
