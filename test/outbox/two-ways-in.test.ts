import path from 'node:path';
import Database from 'better-sqlite3';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { isoUtc } from '../../src/core/time.ts';
import { GUARDS_OFF } from '../../src/outbox/intake/guards.ts';
import type { InboxBatch } from '../../src/outbox/intake/inbox.ts';
import { runsOf } from '../support/seed.ts';
import { storeRig } from '../support/store-rig.ts';
import { outgoing, product, tempMirror } from './outbox-fixture.ts';

const TEA = product('p1', 'Tea', [{ sku: '10', stocks: { s1: ['A', 5] } }]);
type Kind = 'stock' | 'product';

/** Makes an inbox in memory whose rows stay until they are copied. */
function waitingInbox(out: ReturnType<typeof outgoing>) {
  let rows: InboxBatch['changes'] = [];
  let count = 0;
  return {
    insert(kind: Kind, value: Record<string, unknown>, handedAt: string | null = isoUtc(out.clock.nowMs())) {
      count += 1;
      const table = kind === 'stock' ? 'stock_changes' : 'product_changes';
      const key = { table, id: String(count), key: `${kind}:${count}`, keyHex: `${count}` } as const;
      rows.push({ ...key, tooLong: null, kind, reference: null, handedAt, value });
    },
    ingest() {
      const batch = { changes: rows, acks: [], more: false };
      out.inbox.ingest(batch, GUARDS_OFF);
      out.inbox.forget(batch);
      rows = [];
    },
    look() {
      if (rows.length === 0) out.intake.inboxWasEmpty(isoUtc(out.clock.nowMs()));
      else this.ingest();
    },
  };
}

function atShop(db?: Database.Database) {
  const out = outgoing(db);
  out.sweep([TEA]);
  const command = (kind: Kind, value: Record<string, unknown>) =>
    out.intake.accept([{ kind, change: value } as never], {
      source: 'cli',
      guards: GUARDS_OFF,
      beforeInbox: isoUtc(out.clock.nowMs()),
    });
  const waiting = (kind: Kind) =>
    out.db
      .prepare("SELECT body FROM outbox WHERE kind = ? AND state = 'pending'")
      .pluck()
      .all(kind)
      .map((body) => JSON.parse(String(body)) as Record<string, unknown>);
  return { out, inbox: waitingInbox(out), command, waiting };
}

