/** Tests src/daemon/own-store.ts. */

import { execFileSync } from 'node:child_process';
import { existsSync, mkdtempSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import Database from 'better-sqlite3';
import { request } from 'undici';
import { expect, onTestFinished, test } from 'vitest';
import { openState } from '../../src/app/state.ts';
import { LEFT_STORE } from '../../src/app/storage.ts';
import { readConfig } from '../../src/config/config.ts';
import { configError } from '../../src/config/source.ts';
import { silentLog } from '../../src/core/log.ts';
import { systemClock } from '../../src/core/system-clock.ts';
import { type Daemon, startDaemon } from '../../src/daemon/daemon.ts';
import type { HubLink } from '../../src/link/link.ts';
import { hubKeys } from '../../src/link/server-file.ts';
import { compileSpellings } from '../../src/orders/field-aliases.ts';
import { SEQ_JUMP } from '../../src/orders/order.ts';
import { readSentOrder } from '../../src/orders/order-reader.ts';
import { invoke } from '../cli/invoke.ts';
import { product } from '../outbox/outbox-fixture.ts';
import { seededRandom } from '../support/fake-clock.ts';
import { freshMirror } from '../support/fresh-mirror.ts';
import { inboxHere } from '../support/inbox-here.ts';
import { sampleNotification } from '../support/order-samples.ts';
import { storeRig } from '../support/store-rig.ts';
import { until } from '../support/workplace.ts';
import { InProcessServer } from './in-process.ts';

const ONE_SHOP = `
[[branches]]
subsidiary_id = "sub-1"
external_id = "B1"`;
const TWO_SHOPS = `
[hub]
nats = "nats://127.0.0.1:4222"
store = "B1"
${ONE_SHOP}
[[branches]]
subsidiary_id = "sub-2"
external_id = "B2"`;

/** Makes a machine whose files survive restarts. Each start gets a configuration of its own. */
function machine() {
  const directory = mkdtempSync(path.join(tmpdir(), 'tillsync-own-'));
  const server = new InProcessServer();
  const daemons: Daemon[] = [];
  const errors: string[] = [];
  onTestFinished(async () => {
    await Promise.all(daemons.map((daemon) => daemon.stop()));
    rmSync(directory, { recursive: true, force: true });
  });
  return {
    directory,
    server,
    /** Messages that the daemon logged as errors. */
    errors,
    mirror: path.join(directory, 'mirror.db'),
    run: (...words: string[]) =>
      invoke(words, { env: { TILLSYNC_CONFIG: path.join(directory, 'config.toml') } }),
    own: path.join(directory, 'store/mirror.db'),
    /** Starts the daemon with this link, or with the link over nats-server if it is null. */
    async start(shops: string, link: HubLink | null = server.hub()): Promise<Daemon> {
      const text = `
        [platform]
        base_url = "http://platform.test"
        [storage]
        directory = ${JSON.stringify(directory)}
        [webhook]
        enabled = false
        [local]
        listen = "127.0.0.1:0"
        socket = ""
        [outbox]
        linger = "0s"
        ${shops}`;
      writeFileSync(path.join(directory, 'config.toml'), text);
      const read = readConfig({ file: 'own.toml', env: {}, text });
      if ('faults' in read) throw configError(read.faults);
      const daemon = await startDaemon({
        config: read.config,
        secrets: { webhookSecrets: [] },
        lookEveryMs: 50,
        openInbox: inboxHere,
        clock: systemClock,
        random: seededRandom(3),
        log: { ...silentLog, error: (_fields, message) => void errors.push(message) },
        ...(link && { link: { hub: link } }),
        transport: { send: () => Promise.reject(new Error('nobody is called')), close: async () => {} },
      });
      daemons.push(daemon);
      return daemon;
    },
  };
}

async function order(daemon: Daemon, number: number, store: string, status = 'pending'): Promise<void> {
  const value = sampleNotification(number, { store: { externalId: store }, status });
  const raw = JSON.stringify(value);
  const reading = readSentOrder(value, raw, compileSpellings({}));
  if ('unreadable' in reading) throw new Error(reading.unreadable);
  const observation = { source: 'webhook', observedAtMs: systemClock.nowMs(), raw, reading } as const;
  await daemon.services.mirror.save([{ kind: 'order', observation }]);
}

function rows<T>(file: string, sql: string): T[] {
  const db = new Database(file, { readonly: true });
  try {
    return db.prepare<[], T>(sql).all();
  } finally {
    db.close();
  }
}

const events = (file: string) =>
  rows<{ seq: number; code: number; status: string }>(
    file,
    'SELECT e.seq, o.code, e.status FROM order_events e JOIN orders o USING (order_id) ORDER BY e.seq',
  );
const codes = (file: string) =>
  rows<{ code: number }>(file, 'SELECT code FROM orders ORDER BY code').map(({ code }) => code);

/** Returns how many entries of a kind the shop has applied. */
const taken = (file: string, kind: string) =>
  rows(file, `SELECT 1 FROM feed WHERE branch = 'B1' AND kind = '${kind}' AND published = 1`).length;

async function api(daemon: Daemon, place: string) {
  const answer = await request(daemon.localUrl + place);
  return { status: answer.statusCode, body: (await answer.body.json()) as Record<string, unknown[]> };
}

test('own store: each of its loops runs on', async () => {
  const shop = machine();
  const hub = await shop.start(TWO_SHOPS);
  await until('the shop has its snapshot', () => taken(shop.mirror, 'snapshot-end') === 1);
  await hub.stop();
  expect(shop.errors).not.toContain('a loop ended by itself; starting it again');
});

test('own store: a POS goes on where it read yesterday, and sees its own orders alone', async () => {
  const shop = machine();
  const single = await shop.start(ONE_SHOP);
  await order(single, 1, 'B1');
  await order(single, 2, 'B1');
  await order(single, 1, 'B1', 'payment-approved');
  const [first] = rows<{ order_id: string }>(shop.mirror, 'SELECT order_id FROM orders ORDER BY code');
  await single.services.stores.write(({ reservations }) =>
    reservations.acknowledge([first?.order_id ?? ''], 'inbox'),
  );
  const yesterday = events(shop.mirror);
  expect(yesterday).toHaveLength(3);
  await single.stop();

  const hub = await shop.start(TWO_SHOPS);
  expect(events(shop.own)).toEqual(yesterday);
  expect(rows(shop.own, 'SELECT order_id, acked_at FROM order_acks')).toHaveLength(1);
  await order(hub, 3, 'B2');
  await order(hub, 4, 'B1');
  await order(hub, 2, 'B1', 'cancel');
  await until('the order at its shop', () => codes(shop.own).includes(4) && events(shop.own).length === 5);
  expect(codes(shop.mirror)).toEqual([1, 2, 3, 4]);
  expect(codes(shop.own)).toEqual([1, 2, 4]);
  // The POS reads the hub's mirror until somebody changes its path. Later events have higher numbers in the shop's own
  // mirror than in the hub's, so the POS then misses none.
  const since = events(shop.own).slice(3);
  expect(since.map(({ code, status }) => [code, status])).toEqual([
    [4, 'pending'],
    [2, 'cancel'],
  ]);
  expect(Math.min(...since.map(({ seq }) => seq))).toBeGreaterThan(SEQ_JUMP);
  // The snapshot has only known orders, so it causes no event.
  await until('the snapshot', () => taken(shop.mirror, 'snapshot-end') === 1);
  expect(events(shop.own)).toHaveLength(5);
});

test('own store: orders and counts come and go while the nats-server is down', {
  tags: ['bulk'],
}, async () => {
  const shop = machine();
  shop.server.isDown = true;
  const hub = await shop.start(TWO_SHOPS);
  await order(hub, 1, 'B1');
  await order(hub, 2, 'B2');
  await until('the order at its shop', () => codes(shop.own).length === 1);
  const mode = (file: string) => statSync(file).mode & 0o7777;
  for (const name of ['mirror.db', 'mirror.db-wal', 'inbox', 'inbox/inbox.db', '.']) {
    const own = path.join(shop.directory, 'store', name);
    await until(`${name} of both`, () => existsSync(own) && existsSync(path.join(shop.directory, name)));
    if (name !== '.') expect(mode(own), name).toBe(mode(path.join(shop.directory, name)));
    expect(statSync(own).gid, name).toBe(statSync(path.join(shop.directory, name)).gid);
  }
  expect(mode(path.join(shop.directory, 'store'))).toBe(0o2750);

  const inboxFile = path.join(shop.directory, 'store/inbox/inbox.db');
  const table = "SELECT 1 FROM sqlite_schema WHERE name = 'order_acks'";
  await until('the tables of the inbox', () => rows(inboxFile, table).length === 1);
  const inbox = new Database(inboxFile);
  inbox.exec("INSERT INTO stock_changes (external_id, qty, reference) VALUES ('A-1', 7, 'shift-1')");
  const [{ id } = { id: '' }] = rows<{ id: string }>(shop.own, 'SELECT order_id AS id FROM orders');
  inbox.exec(`INSERT INTO order_acks (order_id) VALUES ('${id}')`);
  inbox.close();
  const sql = 'SELECT reference, body FROM outbox';
  await until('the count at the hub', () => rows(shop.mirror, sql).length === 1);
  expect(rows(shop.mirror, sql)).toEqual([
    { reference: 'B1: shift-1', body: expect.stringContaining('"subsidiaryId":"sub-1"') },
  ]);
  await until(
    'the acknowledgement at the hub',
    () => rows(shop.mirror, 'SELECT 1 FROM order_acks').length === 1,
  );
  expect(rows(shop.mirror, 'SELECT branch FROM order_acks')).toEqual([{ branch: 'B1' }]);

  const { body: all } = await api(hub, '/v1/orders/search');
  const { body: own } = await api(hub, '/store/v1/orders/search');
  expect([all.orders?.length, own.orders?.length]).toEqual([2, 1]);
  expect((await api(hub, '/store/v1/branches')).status).toBe(404);
  const page = await request(`${hub.localUrl}/store/`);
  expect(page.statusCode).toBe(200);
  await page.body.dump();
  // A count that names no branch belongs to the shop on the hub's machine.
  expect(hub.services.stores.directory.ownId).toBe('sub-1');

  const { stdout } = await shop.run('--own-store', 'status', '--json');
  expect(JSON.parse(stdout)).toMatchObject({
    storage: path.join(shop.directory, 'store'),
    running: true,
    counts: { orders: 1 },
  });
  expect((await shop.run('status')).stdout).toContain(`own shop B1: its POS uses ${shop.directory}/store`);
  const list = JSON.parse((await shop.run('branch', 'list', '--json')).stdout);
  expect(list.branches.find(({ branch }: { branch: string }) => branch === 'B1')).toMatchObject({
    behind: 0,
  });
  for (const words of [
    ['branch', 'invite', 'B1'],
    ['branch', 'remove', 'B1'],
    ['restore', 'x', '--own-store'],
  ]) {
    expect(await shop.run(...words), words.join(' ')).toMatchObject({ code: 2 });
  }
});

test('own store: orders come while a file of the hub is missing that the link to nats-server needs', {
  tags: ['bulk'],
}, async () => {
  const shop = machine();
  const state = openState({ path: path.join(shop.directory, 'state.db'), clock: systemClock });
  await hubKeys(state.hub);
  const file = (name: string) => path.join(shop.directory, 'nats', name);
  const tls = { certFile: file('hub.pem'), keyFile: file('hub.key'), caFile: file('ca.pem') };
  state.hub.noteServerConfig({ file: file('server.conf'), storeDirectory: file('jetstream'), tls });
  state.close();
  const hub = await shop.start(TWO_SHOPS, null);
  await order(hub, 1, 'B1');
  await until('the order at its shop', () => codes(shop.own).length === 1);
  const told = "SELECT state, message FROM freshness WHERE subject = 'hub.link'";
  await until('the reason', () => rows(shop.mirror, told).length === 1);
  expect(rows(shop.mirror, told)).toEqual([
    { state: 'failing', message: expect.stringContaining(tls.caFile) },
  ]);
});

test('own store: another name in the configuration is a rename, without a word: mirror, numbers and open orders stay', {
  tags: ['bulk'],
}, async () => {
  const shop = machine();
  const before = await shop.start(TWO_SHOPS);
  await order(before, 1, 'B1');
  await until('the order at its shop', () => codes(shop.own).length === 1);
  await until('the snapshot', () => taken(shop.mirror, 'snapshot-end') === 1);
  const place = () => rows<{ epoch: string; line: string }>(shop.own, 'SELECT epoch, line FROM link')[0];
  const { epoch } = place() ?? {};
  await before.stop();
  const hub = await shop.start(TWO_SHOPS.replaceAll('"B1"', '"Centro"'));
  // The platform may still use the old name in orders.
  await order(hub, 1, 'B1', 'payment-approved');
  await order(hub, 2, 'Centro');
  await until('both at the shop', () => events(shop.own).length === 3);
  expect(place()?.epoch).toBe(epoch);
  expect(rows(shop.mirror, 'SELECT branch FROM feed_branches ORDER BY branch')).toEqual([
    { branch: 'B1' },
    { branch: 'B2' },
  ]);
  expect(rows(shop.mirror, 'SELECT 1 FROM unassigned_orders')).toEqual([]);
  expect(rows(shop.mirror, "SELECT subject, detail FROM audit WHERE action = 'branch.rename'")).toEqual([
    { subject: 'branch B1', detail: 'now Centro' },
  ]);
  const { branches } = JSON.parse((await shop.run('branch', 'list', '--json')).stdout);
  expect(branches.map(({ branch }: { branch: string }) => branch).sort()).toEqual(['B2', 'Centro']);
  const typed = await shop.run('branch', 'rename', 'B1', 'Centro');
  expect(typed).toMatchObject({ code: 2, stderr: expect.stringContaining('is all that it takes') });
});

test('own store: the hub is carried to another shop, and back: no POS finds orders of the other one', {
  tags: ['bulk'],
}, async () => {
  const shop = machine();
  const inB1 = await shop.start(TWO_SHOPS);
  await order(inB1, 1, 'B1');
  await order(inB1, 2, 'B2');
  await until('the order at its shop', () => codes(shop.own).length === 1);
  await inB1.stop();

  const inB2 = await shop.start(TWO_SHOPS.replace('store = "B1"', 'store = "B2"'));
  await until('the order of B2', () => codes(shop.own).includes(2));
  await order(inB2, 3, 'B1');
  await order(inB2, 4, 'B2');
  await until('the next one', () => codes(shop.own).includes(4));
  expect(codes(shop.own)).toEqual([2, 4]);
  const aside = path.join(shop.directory, 'store-B1');
  expect(codes(path.join(aside, 'mirror.db'))).toEqual([1]);
  expect(rows(shop.mirror, "SELECT subject, detail FROM audit WHERE action = 'store.aside'")).toEqual([
    { subject: 'branch B1', detail: aside },
  ]);
  const given = events(shop.own).map(({ seq }) => seq);
  await inB2.stop();

  const back = await shop.start(TWO_SHOPS);
  await order(back, 5, 'B1');
  await until('all of B1', () => codes(shop.own).join() === '1,3,5');
  expect(new Set(events(shop.own).map(({ code }) => code))).toEqual(new Set([1, 3, 5]));
  const aside2 = path.join(shop.directory, 'store-B2/mirror.db');
  expect(events(aside2).map(({ seq }) => seq)).toEqual(given);
  expect(existsSync(aside)).toBe(false);
});

test('own store: a new shop with the first name of a renamed branch gets its own orders, and that branch keeps its key', {
  tags: ['bulk'],
}, async () => {
  const shop = machine();
  const before = await shop.start(TWO_SHOPS);
  const { hub: known } = before.services.state;
  const key = `U${'D'.repeat(55)}`;
  known.invite('B2', key, systemClock.nowMs() + 60_000);
  known.join('B2', key, systemClock.nowMs());
  known.rename('B2', 'Norte', 'sub-2');
  await before.stop();
  const hub =
    await shop.start(`${TWO_SHOPS.replace('"B2"', '"Norte"').replace('store = "B1"', 'store = "B2"')}
[[branches]]
subsidiary_id = "sub-7"
external_id = "B2"`);
  await order(hub, 1, 'Norte');
  await order(hub, 2, 'B2');
  await until('an order at the own shop', () => codes(shop.own).length > 0);
  expect(codes(shop.own)).toEqual([2]);
  const branches = hub.services.state.hub.branches();
  expect(branches.find(({ name }) => name === 'Norte')).toMatchObject({ branch: 'B2', publicKey: key });
  expect(branches.find(({ name }) => name === 'B2')).toMatchObject({ branch: 'B2-2', publicKey: 'own' });
});

test('own store: once hub.store is empty its files say so to whoever reads them, and the doctor to a person', {
  tags: ['bulk'],
}, async () => {
  const shop = machine();
  const before = await shop.start(TWO_SHOPS);
  await order(before, 1, 'B1');
  await until('the order at its shop', () => codes(shop.own).length === 1);
  await before.stop();
  await shop.start(TWO_SHOPS.replace('store = "B1"', ''));
  const told = "SELECT state, message FROM freshness WHERE subject = 'orders.poll'";
  expect(rows(shop.own, told)).toEqual([
    { state: 'failing', message: expect.stringContaining('stands in this shop no more') },
  ]);
  const { checks } = JSON.parse((await shop.run('doctor', '--json', '--only', 'hub')).stdout);
  expect(checks.find(({ id }: { id: string }) => id === 'hub.store')).toMatchObject({
    level: 'warn',
    remedy: expect.stringContaining(`sudo rm -r ${shop.directory}/store`),
  });
  expect(codes(shop.own)).toEqual([1]);
});

test('own store: doctor, bundle, hooks, page and backup work on the running daemon', {
  tags: ['bulk'],
}, async () => {
  const shop = machine();
  const heard = path.join(shop.directory, 'heard');
  const hook = `
[[hooks]]
name = "printer"
from = "start"
command = ["/bin/sh", "-c", "cat >> ${heard}; echo >> ${heard}"]
store = true`;
  const hub = await shop.start(`${TWO_SHOPS}${hook}`);
  await order(hub, 1, 'B1');
  await order(hub, 2, 'B2');
  await until('the order at its shop', () => codes(shop.own).length === 1);
  await until('the hook', () => existsSync(heard) && readFileSync(heard, 'utf8').includes('\n'));
  const printed = readFileSync(heard, 'utf8');
  expect(printed).toContain('"B1"');
  expect(printed).not.toContain('"B2"');
  expect((await shop.run('--own-store', 'hooks', 'list')).stdout).toContain('printer');

  const doctor = await shop.run('--own-store', 'doctor', '--offline', '--json');
  const { checks } = JSON.parse(doctor.stdout) as {
    checks: { id: string; level: string; message: string }[];
  };
  const wrong = checks.filter(({ level }) => level === 'fail' || level === 'warn');
  // These checks fail in a test, because tillsync does not run as a service here.
  expect(wrong.filter(({ id }) => !['service', 'version', 'disk'].includes(id))).toEqual([]);
  expect(checks.find(({ id }) => id === 'hub')).toMatchObject({ level: 'ok' });
  expect(checks.some(({ message }) => message.includes('B2'))).toBe(false);

  const bundle = path.join(shop.directory, 'own.tar.gz');
  expect(await shop.run('--own-store', 'bundle', bundle)).toMatchObject({ code: 0 });
  expect(statSync(bundle).size).toBeGreaterThan(1_000);
  const packed = execFileSync('tar', ['-xzOf', bundle, '--wildcards', '*configuration.json'], {
    encoding: 'utf8',
  });
  expect(JSON.parse(packed)).toMatchObject({
    inForce: { storage: { directory: path.join(shop.directory, 'store') } },
  });

  const page = await (await request(`${hub.localUrl}/store/`)).body.text();
  const parts = [...page.matchAll(/(?:src|href)="([^"#]+)"/g)].map(
    ([, place]) => new URL(place ?? '', `${hub.localUrl}/store/`),
  );
  expect(parts.length).toBeGreaterThan(1);
  for (const part of parts) {
    const { statusCode, body } = await request(part);
    await body.dump();
    expect([part.pathname, statusCode]).toEqual([part.pathname, 200]);
  }
  expect((await api(hub, '/store/v1/status')).status).toBe(200);
  const backup = path.join(shop.directory, 'backup.tar.gz');
  expect(await shop.run('backup', backup)).toMatchObject({ code: 0 });
  expect(
    await shop.run('--own-store', 'backup', path.join(shop.directory, 'own-backup.tar.gz')),
  ).toMatchObject({
    code: 0,
  });
});

test('own store: what its status, its API and its page name is typed with --own-store', {
  tags: ['bulk'],
}, async () => {
  const shop = machine();
  const hub = await shop.start(TWO_SHOPS);
  await until('the shop has its snapshot', () => taken(shop.mirror, 'snapshot-end') === 1);
  const own = new Database(shop.own);
  own.exec(`INSERT INTO quarantine (source, received_at, reason, digest, bytes, payload)
    VALUES ('catalog', '2026-01-01T00:00:00.000Z', 'It could not be applied.', 'd', 2, '{}')`);
  own.close();

  const file = path.join(shop.directory, 'config.toml');
  const { stdout } = await shop.run('--own-store', 'status');
  expect(stdout).toContain(`run: tillsync --config ${file} --own-store quarantine list.`);
  expect(stdout).toContain(`run tillsync --config ${file} auth set`);
  const show = ['quarantine', 'show', '99'];
  const { stderr } = await shop.run(...show, '--own-store');
  expect(stderr).toContain(`tillsync --config ${file} --own-store quarantine list`);
  expect((await shop.run(...show)).stderr).toContain(`tillsync --config ${file} quarantine list`);

  const { body } = await api(hub, '/store/v1/status');
  expect(body).toMatchObject({
    commands: { tillsync: 'tillsync --own-store', start: 'systemctl start tillsync' },
    verdict: {
      findings: expect.arrayContaining([
        expect.objectContaining({
          code: 'quarantine',
          remedy: expect.stringContaining('run: tillsync --own-store quarantine list.'),
        }),
      ]),
    },
  });
  expect((await api(hub, '/v1/status')).body).toMatchObject({ commands: { tillsync: 'tillsync' } });
  const drop = async (place: string) => {
    const answer = await request(`${hub.localUrl}${place}/outbox/99/discard`, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: '{}',
    });
    return answer.body.json();
  };
  expect(await drop('/store/v1')).toMatchObject({
    error: { hint: '`tillsync --own-store outbox list` shows them.' },
  });
  expect(await drop('/v1')).toMatchObject({ error: { hint: '`tillsync outbox list` shows them.' } });
});

test('own store: what the hub holds of its counts is released by a command of the hub', {
  tags: ['bulk'],
}, async () => {
  const shop = machine();
  const hub = await shop.start(TWO_SHOPS);
  const counts = Array.from({ length: 12 }, (_, n) => ({ externalId: `A-${n}`, qty: 0 }));
  const records = counts.map(({ externalId }, n) =>
    product(`p${n}`, `Tea ${n}`, [{ sku: `${n}`, stocks: { 'sub-1': [externalId, 5] } }]),
  );
  const branch = { subsidiaryId: 'sub-1', externalId: 'B1' };
  await hub.services.stores.write(({ catalog }) => {
    const mark = catalog.readMark();
    catalog.applyPage(branch, records, mark);
    const seen = new Set(records.map(({ id }) => id));
    catalog.completeSweep({ branch, mark, startedAtMs: systemClock.nowMs(), pages: 1, seen });
  });
  await request(`${hub.localUrl}/store/v1/stock`, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify(counts),
  });
  const held = () =>
    rows<{ message: string }>(shop.mirror, 'SELECT DISTINCT message FROM outbox WHERE message IS NOT NULL');
  await until('the hub holds the zeros', () => held().length > 0);
  expect(held()).toEqual([{ message: expect.stringContaining('with: tillsync outbox release --guard') }]);
});

