import { hash } from 'node:crypto';
import { readFileSync } from 'node:fs';
import Database from 'better-sqlite3';

/**
 * Does the minimum work of mirroring as a separate program: it parses pages of a hundred, compares and inserts in one
 * loop, with large transactions and without waits for other processes. Arguments: file with one page of orders per
 * line, an empty mirror. Prints milliseconds.
 */
const [, , pagesFile = '', path = ''] = process.argv;
const pages = readFileSync(pagesFile, 'utf8').trimEnd().split('\n');
const db = new Database(path, { fileMustExist: true });
db.pragma('synchronous = FULL');
db.pragma('cache_size = -32768');

const known = db.prepare('SELECT poll_digest FROM _orders WHERE order_id = ?').pluck();
const event = db.prepare(
  "INSERT INTO order_events (order_id, status, source, observed_at) VALUES (?, ?, 'poll', ?)",
);
const insert =
  db.prepare(`INSERT INTO _orders (order_id, code, status, seq, updated_at, event_source, poll_digest,
    store_external_id, website_id, name, created_at, delivery_type, amount_to_pay, amount, delivery_fee, coupon_discount,
    delivery_time, is_scheduled, scheduled_for, address_lat, address_lng, address_address, address_street_number,
    address_street_address, address_country, address_state, address_city, address_zip_code, address_phone_number,
    address_details, customer_first_name, customer_last_name, customer_email, customer_phone_number, payload_source,
    payload, to_book_since, evidence)
  VALUES (${Array.from({ length: 38 }, () => '?')})`);
const insertItem =
  db.prepare(`INSERT INTO order_items (order_id, line, product_external_id, product_name, quantity,
    comment, unit_price, base_unit_price, product_price, product_base_price)
  VALUES (${Array.from({ length: 10 }, () => '?')})`);
const insertModifier =
  db.prepare(`INSERT INTO order_item_modifiers (order_id, line, modifier, name, short_name, description, option_id,
    option_external_id, option_name, option_price, quantity, modifier_external_id)
  VALUES (${Array.from({ length: 12 }, () => '?')})`);

// biome-ignore lint/suspicious/noExplicitAny: the bare loop trusts its own input.
type PipelineOrder = Record<string, any>;

function write(order: PipelineOrder): void {
  const payload = JSON.stringify(order);
  const id: string = order.internalOrderId;
  const digest = hash('sha256', payload, 'hex');
  if (known.get(id) === digest) return;
  const {
    lat,
    lng,
    address,
    streetNumber,
    streetAddress,
    country,
    state,
    city,
    zipCode,
    phoneNumber,
    details,
  } = order.address as PipelineOrder;
  const user = order.user as PipelineOrder;
  const { lastInsertRowid } = event.run(id, order.status, '2026-01-01T00:00:00.000Z');
  insert.run(
    id,
    order.code,
    order.status,
    lastInsertRowid,
    '2026-01-01T00:00:00.000Z',
    'poll',
    digest,
    (order.store as PipelineOrder).externalId,
    order.websiteId,
    order.name,
    order.createdAt,
    order.deliveryType,
    order.amountToPay,
    order.amount,
    order.deliveryFee,
    order.couponDiscount,
    order.deliveryTime,
    order.isScheduled ? 1 : 0,
    null,
    lat,
    lng,
    address,
    streetNumber,
    streetAddress,
    country,
    state,
    city,
    zipCode,
    phoneNumber,
    details,
    user.firstName,
    user.lastName,
    user.email,
    user.phoneNumber,
    'poll',
    payload,
    '2026-01-01T00:00:00.000Z',
    evidenceOf(order.items),
  );
  writeItems(id, order.items);
}

/** Returns a text of the same length as the mirror's: a digit for each field of an order and of its lines. */
function evidenceOf(items: PipelineOrder[]): string {
  return ['3'.repeat(30), ...items.map(() => '3'.repeat(9))].join(' ');
}

function writeItems(id: string, items: PipelineOrder[]): void {
  for (let i = 0; i < items.length; i++) {
    const item = items[i] as PipelineOrder;
    const { externalId, name } = item.product as PipelineOrder;
    const prices = [item.unitPrice, item.baseUnitPrice, item.productPrice, item.productBasePrice];
    insertItem.run(id, i + 1, externalId, name, item.amount, item.comment, ...prices);
    let row = 0;
    for (const modifier of item.modifiers) {
      const shared = [modifier.name, modifier.shortName, JSON.stringify(modifier.description)];
      const options = modifier.options;
      if (options.length === 0)
        insertModifier.run(id, i + 1, ++row, ...shared, null, null, null, null, 1, null);
      for (const { optionId, externalId: extId, name: option, price } of options) {
        const count = (modifier.countById as PipelineOrder)[optionId] ?? null;
        insertModifier.run(id, i + 1, ++row, ...shared, optionId, extId, option, price, count, null);
      }
    }
  }
}

const startMs = performance.now();
for (let at = 0; at < pages.length; at += 10) {
  db.transaction(() => {
    for (const page of pages.slice(at, at + 10)) for (const order of JSON.parse(page)) write(order);
  })();
}
process.stdout.write(`${performance.now() - startMs}\n`);
db.close();
