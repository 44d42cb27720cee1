import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { GUARDS_OFF } from '../../src/outbox/intake/guards.ts';
import { outgoing, product, tempMirror } from './outbox-fixture.ts';
import { insert, pos, rowsOf, tempInbox } from './temp-inbox.ts';

describe('taking the inbox in', () => {
  const TEA = product('p1', 'Tea', [{ sku: '10', stocks: { s1: ['A', 5] } }]);

  it('keeps a row that no constraint could catch as rejected', () => {
    const out = outgoing();
    const { path, inbox } = tempInbox();
    const db = pos(path);
    db.prepare(
      "INSERT INTO product_changes (sku, name, reference) VALUES (10, CAST(x'ff41' AS TEXT), 'r1')",
    ).run();
    const report = out.inbox.ingest(inbox.read(), GUARDS_OFF);
    expect(report.accepted).toMatchObject([{ state: 'rejected' }]);
    expect(out.queries.list({ limit: 1 })).toMatchObject([
      { source: 'inbox', reference: 'r1', state: 'rejected' },
    ]);
  });

  it('takes ids of CHAR columns without the blanks that fill them', () => {
    const out = outgoing();
    out.sweep([TEA]);
    const { path, inbox } = tempInbox();
    const db = pos(path);
    db.exec(`
      INSERT INTO stock_changes (external_id, qty, subsidiary_external_id) VALUES ('A         ', 4, 'B1   ');
      INSERT INTO product_changes (external_id, price) VALUES ('  A  ', 990);
      INSERT INTO order_acks (order_id) VALUES ('o1     ');
      INSERT INTO order_acks (order_id) VALUES ('o1');`);
    const { accepted, acks } = out.inbox.ingest(inbox.read(), GUARDS_OFF);
    expect(accepted).toMatchObject([{ state: 'pending' }, { state: 'pending' }]);
    expect(acks.map(({ orderId }) => orderId)).toEqual(['o1', 'o1']);
    expect(out.db.prepare('SELECT order_id FROM order_acks').pluck().all()).toEqual(['o1']);
    expect(
      out.queries
        .list({ limit: 2 })
        .map(({ target }) => target)
        .sort(),
    ).toEqual(['sku:10', 'sku:10@s1']);
  });

  it('takes every row in exactly once, wherever tillsync dies, and acknowledges after the counts', () => {
    const mirror = tempMirror();
    mirror.pragma('synchronous = OFF');
    const dies = fc.constantFrom('before', 'after copy', 'after remove', 'no');
    fc.assert(
      fc.property(fc.array(fc.tuple(fc.nat(3), dies), { maxLength: 12 }), (rounds) => {
        mirror.exec(
          "DELETE FROM _outbox; DELETE FROM _seen WHERE kind = 'inbox-row'; DELETE FROM _order_acks",
        );
        const out = outgoing(mirror);
        out.sweep([TEA]);
        const { path, inbox } = tempInbox();
        const db = pos(path);
        let inserted = 0;
        let accepted = 0;
        let acks = 0;
        const round = (death: string) => {
          const batch = inbox.read();
          if (death === 'before') return;
          const report = out.inbox.ingest(batch, GUARDS_OFF);
          accepted += report.accepted.length;
          acks += report.acks.length;
          if (death === 'after copy') return;
          inbox.remove(rowsOf(batch));
          if (death === 'after remove') return;
          out.inbox.forget(batch);
        };
        for (const [count, death] of rounds) {
          for (let i = 0; i < count; i++) {
            inserted += 1;
            insert(db, 'A', inserted);
            db.prepare('INSERT INTO order_acks (order_id) VALUES (?)').run(`o${inserted}`);
          }
          round(death);
        }
        round('no');
        expect([accepted, acks]).toEqual([inserted, inserted]);
        expect(inbox.read()).toMatchObject({ changes: [], acks: [] });
        const [entry] = out.queries.list({ limit: 2 });
        if (inserted > 0) expect(entry).toMatchObject({ body: { externalId: 'A', qty: inserted } });
        inbox.close();
      }),
      { numRuns: Number(process.env.TILLSYNC_RUNS ?? 4) },
    );
  });
});
