import { readFileSync, rmSync, writeFileSync } from 'node:fs';
import Database from 'better-sqlite3';
import { afterEach, describe, expect, it } from 'vitest';
import { systemClock } from '../../src/core/system-clock.ts';
import { tillsync } from '../cli/run-process.ts';
import { sampleNotification } from '../support/order-samples.ts';
import { limitMs } from '../support/shared-config.ts';
import { type DaemonProcess, until, type Workplace } from '../support/workplace.ts';
import { lastOk, notify, openFaultPlace, rowsOf } from './support/fault-place.ts';
import { mountSmallDisk, type SmallDisk } from './support/small-disk.ts';

interface Pair {
  generation: number;
  refresh_token: string;
  locked_out_cause: string | null;
}

let place: Workplace;
afterEach(() => place.close());

const stored = () => rowsOf<Pair>(place, 'SELECT * FROM tokens', 'state.db')[0] as Pair;
const refreshes = () => place.sandbox.control.calls('token.refresh').length;

/** Starts a daemon that polls each second and has not renewed its tokens, so that a 401 makes it renew them. */
async function open(megabytes?: number): Promise<{ daemon: DaemonProcess; disk: SmallDisk | undefined }> {
  place = await openFaultPlace({ poll: '* * * * * *' });
  const disk = megabytes === undefined ? undefined : mountSmallDisk(place, megabytes);
  const first = await run();
  await first.end('SIGTERM');
  return { daemon: await run(), disk };
}

async function run(): Promise<DaemonProcess> {
  const daemon = await place.run();
  await until('orders were polled', () => lastOk(place, 'orders.poll') !== null);
  await until('the webhook is registered', () => place.sandbox.control.webhook()?.active === true);
  return daemon;
}

/** Makes the daemon renew its tokens; resolves when the platform has the request and has replaced the old tokens. */
async function beginRefresh(answerAfterMs: number): Promise<void> {
  const { control } = place.sandbox;
  const before = refreshes();
  control.setFault({ kind: 'slow-body', endpoint: 'token.refresh', delayMs: answerAfterMs, times: 1 });
  control.expireAccessTokens();
  await until('the platform got the refresh', () => refreshes() > before);
}

/** Freezes the daemon at a moment at which it holds no lock, because a command would wait for that lock in vain. */
async function freezeWithoutLocks({ child }: DaemonProcess): Promise<void> {
  const isFree = (name: string) => {
    const db = new Database(`${place.storage}/${name}`, { timeout: 0 });
    try {
      db.exec('BEGIN IMMEDIATE; ROLLBACK');
      return true;
    } catch {
      return false;
    } finally {
      db.close();
    }
  };
  await until('the daemon froze between two writes', () => {
    child.kill('SIGSTOP');
    const isFrozen = /^State:\tT/m.test(readFileSync(`/proc/${child.pid}/status`, 'utf8'));
    if (isFrozen && isFree('state.db') && isFree('mirror.db')) return true;
    child.kill('SIGCONT');
    return false;
  });
}

/** Expects one more try with the dead token, then no calls while callbacks are stored; then gives new tokens. */
async function expectLockOutAndCure(triesBefore: number): Promise<void> {
  const { control } = place.sandbox;
  await until('the lock-out is known', () => stored().locked_out_cause !== null, 30_000);
  expect(stored().locked_out_cause).toBe('reply-lost');
  expect(control.deadRefreshUses()).toHaveLength(1);
  expect(refreshes()).toBe(triesBefore + 1);
  // A call that was sent before may still arrive.
  await systemClock.sleep(200);
  const calls = control.calls().length;
  expect(await notify(place, sampleNotification(1))).toBe(200);
  const status = await place.command('status', '--json');
  expect(status.stdout).toContain('auth.locked-out');
  await systemClock.sleep(1_500);
  expect(control.calls()).toHaveLength(calls);
  const { refreshToken } = place.sandbox.issueTokens();
  const set = await tillsync(['auth', 'set'], { env: place.env, input: refreshToken });
  expect(set).toMatchObject({ code: 0 });
  const since = new Date().toISOString();
  await until('polls go on', () => (lastOk(place, 'orders.poll') ?? '') > since, 30_000);
  expect(control.deadRefreshUses()).toHaveLength(1);
}