describe('two ways in', () => {
  it('a count that lies in the inbox is older than a command that came after it', () => {
    const { out, inbox, command, waiting } = atShop();
    inbox.insert('stock', { externalId: 'A', qty: 20, subsidiaryId: 's1' });
    out.clock.jumpWall(1);
    const [carried] = command('stock', { externalId: 'A', qty: 5, subsidiaryId: 's1' });
    inbox.ingest();
    expect(waiting('stock')).toMatchObject([{ qty: 5 }]);
    const outlived = "SELECT superseded_by, message FROM outbox WHERE state = 'superseded'";
    expect(out.db.prepare(outlived).all()).toEqual([
      { superseded_by: carried?.changeId, message: `Replaced by change ${carried?.changeId}.` },
    ]);
  });

  it('a newer command leaves the fields that it does not name', () => {
    const { out, inbox, command, waiting } = atShop();
    inbox.insert('product', { sku: 10, price: 900, name: 'Green tea' });
    out.clock.jumpWall(1);
    command('product', { sku: '10', price: 1100 });
    inbox.ingest();
    expect(waiting('product')).toMatchObject([{ price: 1100, name: 'Green tea' }]);
  });

  it('a row that does not say when it was inserted is the newest, and so is one after a clock that was ahead', () => {
    const { out, inbox, command, waiting } = atShop();
    out.clock.jumpWall(3_600_000);
    command('stock', { externalId: 'A', qty: 5, subsidiaryId: 's1' });
    inbox.insert('stock', { externalId: 'A', qty: 7, subsidiaryId: 's1' }, null);
    inbox.ingest();
    expect(waiting('stock')).toMatchObject([{ qty: 7 }]);
    out.clock.jumpWall(-3_600_000);
    inbox.insert('stock', { externalId: 'A', qty: 8, subsidiaryId: 's1' });
    inbox.ingest();
    expect(waiting('stock')).toMatchObject([{ qty: 8 }]);
  });

  it('a visibility from the inbox takes the quantity of a later command with its name', () => {
    const { out, inbox, command } = atShop();
    inbox.insert('stock', { externalId: 'A', qty: 20, show: false, subsidiaryId: 's1' });
    out.clock.jumpWall(1_000);
    command('stock', { sku: '10', qty: 5, subsidiaryId: 's1' });
    inbox.ingest();
    expect(
      out.db
        .prepare("SELECT named, json_extract(body, '$.qty') AS qty FROM _outbox WHERE state = 'pending'")
        .all(),
    ).toEqual([{ named: null, qty: 5 }]);
  });

  it('a change by HTTP waits until the daemon has taken in what lies in the inbox', async () => {
    const rig = storeRig();
    const { localUrl } = await rig.daemon();
    await rig.clock.advance(60_000);
    const [stock] = rig.rows<{ sku: string; subsidiaryId: string }>(
      'SELECT sku, subsidiary_id AS subsidiaryId FROM stocks LIMIT 1',
    );
    const inbox = new Database(path.join(rig.directory, 'inbox/inbox.db'));
    inbox
      .prepare('INSERT INTO stock_changes (sku, subsidiary_id, qty) VALUES (?, ?, 40)')
      .run(stock?.sku, stock?.subsidiaryId);
    inbox.close();
    const answer = await fetch(`${localUrl}/v1/stock`, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify([{ ...stock, qty: 10 }]),
    });
    expect(answer.ok).toBe(true);
    // The count of the inbox was queued first, and the change by HTTP replaced it.
    expect(rig.rows("SELECT source, json_extract(body, '$.qty') AS qty, replaced FROM _outbox")).toEqual([
      { source: 'http', qty: 10, replaced: 1 },
    ]);
  });

  it('the last value of each field wins, whenever the inbox is looked into', () => {
    const field = fc.constantFrom('price', 'name', 'show');
    const handOver = fc.record({
      way: fc.constantFrom('inbox', 'command'),
      fields: fc.uniqueArray(field, { minLength: 1 }),
      lookAfter: fc.boolean(),
    });
    const mirror = tempMirror();
    mirror.pragma('synchronous = OFF');
    fc.assert(
      fc.property(fc.array(handOver, { minLength: 1, maxLength: 8 }), fc.boolean(), (steps, isSent) => {
        mirror.exec("DELETE FROM _outbox; DELETE FROM _seen WHERE kind = 'hand-over'");
        const { out, inbox, command, waiting } = atShop(mirror);
        const last: Record<string, unknown> = {};
        steps.forEach(({ way, fields, lookAfter }, i) => {
          out.clock.jumpWall(10);
          const values = { price: i + 1, name: `name ${i}`, show: i % 2 === 0 };
          const given = Object.fromEntries(fields.map((each) => [each, values[each as keyof typeof values]]));
          Object.assign(last, given);
          if (way === 'inbox') inbox.insert('product', { sku: 10, ...given });
          else command('product', { sku: '10', ...given });
          out.clock.jumpWall(10);
          if (lookAfter) inbox.look();
          // A change that was sent is no longer queued, but must still win over older rows of the inbox.
          if (isSent) out.db.exec("UPDATE _outbox SET state = 'done' WHERE state = 'pending'");
        });
        inbox.look();
        const told = out.db
          .prepare("SELECT body FROM _outbox WHERE state IN ('done', 'pending') ORDER BY version")
          .pluck()
          .all()
          .map((body) => JSON.parse(String(body)) as Record<string, unknown>);
        const { sku: _, ...end } = Object.assign({}, ...told) as Record<string, unknown>;
        expect(end).toEqual(last);
        expect(waiting('product').length).toBeLessThanOrEqual(1);
        inbox.look();
        expect(out.db.prepare("SELECT count(*) FROM _seen WHERE kind = 'hand-over'").pluck().get()).toBe(0);
      }),
      { numRuns: runsOf(100) },
    );
  });
});
