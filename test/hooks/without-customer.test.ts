/** Tests src/hooks/hook.ts. */

import fc from 'fast-check';
import { expect, it } from 'vitest';
import { madeUpEvent, withoutCustomer } from '../../src/hooks/hook.ts';
import type { MirroredOrder } from '../../src/orders/merging/mirrored-order.ts';

function orderOf(changes: Partial<MirroredOrder>): MirroredOrder {
  const { order } = madeUpEvent('2026-03-01T18:30:00.000Z');
  if (order === null) throw new Error('no order');
  return { ...order, ...changes };
}

const order = orderOf({
  customerFirstName: 'María José',
  customerLastName: 'Núñez-Soto',
  customerEmail: 'maria.nunez@example.com',
  customerPhoneNumber: '+56 9 2222 3333',
  addressAddress: 'Av. Providencia 742',
  addressDetails: 'depto 12',
});

it.each([
  ['cannot print for María José', 'cannot print for [customer]'],
  ['name=MARIA', '[customer]'],
  ['no route for Nunez-Soto, sorry', 'no route for [customer] sorry'],
  ['mail to maria.nunez@example.com failed', 'mail to [customer] failed'],
  ['called 56922223333', 'called [customer]'],
  ['at Av. Providencia 742 nobody', 'at [customer] nobody'],
  ['providencia', '[customer]'],
  ['they said: sin azúcar', 'they said: [customer]'],
  ['printer 192.168.1.50 has no paper (code 12)', 'printer 192.168.1.50 has no paper (code 12)'],
])('hides who the customer is in "%s"', (said) => {
  const hidden = withoutCustomer(said, order);
  expect(hidden).not.toMatch(/mar[ií]a|jos[eé]|n[uú][nñ]ez|2222|3333|providencia|742|az[uú]car/i);
  if (!said.includes('paper')) expect(hidden).toContain('[customer]');
  else expect(hidden).toBe(said);
});

it('hides each word of a name wherever it stands, and leaves what is none', () => {
  const word = fc.stringMatching(/^[A-Za-zÁÉÍÓÚÑáéíóúñü]{4,12}$/);
  const other = fc.stringMatching(/^[b-df-hj-np-tv-z]{13,16}$/);
  fc.assert(
    fc.property(fc.array(word, { minLength: 1, maxLength: 3 }), fc.array(other), (name, words) => {
      const known = orderOf({ customerFirstName: name.join(' '), customerLastName: null });
      const said = [...words, ...name.map((each) => each.toUpperCase()), ...words].join(' ');
      const hidden = withoutCustomer(said, known);
      for (const each of name) expect(hidden.split(' ')).not.toContain(each.toUpperCase());
      for (const each of words) expect(hidden).toContain(each);
    }),
  );
});

it('changes nothing without an order', () => {
  expect(withoutCustomer('María', null)).toBe('María');
});
