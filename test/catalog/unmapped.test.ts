import type Database from 'better-sqlite3';
import { describe, expect, it } from 'vitest';
import { branchMappings, unmappedItems, unmappedSkus } from '../../src/catalog/unmapped.ts';
import { IS_OPEN, IS_TO_BOOK, IS_UNACKNOWLEDGED } from '../../src/orders/merging/order.ts';
import { openTestMirror, receive, sampleNotification } from '../orders/open-test-mirror.ts';

const B1 = { subsidiaryId: 'sub-1', externalId: 'B1' };
const B2 = { subsidiaryId: 'sub-2', externalId: null };

/** Inserts products with one sku each. By default they are shown, in stock and mapped in both branches. */
function put(db: Database.Database, products: Record<string, { sql?: string; ids?: string | null }>): void {
  for (const [name, { sql, ids = "'E-1', NULL, NULL" }] of Object.entries(products)) {
    db.exec(`INSERT INTO _products (product_id, name, show, updated_at, payload) VALUES ('p-${name}', '${name}', 1, '', '{}');
      INSERT INTO _skus (sku, product_id, show) VALUES ('${name}', 'p-${name}', 1);
      INSERT INTO _stocks (sku, subsidiary_id, qty, show) VALUES ('${name}', 'sub-1', 1, 1), ('${name}', 'sub-2', 1, 1);`);
    for (const branch of ids === null ? [] : ['sub-1', 'sub-2']) {
      db.exec(`INSERT INTO integrations (sku, subsidiary_id, ext_id, product_id_pos_a, product_code_pos_b, product_id)
        VALUES ('${name}', '${branch}', ${ids}, 'p-${name}')`);
    }
    if (sql) db.exec(sql.replaceAll('#', `'${name}'`));
  }
}

describe('products without an id', () => {
  it('are those that are shown in the branch and have none of the three there', async () => {
    const { mirror } = openTestMirror();
    await mirror.write((db) =>
      put(db, {
        agua: {},
        pan: { ids: "NULL, 'A-1', NULL" },
        queso: { ids: "NULL, NULL, 'B-1'" },
        torta: { ids: null },
        'in one branch': { sql: "DELETE FROM integrations WHERE sku = # AND subsidiary_id = 'sub-2'" },
        blank: { ids: "' ', NULL, NULL" },
        hidden: { ids: null, sql: 'UPDATE _products SET show = 0 WHERE name = #' },
        'sku hidden': { ids: null, sql: 'UPDATE _skus SET show = 0 WHERE sku = #' },
        'hidden here': { ids: null, sql: 'UPDATE _stocks SET show = 0 WHERE sku = #' },
        'not stocked': { ids: null, sql: 'DELETE FROM _stocks WHERE sku = #' },
        gone: { ids: null, sql: "UPDATE _products SET vanished_at = 'then' WHERE name = #" },
      }),
    );
    const [first, second] = mirror.read((db) => branchMappings(db, [B1, B2]));
    expect(first).toEqual({ branch: B1, shown: 6, unmapped: 2, isMapping: true });
    expect(second).toEqual({ branch: B2, shown: 6, unmapped: 3, isMapping: true });
    const listed = mirror.read((db) => unmappedSkus(db, [B1, B2]));
    expect(listed.map(({ branch, name }) => `${branch} ${name}`)).toEqual([
      'B1 blank',
      'B1 torta',
      'sub-2 blank',
      'sub-2 in one branch',
      'sub-2 torta',
    ]);
    expect(mirror.read((db) => branchMappings(db, [{ subsidiaryId: 'sub-9', externalId: null }]))).toEqual(
      [],
    );
  });

  it('are found in a branch that has only an external id, where no other branch can be meant', async () => {
    const { mirror } = openTestMirror();
    await mirror.write((db) => put(db, { a: {}, b: { ids: null } }));
    const [byName, other] = ['B1', 'B2'].map((externalId) => ({ subsidiaryId: null, externalId }));
    if (!byName || !other) throw new Error('never');
    const seen = (...branches: (typeof byName)[]) =>
      mirror.read((db) => branchMappings(db, branches)).map(({ branch }) => branch.externalId);
    expect(seen(byName, B2 as never)).toEqual(['B1', null]);
    expect(seen(byName, other)).toEqual([]);
    expect(seen(byName)).toEqual([]);
  });

  it('say nothing of a shop that gives no ids, or has only begun to', async () => {
    const { mirror } = openTestMirror();
    await mirror.write((db) => put(db, { a: {}, b: { ids: null }, c: { ids: null }, d: { ids: null } }));
    expect(mirror.read((db) => branchMappings(db, [B1]))).toEqual([
      { branch: B1, shown: 4, unmapped: 3, isMapping: false },
    ]);
  });
});

describe('an ordered item without an id', () => {
  const item = (externalId: string | null, modifiers: object[] = []) => ({
    product: { externalId, name: externalId ?? 'Torta' },
    amount: 1,
    comment: '',
    modifiers,
    unitPrice: 1,
    baseUnitPrice: 1,
    productPrice: 1,
    productBasePrice: 1,
  });
  const order = (number: number, items: object[], more: object = {}) =>
    sampleNotification(number, { status: 'inProcess', store: { externalId: 'B1' }, items, ...more });
  const found = (mirror: ReturnType<typeof openTestMirror>['mirror']) =>
    mirror.read((db) => {
      const waits = `${IS_OPEN} AND ${IS_TO_BOOK} AND ${IS_UNACKNOWLEDGED}`;
      return unmappedItems(db, { waits, branches: [B1], from: '2026-01-01' }).map(
        ({ code, productName }) => `${code} ${productName}`,
      );
    });

  it('is told until the order is acknowledged or over, of open orders of the branches that give ids', async () => {
    const { mirror } = openTestMirror();
    const modifier = {
      name: 'Extra',
      shortName: 'E',
      description: [],
      countById: {},
      countByExternalId: {},
      options: [],
    };
    await receive(
      mirror,
      order(1, [item('E-1'), item(null)]),
      order(2, [item(null, [modifier]), item('E-2')]),
      order(3, [item(null), item('E-3')], { store: { externalId: 'B9' } }),
      order(4, [item(null), item('E-4')], { status: 'payment-pending' }),
      order(5, [item('E-5'), item(null)]),
    );
    expect(found(mirror)).toEqual(['1 Torta', '5 Torta']);
    const acknowledge = (branch: string) =>
      mirror.write((db) =>
        db
          .prepare(
            "INSERT INTO _order_acks (order_id, branch, acked_at, source) VALUES (?, ?, '2026-01-15', 'http')",
          )
          .run(order(1, []).internalOrderId, branch),
      );
    // The order came from another branch, whose POS had acknowledged it.
    await acknowledge('B2');
    expect(found(mirror)).toEqual(['1 Torta', '5 Torta']);
    await acknowledge('B1');
    await receive(mirror, order(5, [item('E-5'), item(null)], { status: 'cancel' }));
    expect(found(mirror)).toEqual([]);
  });

  it('is not told where the platform tells hardly any', async () => {
    const { mirror } = openTestMirror();
    await receive(mirror, order(1, [item(null), item(null)]), order(2, [item('E-1')]));
    expect(found(mirror)).toEqual([]);
  });
});
