import fc from 'fast-check';
import { expect, it } from 'vitest';
import { runsOf } from '../support/seed.ts';
import { outgoing, product, SEND_ALL, tempMirror } from './outbox-fixture.ts';

const values = fc
  .record(
    {
      price: fc.nat(),
      name: fc.string({ minLength: 1 }).filter((text) => text.trim() === text),
      show: fc.boolean(),
    },
    { requiredKeys: [] },
  )
  .filter((each) => Object.keys(each).length > 0);
const known = product('p1', 'Tea', [{ sku: '10', stocks: { s1: ['A', 5] } }]);
/** Returns the values of a change without the ids of its product. */
function valuesOf(body: string): object {
  const { sku: _, externalId: _id, ...values } = JSON.parse(body);
  return values;
}

/** The same product, as it is once a sweep has brought its other id. */
const found = product('p1', 'Tea', [{ sku: '10', stocks: { s1: ['late', 5] } }]);

it('gives the same whether changes were merged as they came or split over two rows and joined later', () => {
  const db = tempMirror();
  db.pragma('synchronous = OFF');
  fc.assert(
    fc.property(fc.array(fc.tuple(fc.boolean(), values), { minLength: 1 }), (changes) => {
      db.exec(
        'DELETE FROM _outbox; DELETE FROM _products; DELETE FROM _skus; DELETE FROM integrations; DELETE FROM _stocks',
      );
      db.exec('DELETE FROM _branch_products; DELETE FROM _sweeps');
      const out = outgoing(db);
      out.sweep([known]);
      // The expected result: each field has the value of the last change that set it.
      const whole = Object.assign({}, ...changes.map(([, each]) => each));
      for (const [isKnown, each] of changes) {
        const [taken] = out.accept('product', [
          { ...(isKnown ? { sku: 10 } : { externalId: 'late' }), ...each },
        ]);
        expect(taken?.state).toBe('pending');
      }
      out.sweep([found]);
      for (const basis of ['needs-read', 'as-is'] as const) {
        for (const each of out.admin.unresolved(basis, { limit: 9 }))
          out.admin.retarget(each, out.resolve(each));
      }
      const waiting = db.prepare("SELECT body FROM outbox WHERE state = 'pending'").pluck().all() as string[];
      expect(waiting.map(valuesOf)).toEqual([whole]);
    }),
    { numRuns: runsOf(100) },
  );
});

it.each([
  { newer: { qty: 4, show: false }, sent: [{ qty: 4, show: false }] },
  { newer: { qty: 4 }, sent: [{ qty: 4 }, { qty: 4, show: true }] },
])('sends of a count that is found late only what is newer than $newer', ({ newer, sent }) => {
  const out = outgoing();
  out.sweep([known]);
  out.accept('stock', [{ externalId: 'late', subsidiaryId: 's1', qty: 1, show: true }]);
  out.accept('stock', [{ sku: 10, subsidiaryId: 's1', ...newer }]);
  const calls: object[] = [];
  const send = () => {
    const { callId, items } = out.dispatcher.claim('stock', 9, { ...SEND_ALL, sendAsIs: false });
    calls.push(...items.map(({ body }) => valuesOf(JSON.stringify({ ...body, subsidiaryId: undefined }))));
    const answers = items.map(({ changeId }) => ({ changeId, state: 'done' as const }));
    if (callId !== null) out.dispatcher.settle(callId, answers);
  };
  send();
  out.sweep([found]);
  for (const each of out.admin.unresolved('needs-read', { limit: 9 }))
    out.admin.retarget(each, out.resolve(each));
  send();
  expect(calls).toEqual(sent);
  expect(out.queries.counts()).toMatchObject({ pending: 0, sending: 0 });
});
