import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { request } from 'undici';
import { afterEach, describe, expect, it } from 'vitest';
import { silentLog } from '../../src/core/log.ts';
import { systemClock } from '../../src/core/system-clock.ts';
import { startDaemon } from '../../src/daemon/daemon.ts';
import { watchdogLoop } from '../../src/daemon/service.ts';
import { createHttpTransport } from '../../src/platform/transport.ts';
import { API_KEY } from '../support/api-key.ts';
import { seededRandom } from '../support/fake-clock.ts';
import { hastyClock } from '../support/hasty-clock.ts';
import { sampleNotification } from '../support/order-samples.ts';
import { limitMs } from '../support/shared-config.ts';
import { MAIN, NODE, SECRET, until, type Workplace } from '../support/workplace.ts';
import { lastOk, notify, openFaultPlace, rowsOf } from './support/fault-place.ts';
import { faultyDisk } from './support/faulty-disk.ts';

let place: Workplace;
const children: ChildProcess[] = [];
afterEach(async () => {
  for (const child of children.splice(0)) child.kill('SIGKILL');
  // The daemon that the socket's holder started keeps running without the holder.
  const pidFile = path.join(place.directory, 'pid');
  if (existsSync(pidFile)) killIfThere(Number(readFileSync(pidFile, 'utf8')));
  await place.close();
});

function killIfThere(pid: number): void {
  try {
    process.kill(pid, 'SIGKILL');
  } catch {
    // The process has ended by itself.
  }
}

const EVERY_SECOND = '* * * * * *';
const polled = (since = '') =>
  until('orders were polled', () => (lastOk(place, 'orders.poll') ?? '') > since, 20_000);
const gapsMs = () => {
  const at = place.sandbox.control.calls('order.all').map(({ arrivedMs }) => arrivedMs);
  return at.slice(1).map((each, i) => each - (at[i] as number));
};

