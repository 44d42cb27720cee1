import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { openMirror } from '../../src/app/mirror.ts';
import { FakeClock } from '../support/fake-clock.ts';
import { freePort } from '../support/free-port.ts';
import { invoke } from './invoke.ts';

const directory = mkdtempSync(join(tmpdir(), 'tillsync-at-branch-'));
const env = { TILLSYNC_CONFIG: join(directory, 'config.toml') };

/** Makes the mirror of a branch, with an alarm, a stock, and the freshness of the hub's polls and sweeps. */
beforeAll(async () => {
  writeFileSync(
    env.TILLSYNC_CONFIG,
    `[storage]\ndirectory = "${directory}"\n[link]\nhub = "nats://127.0.0.1:9"\nbranch = "B1"\n`,
  );
  const mirror = openMirror({ path: join(directory, 'mirror.db'), clock: new FakeClock() });
  mirror.health.ok('orders.poll');
  mirror.health.ok('catalog.sweep');
  mirror.health.note('storage.low', 'Only 100 MiB are free.');
  await mirror.write((db) =>
    db.exec("INSERT INTO _stocks (sku, subsidiary_id, qty) VALUES ('1', 'sub-1', 5)"),
  );
  await mirror.close();
});
afterAll(() => rmSync(directory, { recursive: true, force: true }));

async function stored() {
  const mirror = openMirror({ path: join(directory, 'mirror.db'), clock: new FakeClock(), readonly: true });
  const rows = mirror.read((db) =>
    ['freshness', 'alarms'].map((table) => db.prepare(`SELECT * FROM ${table} ORDER BY 1`).all()),
  );
  await mirror.close();
  return rows;
}

test.each([
  ['sync orders'],
  ['sync orders --wide'],
  ['sync catalog'],
  ['sync catalog --branch B1'],
  ['sync diff'],
  ['product show --sku 1001 --live'],
  ['auth set'],
  ['auth set --untried'],
  ['auth refresh'],
  ['webhook show'],
  ['webhook set --url https://shop.example/webhook'],
  ['webhook set --off'],
  ['webhook rotate-secret'],
  ['webhook test'],
])('%s is refused at a branch, and nothing of the branch is changed', async (typed) => {
  const before = await stored();
  expect(before[0]).not.toEqual([]);
  expect(before[1]).toHaveLength(1);
  const { code, stdout, stderr } = await invoke(typed.split(' '), { env, input: 'a-refresh-token\n' });
  expect({ code, stdout }).toEqual({ code: 2, stdout: '' });
  expect(stderr).toMatch(
    /This is a branch: only its hub calls the platform\.\s+Run the command at the hub\./,
  );
  expect(await stored()).toEqual(before);
  expect(existsSync(join(directory, 'state.db'))).toBe(false);
});

test('a branch is not told to hand over tokens', async () => {
  const none = 'This is a branch, which needs no tokens: only its hub calls the platform.';
  expect(await invoke(['auth', 'status'], { env })).toMatchObject({ code: 0, stdout: `${none}\n` });
  const told = JSON.parse((await invoke(['auth', 'status', '--json'], { env })).stdout);
  expect(told).toMatchObject({ state: 'none', needsNewTokens: false });
  const checked = await invoke(['config', 'check'], { env });
  expect(checked).toMatchObject({ code: 0, stdout: expect.stringContaining(`Tokens: ${none}`) });
});

test('stock set --branch takes at a branch the id that its catalogue has for it, as push does', async () => {
  const set = (branch: string) =>
    invoke(['stock', 'set', '--external-id', 'A', '--qty', '3', '--branch', branch, '--json'], { env });
  expect(await set('sub-9')).toMatchObject({ code: 2 });
  for (const branch of ['B1', 'sub-1']) expect(await set(branch)).toMatchObject({ code: 0 });
});

test('init asks at a branch for nothing of the platform', async () => {
  const group = String(process.getgid?.());
  // A service of this machine may use the usual port.
  const listen = ['--local-listen', `127.0.0.1:${await freePort()}`];
  const words = ['init', '--yes', '--group', group, '--no-start', '--json'];
  const told = await invoke([...words, ...listen], { env });
  expect(told).toMatchObject({ code: 0, stderr: '' });
  expect(readFileSync(env.TILLSYNC_CONFIG, 'utf8')).toContain(`group = "${group}"`);
  expect(readFileSync(env.TILLSYNC_CONFIG, 'utf8')).toContain('branch = "B1"');
});
