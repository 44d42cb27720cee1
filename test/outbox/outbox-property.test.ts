/** Tests src/outbox/sending/dispatch.ts and src/outbox/sending/queue.ts. */

import fc from 'fast-check';
import { expect, it } from 'vitest';
import type { Answer, ChangeBody, ChangeKind } from '../../src/outbox/intake/change.ts';
import type { Claim } from '../../src/outbox/sending/dispatch.ts';
import { outgoing, product, tempMirror } from './outbox-fixture.ts';

const RECORDS = [
  product('p1', 'one', [
    { sku: '10', stocks: { s1: ['A', 5], s2: ['A', 5] } },
    { sku: '11', stocks: { s1: ['B', 5] } },
  ]),
  product('p2', 'two', [{ sku: '20', stocks: { s2: ['C', 5] } }]),
];
const SKU_OF: Record<string, string> = { A: '10', B: '11', C: '20' };
const PRODUCT_OF: Record<string, string> = { 10: 'p1', 11: 'p1', 20: 'p2' };

/** Values of the platform, by target and field. */
class Platform {
  readonly fields = new Map<string, unknown>();

  constructor() {
    for (const record of RECORDS) {
      this.fields.set(`${record.id}.name`, record.name).set(`${record.id}.show`, true);
      for (const child of record.children) {
        this.fields.set(`${child.sku}.price`, child.price);
        for (const { subsidiaryId, qty } of child.stocks) {
          this.fields
            .set(`${child.sku}@${subsidiaryId}.qty`, qty)
            .set(`${child.sku}@${subsidiaryId}.show`, true);
        }
      }
    }
  }

  take(body: ChangeBody): void {
    const sku = 'sku' in body ? String(body.sku) : (SKU_OF[body.externalId ?? ''] as string);
    const { externalId: _e, subsidiaryId, subsidiaryExternalId, ...values } = body as Record<string, unknown>;
    const branch = subsidiaryId ?? (subsidiaryExternalId === 'B2' || sku === '20' ? 's2' : 's1');
    for (const [field, value] of Object.entries(values)) {
      if (field === 'sku') continue;
      const thing = 'qty' in body ? `${sku}@${branch}` : field === 'price' ? sku : PRODUCT_OF[sku];
      this.fields.set(`${thing}.${field}`, value);
    }
  }
}

const show = fc.option(fc.boolean(), { nil: undefined });
const stock = fc
  .record({
    place: fc.constantFrom(
      { externalId: 'A', subsidiaryId: 's1' },
      { externalId: 'A', subsidiaryExternalId: 'B2' },
      { sku: 10, subsidiaryId: 's2' },
      { externalId: 'B' },
      { sku: 11 },
      { externalId: 'C' },
    ),
    qty: fc.nat(3),
    show,
  })
  .map(({ place, ...values }) => ({ kind: 'stock' as const, value: clean({ ...place, ...values }) }));
const text = fc.option(fc.constantFrom('one', 'x', 'y'), { nil: undefined });
const change = fc
  .record({
    place: fc.constantFrom(
      { sku: 10 },
      { externalId: 'A' },
      { sku: 11 },
      { externalId: 'B' },
      { externalId: 'C' },
    ),
    price: fc.option(fc.constantFrom(1000, 2000, 3000), { nil: undefined }),
    name: text,
    show,
  })
  .filter(({ price, name, show: shown }) => price !== undefined || name !== undefined || shown !== undefined)
  .map(({ place, ...values }) => ({ kind: 'product' as const, value: clean({ ...place, ...values }) }));

const kind = fc.constantFrom<ChangeKind>('stock', 'product');
const step = fc.oneof(
  { weight: 4, arbitrary: fc.array(fc.oneof(stock, change), { minLength: 1, maxLength: 3 }) },
  { weight: 2, arbitrary: fc.record({ claim: kind, max: fc.integer({ min: 1, max: 3 }) }) },
  {
    weight: 3,
    arbitrary: fc.record({
      finish: fc.nat(3),
      applied: fc.boolean(),
      answered: fc.boolean(),
    }),
  },
  { weight: 1, arbitrary: fc.constantFrom('sweep', 'crash', 'resolve') },
);

/**
 * A case in which an older `show` is requeued and merged with a newer price of its sku, while a newer `show` waits for
 * another sku of the product.
 */
const OLDER_SHOW_PUT_BACK = [
  'sweep' as const,
  [
    { kind: 'product' as const, value: { sku: 10, price: 3000 } },
    { kind: 'product' as const, value: { externalId: 'B', price: 2000, show: true } },
  ],
  { claim: 'product' as const, max: 2 },
  [{ kind: 'product' as const, value: { sku: 11, price: 1000 } }],
  [{ kind: 'product' as const, value: { sku: 10, show: false } }],
  { finish: 0, applied: true, answered: false },
];