test('hub.store: a shop that is no branch, and a shop or its hook without a hub, are refused', () => {
  const faults = (text: string) => {
    const read = readConfig({
      file: 'own.toml',
      env: {},
      text: `[platform]\nbase_url = "http://p.test"\n${text}`,
    });
    return 'faults' in read ? read.faults.map(({ key }) => key) : [];
  };
  expect(faults(TWO_SHOPS.replace('store = "B1"', 'store = "B9"'))).toEqual(['hub.store']);
  expect(faults('[hub]\nstore = "B1"')).toEqual(['hub.store']);
  expect(faults('[[hooks]]\nname = "printer"\ncommand = ["true"]\nstore = true')).toEqual(['hooks[0].store']);
  const own = readConfig({
    file: 'own.toml',
    env: {},
    text: '[platform]\nbase_url = "http://p.test"',
    isOwnStore: true,
  });
  expect(own).toMatchObject({ faults: [{ key: 'hub.store' }] });
});

test('own store: one that the hub has left is told of at the start, in the log and in its files', async () => {
  const told: string[] = [];
  const note = (_fields: object, message: string) => void told.push(message);
  const rig = storeRig({ log: { ...silentLog, warn: note } });
  const left = freshMirror(path.join(rig.directory, 'store'));
  await rig.daemon();
  expect(told).toContain(LEFT_STORE);
  // Without these files, the POS, which is another Unix user, could not open the mirror.
  expect(['-wal', '-shm'].map((suffix) => existsSync(left + suffix))).toEqual([true, true]);
  const failing = "SELECT subject FROM freshness WHERE state = 'failing' ORDER BY subject";
  expect(rows<{ subject: string }>(left, failing).map(({ subject }) => subject)).toEqual([
    'catalog.sweep',
    'hub.link',
    'orders.poll',
  ]);
});
