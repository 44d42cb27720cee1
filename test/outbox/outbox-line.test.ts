import { describe, expect, it } from 'vitest';
import { outgoing, product } from './outbox-fixture.ts';

const shelf = { sku: '1', stocks: { s1: ['A', 5] as [string, number] } };

describe('a newer value for a waiting change', () => {
  it('is answered with the id of the row that carries it, whatever was inserted elsewhere before', () => {
    const { db, sweep, accept, queries } = outgoing();
    sweep([product('p', 'P', [shelf])]);
    const [first] = accept('stock', [{ externalId: 'A', qty: 1 }]);
    const nextId = (first?.changeId ?? 0) + 1;
    db.prepare(
      `INSERT INTO _quarantine (quarantine_id, source, received_at, reason, digest, bytes, payload)
       VALUES (?, 'poll', '', '', 'd', 0, '')`,
    ).run(nextId);
    const [second, third] = accept('stock', [
      { externalId: 'A', qty: 2 },
      { externalId: 'A', qty: 3 },
    ]);
    expect([second?.changeId, third?.changeId]).toEqual([first?.changeId, first?.changeId]);
    expect(queries.get(nextId)).toBeUndefined();
    expect(queries.get(first?.changeId ?? 0)).toMatchObject({ body: { qty: 3 }, replaced: 2 });
  });

  it('is one row too where it changes its place in the line', () => {
    const { db, sweep, accept, queries } = outgoing();
    sweep([product('p', 'P', [shelf])]);
    const ids = [1, 0, 4].map((qty) => accept('stock', [{ externalId: 'A', qty }])[0]?.changeId);
    expect(new Set(ids).size).toBe(1);
    expect(queries.get(ids[0] ?? 0)).toMatchObject({ body: { qty: 4 }, replaced: 2 });
    expect(db.prepare('SELECT priority, zeroed_at FROM _outbox').all()).toEqual([
      { priority: 1, zeroed_at: null },
    ]);
  });
});
