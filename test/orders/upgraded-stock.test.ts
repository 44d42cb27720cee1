import { mkdtempSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, onTestFinished, test } from 'vitest';
import { openConnection } from '../../src/db/mirror-connection.ts';
import { order, outgoing } from '../outbox/outbox-fixture.ts';
import { oldStockMirror } from './old-stock-mirror.ts';

const HOLDING = { skipUnchanged: true, holdBack: true, sendAsIs: false };

test('a store that holds back unbooked stock goes on after the upgrade where it was', () => {
  const path = join(mkdtempSync(join(tmpdir(), 'tillsync-old-stock-')), 'mirror.db');
  oldStockMirror(path, 6);
  const db = openConnection({ path, readonly: false, group: undefined });
  onTestFinished(() => {
    db.close();
  });
  const out = outgoing(db);
  expect(out.calls.reclaim()).toBe(1);
  const send = () => {
    const { callId, items } = out.calls.claim('stock', 100, HOLDING);
    if (callId !== null) {
      out.calls.settle(
        callId,
        items.map(({ changeId }) => ({ changeId, state: 'done' })),
      );
    }
    return Object.fromEntries(items.map(({ target, body }) => [target, 'qty' in body && body.qty]));
  };
  const sent = send();
  expect(sent).toMatchObject({ 'sku:11@s1': 11, 'sku:12@s1': 10, 'sku:14@s1': 14 });
  // Sku 10 may be sent once more, but only with the quantity that was sent before. The held count of sku 13 is not
  // sent.
  expect(sent['sku:10@s1'] ?? 8).toBe(8);
  expect(sent).not.toHaveProperty('sku:13@s1');
  expect(send()).toEqual({});

  out.reservations.acknowledge(['o10', 'o12'], 'http');
  expect(send()).toEqual({ 'sku:10@s1': 10, 'sku:12@s1': 12 });
  order(out, 'o10', 'B1', [['E10', 2]], 'cancel');
  const [held] = out.queries.list({ state: 'held', limit: 1 });
  out.decisions.release({ changeId: held?.changeId ?? 0 });
  expect(send()).toEqual({ 'sku:10@s1': 10, 'sku:13@s1': 0 });
});
