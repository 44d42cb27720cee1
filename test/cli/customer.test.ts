/** Tests src/cli/customer.ts and src/orders/merging/person.ts. */
import { mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { hostname, tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, onTestFinished, test } from 'vitest';
import { openMirror } from '../../src/app/mirror.ts';
import { observation, sampleNotification } from '../orders/open-test-mirror.ts';
import { FakeClock } from '../support/fake-clock.ts';
import { freshMirror } from '../support/fresh-mirror.ts';
import { invoke, unreachedEnv } from './invoke.ts';

const ANA = { firstName: 'Ana', lastName: 'Núñez', email: 'ana@example.com', phoneNumber: '+56 9 2222 2222' };
const FIRST_EVA = { firstName: 'Eva', lastName: 'Rojas', email: 'eva@example.com', phoneNumber: '987654321' };
const OTHER_EVA = { firstName: 'Eva', lastName: 'Rojas', email: 'eva.rojas@example.com' };
const HOME = { phoneNumber: '+56 2 2222 2222', streetAddress: 'Av. Uno' };

/** Makes a shop with orders of four people, two of whom have the same name. */
async function shop() {
  const directory = mkdtempSync(join(tmpdir(), 'tillsync-customer-'));
  onTestFinished(() => rmSync(directory, { recursive: true, force: true }));
  const mirror = openMirror({ path: freshMirror(directory), clock: new FakeClock() });
  const orders: [number, Record<string, unknown>][] = [
    [1001, { user: ANA, address: HOME }],
    // The same phone number without the country's code, and no e-mail.
    [1002, { user: { firstName: 'A.', lastName: 'Nunez', phoneNumber: '922222222' }, address: {} }],
    [1003, { user: FIRST_EVA, address: {}, items: [] }],
    [1004, { user: OTHER_EVA, address: {}, comment: 'call 922222222', status: 'ready' }],
    // A landline of another town whose last eight digits are those of Ana's numbers.
    [1005, { user: { firstName: 'Ida', lastName: 'Paz', phoneNumber: '322222222' }, address: {} }],
  ];
  await mirror.save(
    orders.map(([code, changes]) => ({
      kind: 'order',
      observation: observation(
        'webhook',
        sampleNotification(code, { status: 'dispatched', name: `#${code}`, ...changes }),
      ),
    })),
  );
  await mirror.close();
  const env = unreachedEnv(directory);
  const has = (text: string) =>
    readdirSync(directory, { recursive: true, encoding: 'utf8' })
      .map((name) => join(directory, name))
      .filter((file) => statSync(file).isFile())
      .some((file) => readFileSync(file).includes(text));
  const run = (words: string[], input?: string) =>
    invoke(['customer', ...words], { env, ...(input !== undefined && { input }) });
  return { directory, has, run };
}

const codes = (orders: { code: number }[]) => orders.map(({ code }) => code);

test('customer find knows a person by e-mail, by phone number in any form and by name', async () => {
  const { run } = await shop();
  const found = async (who: string) => JSON.parse((await run(['find', who, '--json'])).stdout);
  for (const [who, orders] of [
    ['ANA@example.com', [1001]],
    ['+56922222222', [1001, 1002]],
    ['9 2222 2222', [1001, 1002]],
    ['nunez ana', [1001]],
    ['222222222', [1001]],
    ['322222222', [1005]],
    ['eva.rojas@example.com', [1004]],
  ] as const) {
    const { people } = await found(who);
    expect([who, codes(people.flatMap((person: { orders: [] }) => person.orders))]).toEqual([who, orders]);
  }
  expect((await found('Ana Núñez')).related).toMatchObject([{ code: 1002 }]);
  expect((await found('eva rojas')).people).toHaveLength(2);
  const { mentions } = await found('922222222');
  expect(mentions).toMatchObject([{ orderId: expect.stringMatching(/1004$/), state: 'newest' }]);
});

test('customer find shows orders and what to type next, and refuses what names nobody', async () => {
  const { run } = await shop();
  const one = await run(['find'], 'ana@example.com\n');
  expect(one.stdout).toMatch(/Ana Núñez +ana@example\.com +\+56 9 2222 2222, \+56 2 2222 2222 +1/);
  expect(one.stdout).toContain('The same e-mail or phone number is also in: order 1002, of A. Nunez.');
  expect(one.stderr).toContain('customer forget');
  expect((await run(['find', 'Nobody'])).stderr).toContain('The mirror has no such person.');
  for (const who of ['12', 'x', '', '1234a']) {
    expect(await run(['find', who])).toMatchObject({ code: 2, stdout: '' });
  }
});

test('customer export has all of one person and nothing of another', async () => {
  const { run } = await shop();
  const { stdout } = await run(['export', '922222222']);
  const document = JSON.parse(stdout);
  expect(codes(document.orders.map(({ order }: { order: { code: number } }) => order))).toEqual([1001, 1002]);
  expect(JSON.parse(document.orders[0].received[0].payload)).toMatchObject({ user: ANA });
  expect(document.orders[0].history.events).toHaveLength(1);
  expect(stdout).not.toMatch(/Eva|Ida/);
  const several = await run(['export', 'Eva Rojas']);
  expect(several).toMatchObject({ code: 2, stdout: '' });
  expect(several.stderr).toContain('2 people have this name. Nothing was exported.');
  expect(await run(['export', 'nobody@example.com'])).toMatchObject({ code: 1, stdout: '' });
});

test('customer forget leaves no byte of the person, and everything of the others', async () => {
  const { directory, has, run } = await shop();
  const copy = join(directory, 'backups', `tillsync-${hostname().toLowerCase()}-20260101T000000Z.tar.gz`);
  mkdirSync(join(directory, 'backups'));
  writeFileSync(copy, '');
  expect(has('+56 9 2222 2222')).toBe(true);
  const { code, stdout } = await run(['forget'], '+56 922222222');
  expect([code, stdout]).toEqual([0, expect.stringContaining('2 orders without this person from now on.')]);
  expect(stdout).toContain(`This copy still has the person: ${copy}`);
  expect(stdout).toMatch(/Further texts name it: the text of order 65a1\d+1004 \(newest, o\d+\)/);
  for (const text of ['ana@example.com', 'Núñez', 'Nunez', '+56 9 2222 2222', '+56 2 2222 2222']) {
    expect([text, has(text)]).toEqual([text, false]);
  }
  for (const text of ['eva@example.com', 'Ida']) expect([text, has(text)]).toEqual([text, true]);
  const again = await run(['forget', '922222222']);
  expect([again.code, again.stderr]).toEqual([1, expect.stringContaining('Nothing was forgotten.')]);
});

test('customer forget shows two people of one name and does nothing', async () => {
  const { has, run } = await shop();
  const several = await run(['forget', 'eva rojas', '--open']);
  expect(several).toMatchObject({ code: 2, stdout: '' });
  expect(several.stderr).toMatch(
    /eva@example\.com[\s\S]*eva\.rojas@example\.com[\s\S]*Nothing was forgotten/,
  );
  expect(has('eva@example.com') && has('eva.rojas@example.com')).toBe(true);
});

test('customer forget leaves an order that is not over, unless that is asked for', async () => {
  const { has, run } = await shop();
  const left = await run(['forget', 'eva.rojas@example.com']);
  expect([left.code, left.stdout]).toEqual([3, expect.stringContaining('Order 1004 is not over (ready)')]);
  expect(has('eva.rojas@example.com')).toBe(true);
  expect(await run(['forget', 'eva.rojas@example.com', '--open'])).toMatchObject({ code: 0 });
  expect(has('eva.rojas@example.com')).toBe(false);
});
