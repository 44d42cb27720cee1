/** Tests src/cli/daemon-client.ts. */

import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { chmodSync, chownSync, existsSync, mkdirSync, statSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { MAIN, NODE, openWorkplace, until, type Workplace } from '../support/workplace.ts';

const DAEMON = 61_001;
const SHARED_GROUP = 61_002;
const POS = 61_003;
const canChangeUser = process.getuid?.() === 0 && existsSync('/usr/bin/setpriv');
const AS_DAEMON = ['setpriv', '--reuid', `${DAEMON}`, '--regid', `${DAEMON}`, '--groups', `${SHARED_GROUP}`];

let place: Workplace;

beforeEach(async () => {
  place = await openWorkplace(23);
  chmodSync(place.directory, 0o755);
  chownSync(place.directory, DAEMON, DAEMON);
  const run = path.join(place.directory, 'run');
  mkdirSync(run);
  chownSync(run, DAEMON, DAEMON);
  place.env.TILLSYNC_STORAGE_GROUP = String(SHARED_GROUP);
  place.env.TILLSYNC_LOCAL_SOCKET = path.join(run, 'api.sock');
  place.env.TILLSYNC_LOCAL_API_KEY = 'a-key-that-the-till-has-not';
});
afterEach(() => place.close());

/** Runs a command as the till's own Unix user, which knows no secret. */
async function asTill(words: string[], input = '', env: Record<string, string> = {}) {
  const { TILLSYNC_LOCAL_API_KEY: _key, TILLSYNC_REFRESH_TOKEN: _token, ...known } = place.env;
  const { TILLSYNC_WEBHOOK_SECRET: _secret, NODE_COMPILE_CACHE: _cache, ...own } = known;
  const user = { uid: POS, gid: SHARED_GROUP, cwd: '/' };
  const child = spawn(NODE, [MAIN, ...words], { ...user, env: { ...own, ...env } });
  child.stdin.end(input);
  let [stdout, stderr] = ['', ''];
  child.stdout.on('data', (chunk) => {
    stdout += chunk;
  });
  child.stderr.on('data', (chunk) => {
    stderr += chunk;
  });
  await once(child, 'close');
  return { code: child.exitCode, stdout, stderr };
}

describe.skipIf(!canChangeUser)('the till under its own Unix user', () => {
  it('pushes counts, shows a whole inventory and acknowledges, through the running tillsync', async () => {
    const { control } = place.sandbox;
    const daemon = await place.run(...AS_DAEMON);
    const order = control.createOrder({ status: 'payment-approved' });
    await until('the order is here', () => place.mirrorRows().length === 1);
    await until('the catalogue is read', async () => {
      return (await asTill(['push', 'stock', '-', '--full', '--dry-run'], 'sku,qty\n1001,1\n')).code !== 2;
    });

    const pushed = await asTill(
      ['push', 'stock', '-', '--wait', '--json'],
      'externalId,qty,reference\nA-1001-1,17,till-7/88\nA-1001-1,x,\nNOWHERE,1,\n',
    );
    expect({ ...pushed, stdout: JSON.parse(pushed.stdout) }).toMatchObject({
      code: 3,
      stdout: { items: 3, unreadable: 1, done: 1, rejected: 1, pending: 0 },
      stderr: expect.stringContaining('line 3: qty "x" is not a number.'),
    });
    const named = await place.command('outbox', 'list', '--reference', 'till-7/88', '--json');
    expect(JSON.parse(named.stdout).changes).toMatchObject([{ reference: 'till-7/88', source: 'http' }]);
    expect(pushed.stderr).toMatch(/line 4: .*NOWHERE/);
    expect(control.stockOf(1001, 'sub-1')).toBe(17);

    const full = ['push', 'stock', '-', '--full', '--branch', 'sub-1', '--missing', 'zero'];
    const shown = await asTill([...full, '--dry-run'], 'externalId,qty\nA-1001-1,3\n');
    expect(shown.stdout).toMatch(/Not named are \d+ of \d+ known stocks/);
    expect(shown.stdout).toContain('Held for a person: The inventory lacks');
    expect(shown.stdout).toMatch(/held +sku \d+ in sub-1|held .*qty 0/);
    expect(control.stockOf(1001, 'sub-1')).toBe(17);
    const emptied = JSON.parse((await asTill([...full, '--json'], 'externalId,qty\nA-1001-1,3\n')).stdout);
    expect(emptied).toMatchObject({ pending: 0, inventory: { hold: expect.stringContaining('lacks') } });
    expect(emptied.held).toBeGreaterThan(5);

    const prices = await asTill(['push', 'products', '-', '--dry-run'], 'sku,price\n1001,2490\n');
    expect(prices).toMatchObject({ code: 0, stdout: expect.stringContaining('Would be sent: 1 in 1 call') });

    const acked = await asTill(['order', 'ack', String(order.code)]);
    expect(acked).toMatchObject({ code: 0, stdout: '1 orders acknowledged, 0 were before.\n' });
    await daemon.end('SIGTERM');
  });

  it('tries a hook through the running tillsync, and so does root, by the socket of the service', async () => {
    place.env.TILLSYNC_HOOKS = '[{"name":"printer","command":["/usr/bin/id","-u"]}]';
    const daemon = await place.run(...AS_DAEMON);
    const { mode, uid } = statSync(path.join(place.storage, 'local.sock'));
    expect([(mode & 0o777).toString(8), uid]).toEqual(['600', DAEMON]);
    const order = place.sandbox.control.createOrder({ status: 'payment-approved' });
    await until('the order is here', () => place.mirrorRows().length === 1);
    const words = ['hooks', 'test', 'printer', '--json'];
    for (const tested of [await asTill(words), await place.command(...words, '--order', `${order.code}`)]) {
      expect(tested.code, tested.stderr).toBe(0);
      expect(JSON.parse(tested.stdout)).toMatchObject({ ok: true, by: 'daemon', answer: `${DAEMON}` });
    }
    await daemon.end('SIGTERM');
    expect(JSON.parse((await place.command(...words)).stdout)).toMatchObject({ ok: true, by: 'command' });
    const alone = await asTill(words);
    expect([alone.code, alone.stderr]).toEqual([1, expect.stringContaining('no tillsync answers at')]);
  });

  it('hands a file over that can be undone by its name', async () => {
    const daemon = await place.run(...AS_DAEMON);
    await until('the catalogue is read', async () => {
      return (await asTill(['push', 'stock', '-', '--full', '--dry-run'], 'sku,qty\n1001,1\n')).code !== 2;
    });
    const file = path.join(place.directory, 'stock, of today.csv');
    writeFileSync(file, 'externalId,qty\nA-1001-1,17\n', { mode: 0o644 });
    expect(await asTill(['push', 'stock', file])).toMatchObject({ code: 0 });
    const undo = async (name: string) => {
      const { stdout } = await place.command('outbox', 'undo', '--file', name, '--dry-run', '--json');
      return JSON.parse(stdout).lines.map(({ now }: { now: object }) => now);
    };
    expect(await undo(file)).toEqual([{ qty: 17 }]);
    expect(await undo('other.csv')).toEqual([]);
    await daemon.end('SIGTERM');
  });

  it('is told the literal command where no tillsync answers, or the key lacks the right', async () => {
    const daemon = await place.run(...AS_DAEMON);
    const added = await place.command('key', 'add', 'till-1', '--may', 'orders');
    expect(added.code, added.stderr).toBe(0);
    const env = { TILLSYNC_LOCAL_SOCKET: '', TILLSYNC_LOCAL_API_KEY: added.stdout.trim() };
    const forbidden = await asTill(['push', 'stock', '-'], 'sku,qty\n1001,1\n', env);
    expect(forbidden).toMatchObject({ code: 1, stderr: expect.stringContaining('has not the right stock') });
    await daemon.end('SIGTERM');
    const alone = await asTill(['push', 'stock', '-', '--dry-run'], 'sku,qty\n1001,1\n');
    expect(alone.code).toBe(1);
    expect(alone.stderr).toContain('no tillsync answers at');
    expect(alone.stderr).toMatch(/Or run: sudo .*push stock - --dry-run/);
  });
});
