import { execFileSync } from 'node:child_process';
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import Database from 'better-sqlite3';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { SEQ_JUMP } from '../../src/orders/merging/order.ts';
import { type BranchPlace, ChainPlace, rowsOf } from '../support/chain-place.ts';
import { hasNatsServer } from '../support/nats-server.ts';
import { limitMs } from '../support/shared-config.ts';
import { type DaemonProcess, until } from '../support/workplace.ts';

/**
 * Follows docs/chain.md, "Your first shop", word by word from one shop to two, on this machine; `branch add B1 --here`
 * needs systemd, so what it does is done in its two steps, the invitation and the join. On two Debian machines,
 * test/slow/package/two-shops types it.
 */

const CHAIN = readFileSync('docs/chain.md', 'utf8');
const COMMANDS_MAX = 10;

/** Returns the commands in docs/chain.md from the line that begins with `first` to the end of its code block. */
function block(first: string): string[] {
  const from = CHAIN.indexOf(first);
  if (from < 0) throw new Error(`docs/chain.md has no line that begins with: ${first}`);
  return CHAIN.slice(from, CHAIN.indexOf('\n```', from))
    .replaceAll(/\\\n\s*/g, '')
    .split('\n');
}

const said = (line: string, document = CHAIN) => {
  if (!document.includes(line)) throw new Error(`The document does not say: ${line}`);
  return line;
};

