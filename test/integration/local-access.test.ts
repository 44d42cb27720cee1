import { type ChildProcess, spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { chmodSync, chownSync, existsSync, mkdirSync, statSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { freePort } from '../support/free-port.ts';
import { MAIN, NODE, openWorkplace, SECRET, until, type Workplace } from '../support/workplace.ts';

const DAEMON = 61_001;
const SHARED_GROUP = 61_002;
const POS = 61_003;
const STRANGER = 61_004;
const KEY = 'key-of-this-test';
const NGINX = '/usr/sbin/nginx';
const canChangeUser = process.getuid?.() === 0 && existsSync('/usr/bin/setpriv');
const AS_DAEMON = ['setpriv', '--reuid', `${DAEMON}`, '--regid', `${DAEMON}`, '--groups', `${SHARED_GROUP}`];

let place: Workplace;
let socket: string;
let proxy: ChildProcess | undefined;

beforeEach(async () => {
  place = await openWorkplace(23);
  chmodSync(place.directory, 0o755);
  chownSync(place.directory, DAEMON, DAEMON);
  const run = path.join(place.directory, 'run');
  mkdirSync(run);
  chownSync(run, DAEMON, DAEMON);
  socket = path.join(run, 'api.sock');
  place.env.TILLSYNC_STORAGE_GROUP = String(SHARED_GROUP);
  place.env.TILLSYNC_LOCAL_SOCKET = socket;
  place.env.TILLSYNC_LOCAL_API_KEY = KEY;
});
afterEach(async () => {
  if (proxy?.exitCode === null) {
    proxy.kill('SIGTERM');
    await once(proxy, 'close');
  }
  proxy = undefined;
  await place.close();
});

/** Returns the HTTP status that a user of this machine gets with curl; 0 without a connection. */
function curl(who: { uid: number; gid: number }, ...words: string[]): number {
  const all = ['-s', '-o', '/dev/null', '-w', '%{http_code}', '-m', '5', ...words];
  return Number(spawnSync('curl', all, { ...who, encoding: 'utf8', cwd: '/' }).stdout);
}
const pos = { uid: POS, gid: SHARED_GROUP };
const stranger = { uid: STRANGER, gid: STRANGER };
const bySocket = (path: string) => ['--unix-socket', socket, `http://localhost${path}`];
const STOCK = ['-H', 'content-type: application/json', '-d', '[{"externalId":"A-1001-1","qty":17}]'];

/** Lets a stranger's program listen on a port. `end` returns what it heard: the path of each request, and one header. */
async function takePort(port: number, header: string) {
  const program = `require('http').createServer((q, a) => {
    console.log(q.url, q.headers['${header}']); q.resume(); a.writeHead(401).end();
  }).listen(${port}, '127.0.0.1', () => console.log('listening'));`;
  const thief = spawn(process.execPath, ['-e', program], { ...stranger, cwd: '/' });
  let heard = '';
  thief.stdout.on('data', (chunk) => {
    heard += chunk;
  });
  await until('it listens', () => heard.includes('listening'));
  return {
    async end(): Promise<string> {
      thief.kill('SIGKILL');
      await once(thief, 'close');
      return heard;
    },
  };
}

describe.skipIf(!canChangeUser)('whoever takes the port of callbacks while tillsync is down', () => {
  it('is not given the secret by a command that tries the address', async () => {
    const daemon = await place.run(...AS_DAEMON);
    expect((await place.command('webhook', 'test')).stdout).toContain('the secret in use is accepted');
    await daemon.end('SIGTERM');
    const thief = await takePort(place.config.webhook.port, 'x-webhook-secret');
    await place.command('webhook', 'test');
    await place.command('doctor', '--offline', '--only', 'webhook');
    const heard = await thief.end();
    expect(heard).toContain('wrong-secret');
    expect(heard).not.toContain(SECRET);
  });
});

describe.skipIf(!canChangeUser)('whoever takes the port of the local API while tillsync is down', () => {
  it('is given neither the key nor the counts of a till, and a till that finds tillsync sends both', async () => {
    delete place.env.TILLSYNC_LOCAL_SOCKET;
    const count = () =>
      spawnSync(NODE, [MAIN, 'push', 'stock', '-'], {
        ...{ ...pos, env: place.env, encoding: 'utf8', cwd: '/' },
        input: '[{"externalId":"A-1001-1","qty":17}]',
      });
    const daemon = await place.run(...AS_DAEMON);
    expect(count()).toMatchObject({ status: 0 });
    await daemon.end('SIGTERM');
    const { port } = place.config.local;
    expect(count().stderr).toContain(`no tillsync answers at http://127.0.0.1:${port} (ECONNREFUSED)`);
    const thief = await takePort(port, 'x-api-key');
    const refused = count();
    expect(refused.stderr).toContain(`http://127.0.0.1:${port} (a program of another user)`);
    expect(refused.status).toBe(1);
    await place.command('doctor', '--offline', '--only', 'service');
    const heard = await thief.end();
    expect(heard).not.toContain(KEY);
    expect(heard).not.toContain('/v1/stock');
  });
});

describe.skipIf(!canChangeUser)('the local API with a key', () => {
  it('is for the group by its socket, and for nobody else without the key', async () => {
    const daemon = await place.run(...AS_DAEMON);
    const { mode, uid, gid } = statSync(socket);
    expect([(mode & 0o777).toString(8), uid, gid]).toEqual(['660', DAEMON, SHARED_GROUP]);
    const byPort = (path: string) => [`${daemon.localUrl}${path}`];
    for (const path of ['/v1/status', '/v1/orders', '/metrics']) {
      expect(curl(pos, ...bySocket(path)), path).toBe(200);
      expect(curl(stranger, ...bySocket(path)), path).toBe(0);
      for (const who of [pos, stranger]) expect(curl(who, ...byPort(path)), path).toBe(401);
      expect(curl(stranger, '-H', `x-api-key: ${KEY}`, ...byPort(path)), path).toBe(200);
    }
    expect(curl(stranger, ...STOCK, ...byPort('/v1/stock'))).toBe(401);
    expect(curl(pos, ...STOCK, ...bySocket('/v1/stock'))).toBe(200);
    await until('it arrived', () => place.sandbox.control.stockOf(1001, 'sub-1') === 17);
    const health = await fetch(`${daemon.localUrl}/healthz`, { headers: { 'x-api-key': '' } });
    expect([health.status, await health.json()]).toEqual([200, { status: 'ok', storage: place.storage }]);

    // A command beside the daemon has no key and uses the socket.
    delete place.env.TILLSYNC_LOCAL_API_KEY;
    const doctor = await place.command('doctor', '--offline', '--only', 'service', '--json');
    const checks = JSON.parse(doctor.stdout).checks as { id: string; level: string; message: string }[];
    const levels = Object.fromEntries(checks.map(({ id, level }) => [id, level]));
    expect(levels).toMatchObject({ 'service.api': 'ok', 'service.version': 'ok' });
    expect(checks.find(({ id }) => id === 'service.api')?.message).toContain(socket);

    await daemon.end('SIGKILL');
    const again = await place.run(...AS_DAEMON);
    expect(curl(pos, ...bySocket('/v1/status'))).toBe(200);
    expect(await again.end('SIGTERM')).toBe(0);
    expect(existsSync(socket)).toBe(false);
  });

  it.skipIf(!existsSync(NGINX))('asks everybody behind a proxy that says nothing of itself', async () => {
    const daemon = await place.run(...AS_DAEMON);
    const port = await freePort();
    const directory = path.join(place.directory, 'nginx');
    mkdirSync(directory);
    chmodSync(directory, 0o777);
    const file = path.join(directory, 'nginx.conf');
    const temporary = ['client_body', 'proxy', 'fastcgi', 'uwsgi', 'scgi']
      .map((kind) => `${kind}_temp_path ${directory}/${kind};`)
      .join(' ');
    writeFileSync(
      file,
      `daemon off; pid ${directory}/pid; error_log ${directory}/error.log; events {}
       http { access_log off; ${temporary}
         server { listen 127.0.0.1:${port}; location / { proxy_pass ${daemon.localUrl}; } } }`,
    );
    proxy = spawn(NGINX, ['-c', file], { stdio: 'ignore' });
    const at = (path: string) => `http://127.0.0.1:${port}${path}`;
    await until('the proxy answers', () => curl(stranger, at('/')) === 200);
    expect(curl(stranger, at('/v1/orders'))).toBe(401);
    expect(curl(stranger, ...STOCK, at('/v1/stock'))).toBe(401);
    expect(curl(stranger, '-H', `authorization: Bearer ${KEY}`, at('/v1/orders'))).toBe(200);
  });
});
