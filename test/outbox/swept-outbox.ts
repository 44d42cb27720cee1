import { outgoing, product } from './outbox-fixture.ts';

export const TEA = product('p1', 'Tea', [
  { sku: '10', price: 1000, stocks: { s1: ['A', 5], s2: ['A', 7] } },
  { sku: '11', price: 2000, stocks: { s1: ['B', 3] } },
]);
export const many = Array.from({ length: 250 }, (_, i) =>
  product(`m${i}`, `Many ${i}`, [{ sku: `${1000 + i}`, stocks: { s1: [`M${i}`, 9] } }]),
);

export function swept(records = [TEA]) {
  const out = outgoing();
  out.sweep(records);
  return out;
}

export const done = (items: { changeId: number }[]) =>
  items.map(({ changeId }) => ({ changeId, state: 'done' as const }));