/** Commands that a person types at both machines, in this order; the edit of the file is one of them. */
const INSTALL = said('sudo apt-get install tillsync-hub');
const EDIT = block(
  '[hub]\nnats = "nats://127.0.0.1:4222"\npublic_url = "tls://hub.example.com:4222"\n\n[[branches]]',
);
const CERTIFICATE = block('openssl req -x509 -newkey');
const [SERVER_CONFIG = ''] = block('sudo tillsync hub server-config');
const ADD_HERE = said('sudo tillsync branch add B1 --here');
const INVITE = said('sudo tillsync branch invite B2');
const INSTALL_BRANCH = said('sudo apt install ./tillsync_*_', readFileSync('docs/operator.md', 'utf8'));
const JOIN = block('sudo tillsync init --join -')[0]?.replace(/\s*#.*/, '') ?? '';
const TYPED = [
  ...[INSTALL, 'edit /etc/tillsync/config.toml', ...CERTIFICATE, SERVER_CONFIG, ADD_HERE, INVITE],
  ...[INSTALL_BRANCH, JOIN],
];

it('the way from one shop to two takes at most ten commands', () => {
  expect(TYPED.length).toBeLessThanOrEqual(COMMANDS_MAX);
  expect(TYPED.filter((line) => line === '')).toEqual([]);
});

let chain: ChainPlace;
let daemon: DaemonProcess;
let first: BranchPlace;
let second: BranchPlace;

beforeAll(async () => {
  if (!hasNatsServer) return;
  chain = await ChainPlace.prepare(41, '[[branches]]\nsubsidiary_id = "sub-1"\nexternal_id = "B1"\n');
  const { configFile } = chain.hub;
  writeFileSync(configFile, readFileSync(configFile, 'utf8').replace(/\[hub\]\nnats = .*\n/, ''));
  daemon = await chain.startHub();
}, limitMs(60_000));

afterAll(() => chain?.close());

/** Returns a command line of the guide as it runs here: without sudo, and with a test directory for /etc/tillsync. */
const here = (line: string) =>
  line
    .replaceAll('sudo ', '')
    .replaceAll('/etc/tillsync', path.join(chain.directory, 'etc'))
    .replaceAll('hub.example.com:4222', `localhost:${chain.port}`)
    .replaceAll('127.0.0.1:4222', `127.0.0.1:${chain.port}`)
    .replaceAll('hub.example.com', 'localhost')
    .replace('-g tillsync ', '');

const storesIn = (storage: string) =>
  rowsOf<{ store: string }>(storage, 'SELECT DISTINCT store_external_id AS store FROM orders').map(
    ({ store }) => store,
  );
const comes = (storage: string, id: string) =>
  until(
    `order ${id} is there`,
    () => rowsOf(storage, `SELECT 1 FROM orders WHERE order_id = '${id}'`).length === 1,
    60_000,
  );

/** What a POS of a shop does: it reads the feed by its last number, books what is to be booked, and hands over counts. */
class Pos {
  lastSeq = 0;
  readonly booked: string[] = [];
  readonly heard: string[] = [];

  read(storage: string): void {
    const sql = `SELECT seq, order_id AS id FROM order_events WHERE seq > ${this.lastSeq} ORDER BY seq`;
    for (const { seq, id } of rowsOf<{ seq: number; id: string }>(storage, sql)) {
      this.lastSeq = seq;
      this.heard.push(id);
    }
  }

  book(storage: string): void {
    const sql = 'SELECT order_id AS id FROM orders_to_book ORDER BY seq';
    for (const { id } of rowsOf<{ id: string }>(storage, sql)) {
      this.booked.push(id);
      chain.acknowledge({ storage } as BranchPlace, id);
    }
  }

  count(storage: string, qty: number): void {
    const db = new Database(path.join(storage, 'inbox/inbox.db'));
    try {
      db.prepare("INSERT INTO stock_changes (external_id, qty) VALUES ('A-1001-1', ?)").run(qty);
    } finally {
      db.close();
    }
  }
}

it.skipIf(!hasNatsServer)(
  'the POS of the first shop goes on at its branch: above all that it read, with nothing booked twice',
  async () => {
    const { hub } = chain;
    const { control } = hub.sandbox;
    const paid = (subsidiaryId: string) =>
      control.createOrder({ subsidiaryId, status: 'payment-approved' }).internalOrderId;
    const known = (storage: string, id: string) =>
      rowsOf(storage, `SELECT 1 FROM order_acks WHERE order_id = '${id}'`).length === 1;
    const platformHas = (qty: number) =>
      until(`the platform has ${qty}`, () => control.stockOf(1001, 'sub-1') === qty, 60_000);
    const pos = new Pos();
    const yesterday = paid('sub-1');
    await comes(hub.storage, yesterday);
    await until('the catalogue', () => rowsOf(hub.storage, 'SELECT 1 FROM stocks').length > 0, 60_000);
    pos.read(hub.storage);
    pos.book(hub.storage);
    await until('it is acknowledged', () => known(hub.storage, yesterday), 60_000);
    pos.count(hub.storage, 17);
    await platformHas(17);
    const open = paid('sub-1');
    await comes(hub.storage, open);
    pos.read(hub.storage);
    const readBefore = pos.lastSeq;
    expect([pos.booked, pos.heard]).toEqual([[yesterday], expect.arrayContaining([yesterday, open])]);

    const [head = ''] = readFileSync(hub.configFile, 'utf8').split('[[branches]]');
    writeFileSync(hub.configFile, `${head}${EDIT.map(here).join('\n')}\n`);
    mkdirSync(path.join(chain.directory, 'etc'));
    for (const line of CERTIFICATE)
      execFileSync('sh', ['-ec', here(line)], { cwd: chain.directory, stdio: 'ignore' });
    const [tillsync, ...words] = here(SERVER_CONFIG).split(/\s+/);
    expect(tillsync).toBe('tillsync');
    const written = await hub.command(...words.slice(0, 2), chain.serverFile, ...words.slice(2));
    expect(written.code, written.stderr).toBe(0);
    // Restarts both services, as the command does where systemd has them.
    await daemon.end('SIGTERM');
    await chain.startServer();
    daemon = await chain.startHub();
    for (const name of ['B1', 'B2'] as const) {
      const place = chain.branchAt(name, await chain.invite(name));
      const joined = await chain.joinAs(place);
      expect(joined.code, joined.stderr).toBe(0);
      await chain.start(place);
      if (name === 'B1') first = place;
      else second = place;
    }

    // An order that comes before somebody changed the path of the POS is read there, and at the branch.
    const between = paid('sub-1');
    await comes(hub.storage, between);
    pos.read(hub.storage);
    expect(pos.lastSeq).toBeGreaterThan(readBefore);
    await comes(first.storage, between);
    const [lowest] = rowsOf<{ seq: number }>(first.storage, 'SELECT min(seq) AS seq FROM order_events');
    expect(lowest?.seq).toBeGreaterThan(readBefore + SEQ_JUMP);
    await until('it knows what was acknowledged', () => known(first.storage, yesterday), 60_000);
    pos.book(first.storage);
    expect(pos.booked).toEqual([yesterday, open, between]);

    const [one, two] = [paid('sub-1'), paid('sub-2')];
    await comes(first.storage, one);
    await comes(second.storage, two);
    const seqs = rowsOf<{ seq: number }>(first.storage, 'SELECT seq FROM order_events').map(({ seq }) => seq);
    expect(new Set(seqs).size).toBe(seqs.length);
    pos.read(first.storage);
    expect(pos.heard.at(-1)).toBe(one);
    await until('all that was booked is told', () => known(first.storage, between), 60_000);
    pos.book(first.storage);
    expect(pos.booked).toEqual([yesterday, open, between, one]);
    await until('the hub knows it', () => known(hub.storage, one), 60_000);

    await until('the catalogue', () => rowsOf(first.storage, 'SELECT 1 FROM stocks').length > 0, 60_000);
    pos.count(first.storage, 16);
    await platformHas(16);
    await until(
      'the branch knows',
      () => rowsOf(first.storage, "SELECT 1 FROM outbox WHERE state = 'done'").length === 1,
      60_000,
    );
    expect(storesIn(first.storage)).toEqual(['B1']);
    expect(storesIn(second.storage)).toEqual(['B2']);
    expect(new Set(storesIn(hub.storage))).toEqual(new Set(['B1', 'B2']));
  },
  limitMs(180_000),
);