describe('a token refresh', () => {
  it('whose process dies between rotation and save is tried once more, then asks for new tokens', async () => {
    const { daemon } = await open();
    await beginRefresh(3_000);
    await daemon.end('SIGKILL');
    const tries = refreshes();
    await place.run();
    await expectLockOutAndCure(tries);
  });

  it('whose answer is lost on the way is tried once more, then asks for new tokens', async () => {
    await open();
    const tries = refreshes() + 1;
    place.sandbox.control.setFault({ kind: 'drop', endpoint: 'token.refresh', when: 'after', times: 1 });
    place.sandbox.control.expireAccessTokens();
    await until('the answer was lost', () => refreshes() === tries);
    await expectLockOutAndCure(tries);
  });

  it('of a process that froze in it does not overwrite tokens that came meanwhile', async () => {
    const { daemon } = await open();
    await beginRefresh(Math.min(limitMs(3_000), 14_000));
    const before = stored().generation;
    await freezeWithoutLocks(daemon);
    const { token, refreshToken } = place.sandbox.issueTokens();
    const input = JSON.stringify({ refreshToken, token });
    const set = await tillsync(['auth', 'set', '--untried'], { env: place.env, input });
    expect(set).toMatchObject({ code: 0 });
    daemon.child.kill('SIGCONT');
    await until('it gave its own up', () => daemon.log().includes('Renewed tokens were dropped'));
    expect(stored()).toMatchObject({ generation: before + 1, refresh_token: refreshToken });
    const since = new Date().toISOString();
    await until('polls go on', () => (lastOk(place, 'orders.poll') ?? '') > since);
    expect(place.sandbox.control.deadRefreshUses()).toEqual([]);
  });

  it('is saved on a disk without a byte of room', async () => {
    const { daemon, disk } = await open(8);
    disk?.fill();
    const { generation } = stored();
    place.sandbox.control.expireAccessTokens();
    await until('new tokens are on the full disk', () => stored().generation === generation + 1);
    await daemon.end('SIGTERM');
    expect(await place.command('auth', 'refresh')).toMatchObject({ code: 0 });
    expect(stored().generation).toBe(generation + 2);
    disk?.free();
    await run();
    const since = new Date().toISOString();
    await until('polls go on', () => (lastOk(place, 'orders.poll') ?? '') > since);
    expect(place.sandbox.control.deadRefreshUses()).toEqual([]);
  });

  it('that is under way when the end is asked for is seen through to its save', async () => {
    const { daemon } = await open();
    const { generation } = stored();
    // The refresh takes longer than any other part of a stop.
    await beginRefresh(14_000);
    expect(stored().generation).toBe(generation);
    const askedMs = performance.now();
    expect(await daemon.end('SIGTERM')).toBe(0);
    expect(performance.now() - askedMs).toBeLessThan(limitMs(25_000));
    expect(stored()).toMatchObject({ generation: generation + 1, locked_out_cause: null });
    const calls = refreshes();
    await run();
    expect(refreshes()).toBe(calls);
    expect(place.sandbox.control.deadRefreshUses()).toEqual([]);
  });
});

it('a state.db whose pages are overwritten is refused loudly, left as it is, and costs no call', async () => {
  const { daemon } = await open();
  await daemon.end('SIGTERM');
  const file = `${place.storage}/state.db`;
  for (const suffix of ['-wal', '-shm']) rmSync(file + suffix, { force: true });
  const bytes = readFileSync(file);
  writeFileSync(file, Buffer.concat([bytes.subarray(0, 4_096), Buffer.alloc(bytes.length - 4_096, 7)]));
  const damaged = readFileSync(file);
  const calls = place.sandbox.control.calls().length;
  for (const words of [['run'], ['sync', 'orders'], ['auth', 'refresh']]) {
    const { code, stdout, stderr } = await place.command(...words);
    expect(code, words.join(' ')).toBe(1);
    expect(stdout + stderr).toContain('state.db');
    expect(stdout + stderr).toMatch(/damaged/);
  }
  expect(readFileSync(file).equals(damaged)).toBe(true);
  expect(place.sandbox.control.calls()).toHaveLength(calls);
});
