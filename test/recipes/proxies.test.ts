import { type ChildProcess, execFileSync, spawn } from 'node:child_process';
import { once } from 'node:events';
import { chmodSync, existsSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import tls from 'node:tls';
import Database from 'better-sqlite3';
import { afterEach, describe, expect, it } from 'vitest';
import { freePort } from '../support/free-port.ts';
import { sampleNotification } from '../support/order-samples.ts';
import { openWorkplace, SECRET, until, type Workplace } from '../support/workplace.ts';

const APACHE_MODULES = ['mpm_event', 'authz_core', 'socache_shmcb', 'ssl', 'proxy', 'proxy_http'];

interface Proxy {
  name: string;
  program: string;
  /** Name of the example configuration to which the operator's guide links. */
  shown: string;
  /**
   * `around` makes a complete configuration from the example in `shown`. `words` returns the arguments with which the
   * program reads the configuration in `file`.
   */
  around: (shown: string, directory: string, port: number) => string;
  words: (file: string) => string[];
}

const PROXIES: Proxy[] = [
  {
    name: 'nginx',
    program: '/usr/sbin/nginx',
    shown: 'nginx.conf',
    around: (shown, directory) =>
      `daemon off; pid ${directory}/pid; error_log ${directory}/error.log; events {}
       http { access_log off; ${['client_body', 'proxy', 'fastcgi', 'uwsgi', 'scgi']
         .map((kind) => `${kind}_temp_path ${directory}/${kind};`)
         .join(' ')}
       ${shown} }`,
    words: (file) => ['-c', file],
  },
  {
    name: 'Caddy',
    program: '/usr/bin/caddy',
    shown: 'Caddyfile',
    around: (shown, directory, port) =>
      `{\n  admin off\n  auto_https disable_redirects\n  https_port ${port}\n}\n${shown.replace('{', `{\n  tls ${directory}/fullchain.pem ${directory}/privkey.pem`)}`,
    words: (file) => ['run', '--adapter', 'caddyfile', '--config', file],
  },
  {
    name: 'Apache',
    program: '/usr/sbin/apache2',
    shown: 'apache.conf',
    around: (shown, directory, port) =>
      [
        `ServerRoot ${directory}\nPidFile ${directory}/pid\nErrorLog ${directory}/error.log\nServerName localhost`,
        ...APACHE_MODULES.map((name) => `LoadModule ${name}_module /usr/lib/apache2/modules/mod_${name}.so`),
        `User www-data\nGroup www-data\nListen ${port}\n${shown}`,
      ].join('\n'),
    words: (file) => ['-f', file, '-DFOREGROUND'],
  },
];

let place: Workplace;
let proxy: ChildProcess | undefined;

afterEach(async () => {
  if (proxy?.exitCode === null) {
    proxy.kill('SIGTERM');
    await once(proxy, 'close');
  }
  await place?.close();
});

/** Starts the proxy with its own certificate in front of the store's receiver; returns the proxy's callback address. */
async function startProxy({ program, shown, around, words }: Proxy): Promise<string> {
  const directory = path.join(place.directory, 'proxy');
  mkdirSync(directory);
  chmodSync(place.directory, 0o755);
  const certificate = path.join(directory, 'fullchain.pem');
  const request =
    'req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=localhost -addext subjectAltName=DNS:localhost';
  execFileSync(
    'openssl',
    [...request.split(' '), '-keyout', path.join(directory, 'privkey.pem'), '-out', certificate],
    { stdio: 'ignore' },
  );
  tls.setDefaultCACertificates([...tls.getCACertificates('default'), readFileSync(certificate, 'utf8')]);
  const port = await freePort();
  const text = readFileSync(path.join(import.meta.dirname, 'proxy', shown), 'utf8')
    .replaceAll('/etc/letsencrypt/live/shop.example.com', directory)
    .replaceAll('shop.example.com', 'localhost')
    .replaceAll('127.0.0.1:8787', `127.0.0.1:${place.config.webhook.port}`)
    .replace(/(listen |\*:)443/, `$1${port}`);
  const file = path.join(directory, shown);
  writeFileSync(file, around(text, directory, port));
  const env = { PATH: process.env.PATH ?? '', HOME: directory };
  proxy = spawn(program, words(file), { env, stdio: ['ignore', 'ignore', 'pipe'] });
  let said = '';
  proxy.stderr?.on('data', (chunk) => {
    said += chunk;
  });
  const url = `https://localhost:${port}/webhook`;
  await until('the proxy answers', async () => {
    if (proxy?.exitCode !== null) throw new Error(`the proxy ended: ${said}`);
    return fetch(url).then(
      () => true,
      () => false,
    );
  });
  return url;
}

describe.each(PROXIES)('the callback address behind $name', (one) => {
  it.skipIf(!existsSync(one.program))('takes callbacks, and nothing else', async () => {
    place = await openWorkplace(31);
    const url = await startProxy(one);
    place.env.TILLSYNC_WEBHOOK_CALLBACK_URL = url;
    // Polls only once a year, so that a new order arrives by a callback.
    place.env.TILLSYNC_ORDERS_POLL = '0 0 1 1 *';
    const daemon = await place.run();
    const { control } = place.sandbox;
    await until('the address is registered', () => daemon.log().includes('webhook registered'));
    await until('the poll at the start is over', () => daemon.log().includes('orders polled'));
    const { internalOrderId } = control.createOrder();
    const arrived = () => {
      const db = new Database(path.join(place.storage, 'mirror.db'), { readonly: true });
      const from = db
        .prepare('SELECT source FROM order_events WHERE order_id = ?')
        .pluck()
        .all(internalOrderId);
      db.close();
      return from.includes('webhook');
    };
    await until('the callback arrived', arrived);

    const send = async (bytes: number, secret: string, address = url) => {
      const body = JSON.stringify({ ...sampleNotification(77), filling: 'x'.repeat(bytes) });
      const headers = { 'content-type': 'application/json', 'x-webhook-secret': secret };
      return (await fetch(address, { method: 'POST', headers, body })).status;
    };
    expect(await send(0, SECRET)).toBe(200);
    expect(await send(1_000_000, SECRET)).toBe(200);
    expect(await send(1_100_000, SECRET)).toBe(413);
    expect(await send(0, 'another secret')).toBe(401);
    expect(await send(0, SECRET, url.replace('/webhook', '/v1/status'))).toBe(404);
    expect(await daemon.end('SIGTERM')).toBe(0);
    expect(await send(0, SECRET)).toBeGreaterThanOrEqual(500);
  });
});

for (const { name, program } of PROXIES) {
  if (!existsSync(program)) console.warn(`Not tested: there is no ${program} (${name}).`);
}
