import { once } from 'node:events';
import {
  appendFileSync,
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  statSync,
  writeFileSync,
} from 'node:fs';
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import path from 'node:path';
import { gunzipSync } from 'node:zlib';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { type DaemonProcess, openWorkplace, until, type Workplace } from '../support/workplace.ts';

const TOKEN = '5f0c2b7a9d3e4c61';
const PERIOD_MS = 2_000;

/** A stand-in for an outside monitoring service, which knows only the requests that it gets. */
interface Watcher {
  /** Path and query of the address that the service gives its user for the heartbeats. */
  address: string;
  answer(request: IncomingMessage, response: ServerResponse): void;
  /** Whether the service would tell its user now that the store is down. */
  isDown(): boolean;
  said: string[];
}

/**
 * Receives pings as healthchecks.io does (hc/api/views.py). A path that ends with `/fail` reports a failure, and an
 * unknown path is answered with 404.
 */
function healthchecks(): Watcher {
  let [lastMs, failed] = [0, false];
  const said: string[] = [];
  return {
    address: `/${TOKEN}`,
    said,
    isDown: () => failed || performance.now() - lastMs > PERIOD_MS * 2,
    answer(request, response) {
      const [, token, action] = (request.url ?? '').split('/');
      if (token !== TOKEN || !(action === undefined || action === 'fail')) {
        response.writeHead(404).end('not found');
        return;
      }
      [lastMs, failed] = [performance.now(), action === 'fail'];
      said.push(action ?? 'success');
      response.end('OK');
    },
  };
}

/**
 * Receives pushes as Uptime Kuma does (server/routers/api-router.js): a `status` other than `up` means down,
 * and the answer is JSON.
 */
function uptimeKuma(): Watcher {
  let [lastMs, isUp] = [0, false];
  const said: string[] = [];
  return {
    address: `/api/push/${TOKEN}?status=up&msg=OK&ping=`,
    said,
    isDown: () => !isUp || performance.now() - lastMs > PERIOD_MS * 2,
    answer(request, response) {
      const url = new URL(request.url ?? '', 'http://kuma');
      const ping = url.searchParams.get('ping');
      const isKnown = url.pathname === `/api/push/${TOKEN}`;
      if (isKnown && !Number.isNaN(Number(ping ?? ''))) {
        [lastMs, isUp] = [performance.now(), (url.searchParams.get('status') ?? 'up') === 'up'];
        said.push(`${isUp ? 'up' : 'down'} ${url.searchParams.get('msg')}`);
        response.end('{"ok":true}');
      } else response.writeHead(404).end('{"ok":false,"msg":"Monitor not found or not active."}');
    },
  };
}

describe.each([
  { service: 'healthchecks.io', make: healthchecks, well: 'success', red: 'fail' },
  { service: 'Uptime Kuma', make: uptimeKuma, well: 'up OK', red: 'down auth.locked-out' },
])('a store watched by $service', ({ make, well, red }) => {
  let place: Workplace;
  let server: Server;
  let watcher: Watcher;
  let address: string;
  beforeEach(async () => {
    place = await openWorkplace(3, { accessTokenLifetimeMs: 2_500 });
    watcher = make();
    server = createServer((request, response) => watcher.answer(request, response));
    server.listen(0, '127.0.0.1');
    await once(server, 'listening');
    address = `http://127.0.0.1:${(server.address() as AddressInfo).port}${watcher.address}`;
    appendFileSync(place.configFile, '\n[alarms]\nheartbeat_every = "1s"\n');
    place.env.TILLSYNC_HEARTBEAT_URL = address;
  });
  afterEach(async () => {
    await place.close();
    server.closeAllConnections();
    server.close();
  });

  it('is heard while it is well, told when it is red, and missed when it dies', async () => {
    const daemon = await place.run();
    await until('it is heard', () => watcher.said.length >= 3);
    expect(new Set(watcher.said)).toEqual(new Set([well]));
    expect(watcher.isDown()).toBe(false);

    const test = await place.command('config', 'test-alarms', '--json');
    expect(JSON.parse(test.stdout)).toMatchObject({
      ok: true,
      by: 'daemon',
      results: [{ receiver: 'heartbeat', ok: true }],
    });
    await until('the doctor knows', async () => (await heartbeatLine()).level === 'ok');

    place.sandbox.control.revokeRefreshTokens();
    await until('it says red', () => watcher.said.at(-1) === red);
    expect(watcher.isDown()).toBe(true);
    await daemon.end('SIGKILL');
    await until('it is missed', () => watcher.isDown());
    await noneLeaks(daemon, test.stdout + test.stderr);
  });

  it('whose watcher is gone goes on as before, and says so in the doctor and nowhere else', async () => {
    watcher.answer = (_request, response) => void response.writeHead(404).end('not found');
    const daemon = await place.run();
    await until('the doctor knows', async () => (await heartbeatLine()).level === 'warn');
    expect((await heartbeatLine()).message).toMatch(/has not arrived .*answered 404/);
    await until('orders come', () => place.differences().length === 0);
    const status = JSON.parse((await place.command('status', '--json')).stdout);
    expect(status.alarms).toEqual([]);
    const test = await place.command('config', 'test-alarms');
    expect(test.code).toBe(1);
    await noneLeaks(daemon, test.stdout + test.stderr);
  });

  async function heartbeatLine(): Promise<{ level: string; message: string }> {
    const { stdout } = await place.command('doctor', '--offline', '--only', 'alarms', '--json');
    const { checks } = JSON.parse(stdout) as { checks: { id: string; level: string; message: string }[] };
    return checks.find(({ id }) => id === 'alarms.heartbeat') ?? { level: '', message: '' };
  }

  /**
   * Checks that the token of the heartbeat address is in no output and in no stored file, and not in a bundle either,
   * even if the address is in the configuration file.
   */
  async function noneLeaks(daemon: DaemonProcess, said: string): Promise<void> {
    expect(daemon.log() + said).not.toContain(TOKEN);
    for (const name of readdirSync(place.storage)) {
      const file = path.join(place.storage, name);
      if (statSync(file).isFile()) expect(readFileSync(file).includes(TOKEN), name).toBe(false);
    }
    const config = readFileSync(place.configFile, 'utf8');
    writeFileSync(place.configFile, config.replace('[alarms]', `[alarms]\nheartbeat_url = "${address}"`));
    delete place.env.TILLSYNC_HEARTBEAT_URL;
    const bundle = path.join(place.directory, 'bundle.tar.gz');
    if (!existsSync(place.directory)) mkdirSync(place.directory);
    const { stdout, stderr } = await place.command('bundle', bundle);
    expect(stdout + stderr).not.toContain(TOKEN);
    const content = gunzipSync(readFileSync(bundle)).toString('utf8');
    expect(content).toContain('heartbeatUrl');
    expect(content).not.toContain(TOKEN);
  }
});
