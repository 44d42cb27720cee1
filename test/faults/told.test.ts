import { execFileSync } from 'node:child_process';
import { once } from 'node:events';
import { appendFileSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { createServer, request as forward } from 'node:http';
import { createServer as createTlsServer } from 'node:https';
import {
  type AddressInfo,
  connect,
  createServer as createTcpServer,
  type Server,
  type Socket,
} from 'node:net';
import { tmpdir } from 'node:os';
import path from 'node:path';
import Database from 'better-sqlite3';
import { afterAll, describe, expect, it } from 'vitest';
import { systemClock } from '../../src/core/system-clock.ts';
import type { Cause, FindingCode } from '../../src/health/facts.ts';
import { spanishFinding } from '../../src/health/speech.ts';
import type { FaultSpec } from '../../src/sandbox/faults.ts';
import { ChainPlace, TWO_BRANCHES } from '../support/chain-place.ts';
import { hasNatsServer } from '../support/nats-server.ts';
import { limitMs } from '../support/shared-config.ts';
import { type DaemonProcess, openWorkplace, until, type Workplace } from '../support/workplace.ts';
import { faultyDisk } from './support/faulty-disk.ts';
import { mountFailingDisk } from './support/small-disk.ts';

/**
 * Causes faults as in real shops while the service runs in real time with a shop's settings, and measures after how
 * long the receiver of alarms and the outside watcher are notified.
 */

const ZONE = 'America/Santiago';
const TOLD_WITHIN_MS = 300_000;
/**
 * Time after a start within which the service reports no stale flow, because a flow may only be stale from the time
 * when the service was off.
 */
const SETTLED_AFTER_MS = 245_000;
const ORDER_EVERY_MS = 15_000;

interface Told {
  state: string;
  key: string;
  level: string;
  message: string;
  remedy: string;
  since: string;
  text: string;
}

/** Starts a receiver of alarms and a watcher of heartbeats outside the service, over HTTP. */
async function outside() {
  const told: (Told & { atMs: number })[] = [];
  const beats: { atMs: number; isWell: boolean }[] = [];
  const server = createServer((request, response) => {
    let text = '';
    request.on('data', (chunk) => {
      text += chunk;
    });
    request.on('end', () => {
      const atMs = performance.now();
      if (request.url === '/alarm') told.push({ ...JSON.parse(text), atMs });
      else beats.push({ atMs, isWell: !request.url?.endsWith('/fail') });
      response.writeHead(204).end();
    });
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  const configuration = `
[shop]
name = "Almacén Ñuñoa"
language = "es"
[alarms]
url = "${url}/alarm"
heartbeat_url = "${url}/beat"
unbooked_after = "3m"
`;
  const close = () => {
    server.closeAllConnections();
    server.close();
  };
  return { told, beats, configuration, close };
}

/** Opens a proxy to another port of this machine, whose connections can be cut. */
async function lineTo(port: number): Promise<{ port: number; cut(): void }> {
  const sockets = new Set<Socket>();
  const server: Server = createTcpServer((near) => {
    const far = connect(port, '127.0.0.1');
    for (const [one, other] of [
      [near, far],
      [far, near],
    ] as const) {
      sockets.add(one);
      one.on('error', () => other.destroy());
      one.pipe(other);
    }
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  return {
    port: (server.address() as AddressInfo).port,
    cut() {
      server.close();
      for (const socket of sockets) socket.destroy();
    },
  };
}

/** Makes a good and an expired certificate for localhost, signed by a new authority. */
function certificates() {
  const directory = mkdtempSync(path.join(tmpdir(), 'tillsync-certificates-'));
  const at = (file: string) => path.join(directory, file);
  const openssl = (...words: string[]) => execFileSync('openssl', words, { cwd: directory, stdio: 'ignore' });
  writeFileSync(
    at('ca.conf'),
    '[ca]\ndefault_ca=own\n[own]\nnew_certs_dir=.\ndatabase=index\nserial=serial\ndefault_md=sha256\npolicy=any\nunique_subject=no\nx509_extensions=names\n[any]\ncommonName=supplied\n[names]\nsubjectAltName=DNS:localhost\n',
  );
  writeFileSync(at('index'), '');
  writeFileSync(at('serial'), '1000\n');
  const keyOf = (name: string) => ['-newkey', 'rsa:2048', '-nodes', '-keyout', at(name)];
  openssl('req', '-x509', ...keyOf('ca.key'), '-out', at('ca.pem'), '-days', '90', '-subj', '/CN=own');
  openssl('req', ...keyOf('key.pem'), '-out', at('csr'), '-subj', '/CN=localhost');
  const signed = ['ca', '-batch', '-config', at('ca.conf'), '-cert', at('ca.pem'), '-keyfile', at('ca.key')];
  const made = (file: string, from: string, to: string) =>
    openssl(...signed, '-in', at('csr'), '-out', at(file), '-startdate', from, '-enddate', to);
  made('good.pem', '20250101000000Z', '20990101000000Z');
  made('expired.pem', '20250101000000Z', '20250201000000Z');
  const files = ['key.pem', 'good.pem', 'expired.pem'].map((file) => readFileSync(at(file)));
  return { ca: at('ca.pem'), files, remove: () => rmSync(directory, { recursive: true }) };
}

/** Puts the platform behind a TLS server. The returned function replaces the server's certificate by an expired one. */
async function withCertificate(place: Workplace) {
  const { ca, files, remove } = certificates();
  const [key, good, expired] = files;
  const server = createTlsServer({ key, cert: good }, (request, response) => {
    const { method, headers, url } = request;
    const passed = forward(`${place.sandbox.url}${url}`, { method, headers }, (answer) => {
      response.writeHead(answer.statusCode ?? 502, answer.headers);
      answer.pipe(response);
    });
    request.pipe(passed);
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  place.env.NODE_EXTRA_CA_CERTS = ca;
  baseUrl(place, `https://localhost:${(server.address() as AddressInfo).port}`);
  return () => {
    server.setSecureContext({ key, cert: expired });
    server.closeAllConnections();
    remove();
  };
}

const baseUrl = (place: Workplace, url: string) => edit(place, /^base_url = .*$/m, `base_url = "${url}"`);

function edit({ configFile }: Workplace, found: RegExp, instead: string): void {
  const text = readFileSync(configFile, 'utf8');
  if (!found.test(text)) throw new Error(`The configuration has nothing like ${found}`);
  writeFileSync(configFile, text.replace(found, instead));
}

/**
 * Gives the platform a host name that only the service's own mount of /etc/hosts contains. `forget` removes the name.
 */
function withName(place: Workplace): { under: string[]; forget(): void } {
  const at = (file: string) => path.join(place.directory, file);
  writeFileSync(at('hosts'), '127.0.0.1 localhost platform.test\n');
  writeFileSync(at('nsswitch.conf'), 'hosts: files\n');
  baseUrl(place, place.sandbox.url.replace('127.0.0.1', 'platform.test'));
  const mount = ['hosts', 'nsswitch.conf']
    .map((file) => `mount --bind ${at(file)} /etc/${file}`)
    .join(' && ');
  return {
    under: ['unshare', '--mount', 'sh', '-c', `${mount} && exec "$@"`, 'sh'],
    forget: () => writeFileSync(at('hosts'), '127.0.0.1 localhost\n'),
  };
}

/** The running daemon, and functions that begin and end the fault. */
type Opened = { daemon: DaemonProcess; begin: () => unknown; end?: () => unknown };

interface Fault {
  what: string;
  code: FindingCode;
  cause?: Cause;
  /** The number in the finding's message. */
  count?: number;
  level: 'amber' | 'red';
  /** True if only a service that has run for a while reports the fault. */
  growsOld?: true;
  open: (place: Workplace) => Promise<Opened>;
  /** True if the platform makes orders during the fault. */
  hasOrders?: true;
}

const inbox = ({ storage }: Workplace) =>
  new Database(path.join(storage, 'inbox', 'inbox.db'), { timeout: 5_000 });

function backlog(what: string, cause: Cause, spec: FaultSpec): Fault {
  return {
    what,
    ...{ code: 'outbox.stuck', cause, count: 1, level: 'red', growsOld: true },
    async open(place) {
      const daemon = await place.run();
      const begin = () => {
        for (const endpoint of ['product.stock.put', 'product.stock.batch'] as const)
          place.sandbox.control.setFault({ ...spec, endpoint });
        const pos = inbox(place);
        pos.exec("INSERT INTO stock_changes (sku, qty, subsidiary_id) VALUES ('1001', 3, 'sub-1')");
        pos.close();
      };
      return { daemon, begin };
    },
  };
}

const FAULTS: Fault[] = [
  {
    what: 'a platform that takes no connections',
    ...{ code: 'orders.stale', cause: 'refuses', level: 'red', growsOld: true },
    async open(place) {
      const line = await lineTo(Number(new URL(place.sandbox.url).port));
      baseUrl(place, `http://127.0.0.1:${line.port}`);
      return { daemon: await place.run(), begin: () => line.cut() };
    },
  },
  {
    what: 'a name that is not found',
    ...{ code: 'orders.stale', cause: 'no-name', level: 'red', growsOld: true },
    async open(place) {
      const { under, forget } = withName(place);
      return { daemon: await place.run(...under), begin: forget };
    },
  },
  {
    what: 'a certificate that has expired',
    ...{ code: 'orders.stale', cause: 'certificate-date', level: 'red', growsOld: true },
    async open(place) {
      const begin = await withCertificate(place);
      return { daemon: await place.run(), begin };
    },
  },
  {
    what: 'tokens that are revoked',
    ...{ code: 'auth.locked-out', level: 'red' },
    async open(place) {
      const { control } = place.sandbox;
      const begin = () => {
        control.revokeRefreshTokens();
        control.expireAccessTokens();
      };
      return { daemon: await place.run(), begin };
    },
  },
  {
    what: 'a disk that is full',
    ...{ code: 'storage.full', level: 'red' },
    async open(place) {
      mkdirSync(place.storage);
      mountFailingDisk(place, '1200M');
      const filler = path.join(place.storage, 'filler');
      const begin = () => {
        for (const size of ['64M', '1M', '4K'])
          for (let at = 0; ; at++) {
            try {
              execFileSync('fallocate', ['-l', size, `${filler}-${size}-${at}`], { stdio: 'ignore' });
            } catch {
              break;
            }
          }
      };
      return { daemon: await place.run(), begin };
    },
  },
  {
    what: 'a POS that acknowledges no more',
    ...{ code: 'orders.unbooked', level: 'amber', growsOld: true },
    async open(place) {
      const { control } = place.sandbox;
      // Before the start, whose poll brings it. Its callback may come before tillsync has registered for callbacks.
      const before = control.createOrder({ status: 'picker-pending' });
      const daemon = await place.run();
      await until('the order is here', () => place.mirrorRows().length > 0);
      const pos = inbox(place);
      pos.prepare('INSERT INTO order_acks (order_id) VALUES (?)').run(before.internalOrderId);
      pos.close();
      return { daemon, begin: () => control.createOrder({ status: 'picker-pending' }) };
    },
  },
  {
    what: 'an inbox that an open transaction locks, without a row that waits',
    ...{ code: 'inbox.locked', level: 'red' },
    async open(place) {
      const daemon = await place.run();
      let pos: Database.Database | undefined;
      const begin = () => {
        pos = inbox(place);
        pos.exec('BEGIN IMMEDIATE');
      };
      return { daemon, begin, end: () => pos?.close() };
    },
  },
  {
    what: 'callbacks that are blocked on their way',
    ...{ code: 'webhook.silent', level: 'amber', hasOrders: true },
    async open(place) {
      const { port } = place.config.webhook;
      const line = await lineTo(port);
      edit(place, /^callback_url = .*$/m, `callback_url = "http://127.0.0.1:${line.port}/webhook"`);
      const daemon = await place.run();
      const { control } = place.sandbox;
      await until('the webhook is registered', () => control.webhook()?.active === true);
      control.createOrder();
      await until('a callback has come', () => place.mirrorRows().length > 0);
      return { daemon, begin: () => line.cut() };
    },
  },
  backlog('a backlog, since the platform fails all counts', 'fault', { kind: 'status', status: 500 }),
  backlog('a backlog, since no count is ever answered', 'slow', { kind: 'hang' }),
  {
    what: 'a clock that is off by an hour',
    ...{ code: 'clock.off', level: 'amber' },
    async open(place) {
      const machine = faultyDisk(place);
      return { daemon: await place.run(), begin: () => machine.begin('wall-offset', '3600') };
    },
  },
];

/** Seconds from the beginning of each fault until the alarm message and until the heartbeat that reports a failure. */
const measured: { what: string; message: number; heartbeat: number | null }[] = [];

type Outside = Awaited<ReturnType<typeof outside>>;

async function hears(
  fault: Omit<Fault, 'open'>,
  { begin, end }: Opened,
  { told, beats }: Outside,
  place: Workplace,
) {
  await systemClock.sleep(fault.growsOld ? SETTLED_AFTER_MS : 30_000);
  expect(told.map(({ key }) => key)).toEqual([]);
  expect(beats.some(({ isWell }) => isWell)).toBe(true);
  const beganMs = performance.now();
  await begin();
  const found = () => told.find(({ key, state }) => key === fault.code && state === 'raised');
  let orderedMs = performance.now() - ORDER_EVERY_MS;
  await until(
    `${fault.what} is told`,
    () => {
      if (fault.hasOrders && performance.now() - orderedMs >= ORDER_EVERY_MS) {
        orderedMs = performance.now();
        place.sandbox.control.createOrder();
      }
      return found() !== undefined;
    },
    TOLD_WITHIN_MS,
  );
  const failed = () => beats.find(({ atMs, isWell }) => atMs > beganMs && !isWell);
  if (fault.level === 'red') await until('the watcher hears of it', () => failed() !== undefined, 90_000);
  const [alarm, beat] = [found(), failed()];
  if (alarm === undefined) throw new Error('It was told a moment ago.');
  const seconds = (atMs: number) => Math.round((atMs - beganMs) / 1_000);
  measured.push({
    what: fault.what,
    message: seconds(alarm.atMs),
    heartbeat: beat ? seconds(beat.atMs) : null,
  });
  expect(alarm.atMs - beganMs).toBeLessThanOrEqual(TOLD_WITHIN_MS);
  const spoken = spanishFinding({ code: fault.code, count: fault.count ?? null, cause: fault.cause });
  expect(alarm.message).toBe(spoken?.message);
  for (const part of spoken?.remedy.split(/\{\w+\}/) ?? []) expect(alarm.remedy).toContain(part);
  const time = new Date(alarm.since).toLocaleTimeString('es-CL', {
    timeZone: ZONE,
    hour: '2-digit',
    minute: '2-digit',
    hourCycle: 'h23',
  });
  // A message that is sent after midnight names the date of the day before.
  expect(alarm.text).toMatch(new RegExp(`desde (\\d{4}-\\d\\d-\\d\\d )?${time}\\b`));
  expect(alarm.text).not.toMatch(/\b(the|is|of|was|are)\b/);
  expect(alarm.text).not.toMatch(/\d\d:\d\d:\d\d|UTC|\dZ\b/);
  expect(alarm.level).toBe(fault.level);
  expect(failed() !== undefined).toBe(fault.level === 'red');
  await end?.();
}

const LIMIT_MS = limitMs(60_000) + SETTLED_AFTER_MS + limitMs(TOLD_WITHIN_MS + 90_000);

describe.concurrent('the receiver and the watcher outside hear within five minutes, in the language of the shop, of', () => {
  it.each(FAULTS)(
    '$what',
    async (fault) => {
      const place = await openWorkplace(31);
      const around = await outside();
      try {
        edit(place, /^poll = .*$/m, 'poll = "*/2 * * * *"');
        edit(place, /^timezone = .*$/m, `timezone = "${ZONE}"`);
        appendFileSync(place.configFile, around.configuration);
        await hears(fault, await fault.open(place), around, place);
      } finally {
        around.close();
        await place.close();
      }
    },
    LIMIT_MS,
  );

  const OF_A_CHAIN: (Omit<Fault, 'open'> & {
    end: (chain: ChainPlace, one: () => Promise<void>) => unknown;
  })[] = [
    {
      what: 'a nats-server that is down',
      ...{ code: 'hub.link', cause: 'refuses', level: 'amber' },
      end: (chain) => chain.server.kill(),
    },
    {
      what: 'a branch that is off',
      ...{ code: 'hub.branches', level: 'amber' },
      end: (_chain, kill) => kill(),
    },
  ];
  it.skipIf(!hasNatsServer).each(OF_A_CHAIN)(
    '$what',
    async ({ end, ...fault }) => {
      const chain = await ChainPlace.open(33, TWO_BRANCHES);
      const around = await outside();
      try {
        edit(chain.hub, /^timezone = .*$/m, `timezone = "${ZONE}"`);
        chain.configure((text) => text + around.configuration);
        const daemon = await chain.startHub();
        const [one, two] = [await chain.join('B1'), await chain.join('B2')];
        await Promise.all([one, two].map((each) => chain.start(each)));
        for (const [name, each, id] of [
          ['B1', one, 'sub-1'],
          ['B2', two, 'sub-2'],
        ] as const) {
          chain.orderFor(id);
          await until(`${name} has all`, () => chain.hasCaughtUp(name, each), 60_000);
        }
        const begin = () => end(chain, () => chain.kill(one));
        await hears(fault, { daemon, begin }, around, chain.hub);
      } finally {
        around.close();
        await chain.close();
      }
    },
    LIMIT_MS,
  );

  afterAll(() => {
    for (const { what, message, heartbeat } of measured)
      process.stdout.write(`${what}: message ${message} s, heartbeat ${heartbeat ?? '-'} s\n`);
  });
});
