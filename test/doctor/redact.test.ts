/** Tests src/support/bundle/redact.ts. */

import { expect, it } from 'vitest';
import { PeopleMask } from '../../src/support/bundle/redact.ts';
import { observation, openTestMirror } from '../orders/open-test-mirror.ts';
import { sampleNotification } from '../support/order-samples.ts';

/** Returns a mask that knows one customer, Ana Núñez of Calle Sol 12. */
async function mask(): Promise<PeopleMask> {
  const { mirror } = openTestMirror();
  const user = { firstName: 'Ana', lastName: 'Núñez' };
  const reading = observation('poll', sampleNotification(1)).reading;
  const fields = { customerFirstName: user.firstName, customerLastName: user.lastName };
  const own = { ...reading, fields: { ...reading.fields, ...fields, addressAddress: 'Calle Sol 12' } };
  await mirror.save([
    { kind: 'order', observation: observation('poll', sampleNotification(1), { reading: own }) },
  ]);
  const people = new PeopleMask();
  mirror.read((db) => people.learn(db));
  return people;
}

it.each([
  ['Ana', '[customer]'],
  ['Ana called', '[customer] called'],
  ['it was ANA', 'it was [customer]'],
  ['Ana Núñez, Ana', '[customer] [customer], [customer]'],
  ['to calle sol 12 at once', 'to [customer] at once'],
  ['to Calle Sol 123', 'to Calle Sol 123'],
  ['Anabel and banana', 'Anabel and banana'],
  ['(Ana)', '([customer])'],
])('PeopleMask makes of %j %j', async (text, told) => {
  expect((await mask()).text(text)).toBe(told);
});
