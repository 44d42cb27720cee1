import { mkdtempSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, onTestFinished, test } from 'vitest';
import { openMirror } from '../../src/app/mirror.ts';
import { observation, sampleNotification } from '../orders/open-test-mirror.ts';
import { FakeClock } from '../support/fake-clock.ts';
import { freshMirror } from '../support/fresh-mirror.ts';
import { invoke, unreachedEnv } from './invoke.ts';

const PERSON = ['Ana', 'Núñez', 'ana@example.com', '+56922222222', 'Av. Uno 742', 'depto 12'];

async function shop() {
  const directory = mkdtempSync(join(tmpdir(), 'tillsync-forget-'));
  onTestFinished(() => rmSync(directory, { recursive: true, force: true }));
  const mirror = openMirror({ path: freshMirror(directory), clock: new FakeClock() });
  await mirror.save([
    { kind: 'order', observation: observation('poll', sampleNotification(1005, { status: 'dispatched' })) },
    {
      kind: 'order',
      observation: observation(
        'poll',
        sampleNotification(1006, { status: 'ready', name: 'x', user: { firstName: 'Eva' } }),
      ),
    },
  ]);
  await mirror.close();
  const env = unreachedEnv(directory);
  const found = () => {
    const files = readdirSync(directory, { recursive: true, encoding: 'utf8' })
      .map((name) => join(directory, name))
      .filter((file) => statSync(file).isFile() && !file.endsWith('.before-upgrade'));
    const bytes = Buffer.concat(files.map((file) => readFileSync(file)));
    return PERSON.filter((value) => value !== 'Ana' && bytes.includes(value));
  };
  return { directory, found, run: (...words: string[]) => invoke(words, { env }) };
}

test('customer forget --order takes the customer out of every file, and says which copies still have one', async () => {
  const { directory, found, run } = await shop();
  // Order 1006 has the same address, so its customer is forgotten first; otherwise the address would stay in the files.
  expect(found().length).toBeGreaterThan(3);
  expect((await run('customer', 'forget', '--order', '1006', '--open')).code).toBe(0);
  writeFileSync(join(directory, 'mirror.db.before-upgrade'), 'Núñez');
  const told = await run('customer', 'forget', '--order', '#1005');
  expect(told.stderr).toBe('');
  expect(told).toMatchObject({ code: 0 });
  expect(told.stdout).toContain('Order 1005: its customer is forgotten.');
  expect(told.stdout).toContain(`delete it when you need it no more: ${directory}/mirror.db.before-upgrade`);
  expect(found()).toEqual([]);

  const shown = await run('order', 'show', '1005', '--json');
  expect(JSON.parse(shown.stdout)).toMatchObject({
    order: { code: 1005, status: 'dispatched', customerEmail: null, name: null },
  });
  const again = await run('customer', 'forget', '--order', '1005', '--json');
  expect(JSON.parse(again.stdout)).toMatchObject({ code: 1005, forgotten: false, isClean: true });
});

test('customer forget --order leaves an order that is not over, unless that is asked for', async () => {
  const { run } = await shop();
  const refused = await run('customer', 'forget', '--order', '1006');
  expect(refused.code).toBe(2);
  expect(refused.stderr).toContain('Order 1006 is not over: its status is ready.');
  expect(refused.stderr).toMatch(/customer forget --order \w+ --open/);
  expect((await run('order', 'show', '1006')).stdout).toContain('Eva');
  expect((await run('customer', 'forget', '--order', 'nobody')).stderr).toContain(
    'The mirror has no order "nobody".',
  );
});