it('restarts and kills under load refuse no callback while the socket is held open', async () => {
  place = await openFaultPlace();
  const pidFile = path.join(place.directory, 'pid');
  const holder = path.join(import.meta.dirname, 'support/socket-holder.pl');
  const { port } = place.config.webhook;
  const keeper = spawn('perl', [holder, String(port), pidFile, NODE, MAIN, 'run'], {
    env: place.env,
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  children.push(keeper);
  let log = '';
  keeper.stdout?.on('data', (chunk) => {
    log += chunk;
  });
  keeper.stderr?.on('data', (chunk) => {
    log += chunk;
  });
  const started = () => log.split('tillsync is running').length - 1;
  const signal = async (name: NodeJS.Signals) => {
    const before = started();
    process.kill(Number(readFileSync(pidFile, 'utf8')), name);
    await until(`it is back after ${name}`, () => started() > before);
  };
  await until('it runs', () => started() === 1);
  const sent: ReturnType<typeof notify>[] = [];
  const load = new AbortController();
  const sending = (async () => {
    while (!load.signal.aborted) {
      sent.push(notify(place, sampleNotification(sent.length + 1)));
      await systemClock.sleep(25);
    }
  })();
  for (const name of ['SIGTERM', 'SIGKILL', 'SIGTERM', 'SIGKILL'] as const) await signal(name);
  load.abort();
  await sending;
  const statuses = await Promise.all(sent);
  expect(statuses.length).toBeGreaterThan(30);
  // A kill cuts the connections that the process had accepted; all other requests wait in the listening socket.
  const cut = statuses.filter((status) => status === 'failed').length;
  expect(cut).toBeLessThan(10);
  expect(statuses.filter((status) => status !== 200 && status !== 'failed')).toEqual([]);
  const orders = rowsOf(place, 'SELECT order_id FROM orders').length;
  expect(orders).toBeGreaterThanOrEqual(statuses.length - cut);
  process.kill(keeper.pid as number, 'SIGTERM');
  await once(keeper, 'exit');
});

it('a wall clock that jumps an hour ahead, an hour back and to 1970 neither stalls nor bursts', async () => {
  place = await openFaultPlace({ poll: EVERY_SECOND });
  const { control } = place.sandbox;
  const machine = faultyDisk(place);
  const daemon = await place.run();
  await polled();
  const hour = 3_600;
  for (const offset of [hour, -hour, -Math.floor(Date.now() / 1_000) + 86_400, 0]) {
    machine.begin('wall-offset', String(offset));
    const before = control.calls('order.all').length;
    await until(
      `three polls follow on a jump to ${offset} s`,
      () => control.calls('order.all').length >= before + 3,
      10_000,
    );
  }
  expect(Math.max(...gapsMs())).toBeLessThan(limitMs(5_000));
  expect(Math.min(...gapsMs())).toBeGreaterThanOrEqual(place.config.limits.ordersIntervalMs);
  const order = control.createOrder({}, { hidden: true });
  await until('orders are found', () =>
    place.mirrorRows().some((row) => row.order_id === order.internalOrderId),
  );
  expect(control.violations()).toEqual([]);
  expect(control.deadRefreshUses()).toEqual([]);
  expect(await daemon.end('SIGTERM')).toBe(0);
});

describe('the sign of life for the service manager', () => {
  const LIMIT_MS = 600;

  /**
   * Starts the daemon as systemd does, with `program` loaded into the same process, and collects its messages to
   * systemd.
   */
  async function start(program: string) {
    place = await openFaultPlace({ poll: EVERY_SECOND });
    const file = path.join(place.directory, 'program.mjs');
    writeFileSync(file, program);
    const child = spawn(NODE, ['--import', file, MAIN, 'run'], {
      env: { ...place.env, NOTIFY_FD: '3', WATCHDOG_USEC: String(LIMIT_MS * 1_000) },
      stdio: ['ignore', 'ignore', 'ignore', 'pipe'],
    });
    children.push(child);
    let news = '';
    child.stdio[3]?.on('data', (chunk) => {
      news += chunk;
    });
    await until('it is ready', () => news.includes('READY=1'));
    return { child, news: () => news, signs: () => news.split('WATCHDOG=1').length - 1 };
  }

  it('is missing for as long as the event loop is blocked', async () => {
    const { child, news, signs } = await start(
      `import { writeSync } from 'node:fs';
      process.on('SIGUSR2', () => { writeSync(3, 'BLOCKED'); const end = Date.now() + ${LIMIT_MS * 4}; while (Date.now() < end); });`,
    );
    await until('it lives', () => signs() > 2);
    child.kill('SIGUSR2');
    await until('the loop is blocked', () => news().includes('BLOCKED'));
    const before = signs();
    await systemClock.sleep(LIMIT_MS * 2);
    expect(signs()).toBe(before);
    await until('it lives again', () => signs() > before);
  });

  it('is withheld while calls never come back, though the process answers', async () => {
    place = await openFaultPlace();
    // With a faster clock, or without an access token from the start, calls would time out on a busy machine.
    const clock = hastyClock(120);
    const { token, refreshToken } = place.sandbox.issueTokens();
    const transport = createHttpTransport({ userAgent: 'tillsync/test', baseUrl: place.sandbox.url, clock });
    let isStuck = false;
    const daemon = await startDaemon({
      config: { ...place.config, orders: { ...place.config.orders, poll: '* * * * *' } },
      secrets: { refreshToken, accessToken: token, webhookSecrets: [SECRET], localApiKey: API_KEY },
      clock,
      random: seededRandom(3),
      log: silentLog,
      transport: {
        ...transport,
        send: (wanted) => (isStuck ? new Promise(() => {}) : transport.send(wanted)),
      },
    });
    let signs = 0;
    const stop = new AbortController();
    const watching = watchdogLoop({
      manager: {
        tell({ WATCHDOG }) {
          if (WATCHDOG) signs += 1;
        },
        watchdogMs: 30_000,
      },
      stalledLoops: daemon.stalledLoops,
      clock,
      log: silentLog,
      signal: stop.signal,
    });
    const health = async () => (await request(`${daemon.localUrl}/healthz`)).statusCode;
    await clock.sleep(12 * 60_000);
    expect([await health(), daemon.stalledLoops()]).toEqual([200, []]);
    expect(signs).toBeGreaterThan(20);
    isStuck = true;
    await until('the dead loop is known', () => daemon.stalledLoops().includes('orders'));
    expect(await health()).toBe(503);
    const before = signs;
    await clock.sleep(2 * 60_000);
    expect(signs).toBe(before);
    stop.abort();
    await watching;
    // The stuck call never ends, so stopping is not awaited.
    void daemon.stop();
  });
});