function clean(value: object): Record<string, unknown> {
  return Object.fromEntries(Object.entries(value).filter(([, each]) => each !== undefined));
}

it('leaves the platform with the last accepted value of every field, whatever happens on the way', () => {
  const db = tempMirror();
  // Durability is not tested here.
  db.pragma('synchronous = OFF');
  fc.assert(
    fc.property(fc.array(step, { maxLength: 40 }), fc.boolean(), (steps, knowsCatalogue) => {
      for (const table of [
        '_outbox',
        '_products',
        '_skus',
        '_stocks',
        'integrations',
        '_branch_products',
        '_sweeps',
        '_stock_counts',
      ]) {
        db.exec(`DELETE FROM ${table}`);
      }
      const out = outgoing(db);
      const rules = { skipUnchanged: true, holdBack: false, sendAsIs: false };
      const platform = new Platform();
      const wanted = new Platform();
      if (knowsCatalogue) out.sweep(RECORDS);
      let underWay: (Claim & { kind: ChangeKind; sent: boolean })[] = [];

      const resolveAll = () => {
        for (const basis of ['as-is', 'needs-read'] as const) {
          for (const kept of out.admin.unresolved(basis, { limit: 100 })) {
            out.admin.retarget(kept, out.resolve(kept));
          }
        }
      };
      const claim = (of: ChangeKind, max: number) => {
        const claimed = out.dispatcher.claim(of, max, rules);
        if (claimed.callId !== null) underWay.push({ ...claimed, kind: of, sent: false });
        return claimed;
      };
      const finish = (call: (typeof underWay)[number], applied: boolean, answered: boolean) => {
        if (applied && !call.sent) for (const item of call.items) platform.take(item.body);
        underWay = underWay.filter((other) => other !== call);
        const state: Answer['state'] = applied && answered ? 'done' : 'retry';
        out.dispatcher.settle(
          call.callId ?? 0,
          call.items.map(({ changeId }) => ({ changeId, state })),
        );
      };

      for (const each of steps) {
        if (Array.isArray(each)) {
          for (const { kind: of, value } of each) {
            const [acceptance] = out.accept(of, [value]);
            if (acceptance?.state === 'pending') wanted.take(value as unknown as ChangeBody);
          }
        } else if (each === 'sweep') {
          // Mirrors the platform's present state, as if everything was read at one moment.
          out.sweep(recordsOf(platform));
          resolveAll();
        } else if (each === 'resolve') {
          resolveAll();
        } else if (each === 'crash') {
          underWay = [];
          out.dispatcher.reclaim();
        } else if ('claim' in each) {
          // Like the sender, the test resolves targets first and has at most one call per endpoint under way.
          resolveAll();
          if (underWay.filter((call) => call.kind === each.claim).length < 2) claim(each.claim, each.max);
        } else {
          const call = underWay[each.finish % Math.max(1, underWay.length)];
          if (call) finish(call, each.applied, each.answered);
        }
      }

      out.sweep(recordsOf(platform));
      for (const call of [...underWay]) finish(call, true, true);
      resolveAll();
      for (const kind of ['stock', 'product'] as const) {
        for (let more = true; more; ) {
          const claimed = claim(kind, 100);
          for (const call of [...underWay]) finish(call, true, true);
          more = claimed.callId !== null || claimed.settled > 0;
        }
      }
      expect(out.queries.counts()).toMatchObject({ pending: 0, sending: 0, rejected: expect.any(Number) });
      expect(Object.fromEntries(platform.fields)).toEqual(Object.fromEntries(wanted.fields));
    }),
    { numRuns: Number(process.env.TILLSYNC_RUNS ?? 12), examples: [[OLDER_SHOW_PUT_BACK, false]] },
  );
});

function recordsOf(platform: Platform) {
  return RECORDS.map((record) => {
    const children = record.children.map((child) => ({
      ...child,
      price: platform.fields.get(`${child.sku}.price`) as number,
      stocks: child.stocks.map(({ subsidiaryId }) => ({
        subsidiaryId,
        qty: platform.fields.get(`${child.sku}@${subsidiaryId}.qty`) as number,
        show: platform.fields.get(`${child.sku}@${subsidiaryId}.show`) as boolean,
      })),
    }));
    const name = platform.fields.get(`${record.id}.name`) as string;
    const shown = platform.fields.get(`${record.id}.show`) as boolean;
    const content = { id: record.id, name, category: 'all', show: shown, children };
    return { ...content, raw: JSON.stringify(content) };
  });
}
