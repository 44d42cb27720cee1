import fc from 'fast-check';
import { expect, it } from 'vitest';
import { parseLossless } from '../../src/core/json-records.ts';
import { compileSpellings } from '../../src/orders/field-aliases.ts';
import { readOrderText } from '../../src/orders/order-reader.ts';
import { mergeOrder } from '../../src/orders/order-rows.ts';
import { readChangeFile } from '../../src/outbox/change-file.ts';
import { GUARDS_OFF } from '../../src/outbox/guards.ts';
import { readProduct } from '../../src/platform/schemas.ts';
import { runsOf } from '../support/seed.ts';
import { outgoing, SEND_ALL, tempMirror } from './outbox-fixture.ts';
import { pos, tempInbox } from './temp-inbox.ts';

const SPELLINGS = compileSpellings();
const BRANCH = [{ subsidiaryId: '0001', externalId: 'Ñ-01' }];

/** Ids that lose something wherever a way takes a text for a number, a word or another spelling. */
const tricky = fc.constantFrom(
  ...['0042', '42', '42.0', '+42', '-0', '1e5', '1E5', '0x10', '0b1', '.5', '1_000', '1,5', '1.990', '1 000'],
  ...[
    '9007199254740993',
    '12345678901234567890',
    '00000000000000000000',
    'NaN',
    'Infinity',
    'null',
    'true',
    'undefined',
  ],
  ...[
    'abc-7',
    'ABC-7',
    'Abc-7',
    'ñ',
    'n\u0303',
    'É',
    'ß',
    'İ',
    'a  b',
    "O'Brien",
    '"x"',
    'a""b',
    'a,b',
    'a;b',
    'a\tb',
  ],
  ...[
    'a\nb',
    'a\r\nb',
    '\\',
    '%',
    '%41',
    '__proto__',
    'constructor',
    '[]',
    '{}',
    '=1+1',
    '😀',
    '\u200b7',
    '2026-11-28',
  ],
);
const id = fc
  .oneof(
    tricky,
    fc.string({ unit: 'grapheme', minLength: 1, maxLength: 20 }),
    fc.bigInt({ min: 0n, max: 10n ** 25n }).map(String),
  )
  .filter((text) => text.trim() === text && text !== '' && text.isWellFormed() && !/[\0\uFFFD]/.test(text));

const encode = (text: string) => [new TextEncoder().encode(text)];
const quoted = (text: string) => `"${text.replaceAll('"', '""')}"`;

it('loses no digit, blank, case or sign of an id from the platform to the mirror and back', () => {
  const db = tempMirror();
  db.pragma('synchronous = OFF');
  fc.assert(
    fc.property(id, id, id, fc.boolean(), (orderId, externalId, sku, isBare) => {
      db.exec('DELETE FROM orders; DELETE FROM order_items; DELETE FROM outbox; DELETE FROM branch_products');
      db.exec('DELETE FROM integrations; DELETE FROM stocks; DELETE FROM skus; DELETE FROM products');
      // A whole number may come without quotes; one with zeros in front is no JSON number.
      const json = (text: string) => (isBare && /^(0|[1-9]\d*)$/.test(text) ? text : JSON.stringify(text));
      const sent = `{"internalOrderId": ${json(orderId)}, "status": "ready", "store": {"externalId": ${json(externalId)}},
        "items": [{"amount": 1, "product": {"externalId": ${json(externalId)}}}]}`;
      const reading = readOrderText(sent, SPELLINGS);
      if ('unreadable' in reading) throw new Error(reading.unreadable);
      mergeOrder(db, { source: 'webhook', observedAtMs: 0, raw: sent, reading }, SPELLINGS, null);
      const told =
        'SELECT order_id, store_external_id, product_external_id FROM orders JOIN order_items USING (order_id)';
      expect(db.prepare(told).raw().all()).toEqual([[orderId, externalId, externalId]]);

      const listed =
        parseLossless(`{"id": ${json(orderId)}, "name": "Tea", "children": [{"sku": ${json(sku)}, "price": 1,
        "stocks": [{"subsidiaryId": "0001", "qty": 5}], "integrations": [
          {"subsidiaryId": "0001", "productIdPosA": ${json(sku)}, "extId": ${json(externalId)}}]}]}`);
      const out = outgoing(db, BRANCH);
      const record = readProduct(listed)?.record;
      if (!record) throw new Error('No product.');
      out.sweep([record]);
      const mirrored =
        'SELECT s.product_id, sku, product_id_pos_a, ext_id FROM skus s JOIN integrations USING (sku)';
      expect(db.prepare(mirrored).raw().all()).toEqual([[orderId, sku, sku, externalId]]);

      out.accept('stock', [{ externalId, qty: 3, subsidiaryExternalId: 'Ñ-01' }]);
      const { items } = out.calls.claim('stock', 9, SEND_ALL);
      expect(items.map(({ body }) => body)).toEqual([{ externalId, subsidiaryId: '0001', qty: 3 }]);
      expect(out.reservations.acknowledge([orderId], 'http')).toMatchObject([{ orderId, state: 'new' }]);
      expect(db.prepare('SELECT order_id FROM order_acks').pluck().all()).toEqual([orderId]);
      db.exec('DELETE FROM order_acks; DELETE FROM stock_counts');
    }),
    { numRuns: runsOf(400) },
  );
});

it('reads the same id in a file of CSV, JSON and NDJSON', async () => {
  await fc.assert(
    fc.asyncProperty(id, id, async (externalId, branch) => {
      const change = { externalId, qty: 3, subsidiaryExternalId: branch };
      const files = {
        csv: `externalId,qty,subsidiaryExternalId\n${quoted(externalId)},3,${quoted(branch)}\n`,
        json: JSON.stringify([change]),
        ndjson: `${JSON.stringify(change)}\n`,
      } as const;
      for (const [format, text] of Object.entries(files)) {
        const read = [];
        const options = { format: format as keyof typeof files };
        for await (const batch of readChangeFile(encode(text), 'stock', options)) read.push(...batch);
        // A spreadsheet writes 1e5 for 100000, so a CSV file with it is refused by name.
        const isDoubtful =
          format === 'csv' && [externalId, branch].some((each) => /^\d+(\.\d+)?e[+-]?\d+$/i.test(each));
        expect([format, read]).toMatchObject([format, [isDoubtful ? { fault: {} } : { change }]]);
      }
    }),
    { numRuns: runsOf(200) },
  );
});

it('takes the same ids by SQL, of counts and of acknowledgements', () => {
  const { path, inbox } = tempInbox();
  const db = pos(path);
  const out = outgoing();
  fc.assert(
    fc.property(id, id, id, (externalId, branch, orderId) => {
      const insert = 'INSERT INTO stock_changes (external_id, qty, subsidiary_external_id) VALUES (?, 3, ?)';
      db.prepare(insert).run(externalId, branch);
      db.prepare('INSERT INTO order_acks (order_id) VALUES (?)').run(orderId);
      const batch = inbox.read();
      const { acks } = out.inbox.ingest(batch, GUARDS_OFF);
      inbox.remove([...batch.changes, ...batch.acks]);
      const [taken] = out.queries.list({ limit: 1 });
      expect(taken?.body).toEqual({ externalId, qty: 3, subsidiaryExternalId: branch });
      expect(acks.map((each) => each.orderId)).toEqual([orderId]);
    }),
    { numRuns: runsOf(100) },
  );
});
