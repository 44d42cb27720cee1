import { readdirSync, readFileSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, expect, it } from 'vitest';
import { openWorkplace, until, type Workplace } from '../support/workplace.ts';

let place: Workplace;
afterEach(() => place.close());

/** Returns the customer's texts that a file of the storage directory still contains. */
function found(texts: readonly string[]): string[] {
  const files = readdirSync(place.storage, { recursive: true, encoding: 'utf8' })
    .map((name) => join(place.storage, name))
    .filter((file) => statSync(file).isFile());
  const bytes = Buffer.concat(files.map((file) => readFileSync(file)));
  return texts.filter((text) => bytes.includes(text));
}

it('forgets a customer beside the running daemon, which goes on and does not bring them back', async () => {
  place = await openWorkplace(31);
  const { control } = place.sandbox;
  const daemon = await place.run();
  await until('the webhook is registered', () => control.webhook()?.active === true);
  const order = control.createOrder();
  for (let i = 0; i < 20; i++) control.createOrder();
  const id = order.internalOrderId as string;
  for (const status of ['payment-approved', 'inProcess', 'ready', 'dispatched'])
    control.advanceOrder(id, status);
  await control.settled();
  await until('mirror and platform are equal', () => place.differences().length === 0);
  const { email, phoneNumber } = order.user as { email: string; phoneNumber: string };
  const ofOthers = JSON.stringify(control.orders().filter(({ internalOrderId }) => internalOrderId !== id));
  const own = [email, phoneNumber].filter((text) => !ofOthers.includes(text));
  expect(found(own)).toEqual(own);
  expect(own.length).toBeGreaterThan(0);

  const { code, stdout, stderr } = await place.command('customer', 'forget', '--order', id);
  expect({ code, stderr }).toEqual({ code: 0, stderr: '' });
  expect(stdout).toContain('its customer is forgotten');
  expect(found(own)).toEqual([]);

  // Callbacks continue, and polls that contain the order do not bring its customer back.
  const next = control.createOrder();
  await control.settled();
  await until('the next order is there', () =>
    place.mirrorRows().some((row) => JSON.stringify(row).includes(next.internalOrderId as string)),
  );
  const polls = control.calls('order.all').length;
  await until('another poll came', () => control.calls('order.all').length > polls + 1);
  expect(found(own)).toEqual([]);
  expect(await daemon.end('SIGTERM')).toBe(0);
});
