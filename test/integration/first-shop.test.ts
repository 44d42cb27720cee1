import { execFileSync } from 'node:child_process';
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { type BranchPlace, ChainPlace, rowsOf } from '../support/chain-place.ts';
import { hasNatsServer } from '../support/nats-server.ts';
import { limitMs } from '../support/shared-config.ts';
import { type DaemonProcess, until } from '../support/workplace.ts';

/**
 * Follows docs/chain.md, "Your first shop", word by word from one shop to two, on this machine. On two Debian machines,
 * test/slow/package/two-shops does so.
 */

const CHAIN = readFileSync('docs/chain.md', 'utf8');
const COMMANDS_MAX = 12;

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
  '[hub]\nnats = "nats://127.0.0.1:4222"\npublic_url = "tls://hub.example.com:4222"\nstore = "B1"',
);
const CERTIFICATE = block('openssl req -x509 -newkey');
const [SERVER_CONFIG = '', RESTART = ''] = block('sudo tillsync hub server-config');
const FIREWALL = said('sudo ufw allow 4222/tcp');
const INVITE = said('sudo tillsync branch invite B1');
const INSTALL_BRANCH = said('sudo apt install ./tillsync_*_', readFileSync('docs/operator.md', 'utf8'));
const JOIN = block('sudo tillsync init --join -')[0]?.replace(/\s*#.*/, '') ?? '';
const TYPED = [
  ...[INSTALL, 'edit /etc/tillsync/config.toml', ...CERTIFICATE, SERVER_CONFIG, RESTART, FIREWALL, INVITE],
  ...[INSTALL_BRANCH, JOIN],
];

it('the way from one shop to two takes at most twelve commands', () => {
  expect(TYPED).toHaveLength(11);
  expect(TYPED.length).toBeLessThanOrEqual(COMMANDS_MAX);
  expect(TYPED.filter((line) => line === '')).toEqual([]);
});

let chain: ChainPlace;
let daemon: DaemonProcess;
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

const orderFor = (subsidiaryId: string) =>
  chain.hub.sandbox.control.createOrder({ subsidiaryId }).internalOrderId;
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

it.skipIf(!hasNatsServer)(
  'the first shop reads on where it was, the second gets its own orders, each none of the other',
  async () => {
    const { hub } = chain;
    const yesterday = orderFor('sub-1');
    await comes(hub.storage, yesterday);
    const seq = 'SELECT coalesce(max(seq), 0) AS seq FROM order_events';
    const [read] = rowsOf<{ seq: number }>(hub.storage, seq);

    const [head = ''] = readFileSync(hub.configFile, 'utf8').split('[[branches]]');
    writeFileSync(hub.configFile, `${head}${EDIT.map(here).join('\n')}\n`);
    mkdirSync(path.join(chain.directory, 'etc'));
    for (const line of CERTIFICATE)
      execFileSync('sh', ['-ec', here(line)], { cwd: chain.directory, stdio: 'ignore' });
    const [tillsync, ...words] = here(SERVER_CONFIG).split(/\s+/);
    expect(tillsync).toBe('tillsync');
    const written = await hub.command(...words.slice(0, 2), chain.serverFile, ...words.slice(2));
    expect(written.code, written.stderr).toBe(0);
    // Restarts both services, as RESTART does.
    await daemon.end('SIGTERM');
    await chain.startServer();
    daemon = await chain.startHub();
    second = chain.branchAt('B2', await chain.invite('B2'));
    const joined = await chain.joinAs(second);
    expect(joined.code, joined.stderr).toBe(0);
    await chain.start(second);

    const [one, two] = [orderFor('sub-1'), orderFor('sub-2')];
    const store = path.join(hub.storage, 'store');
    await comes(store, one);
    await comes(second.storage, two);
    expect(storesIn(store)).toEqual(['B1']);
    expect(storesIn(second.storage)).toEqual(['B2']);
    // Yesterday's order keeps a seq that the POS has read, and every event of the new order has a higher one.
    const events = rowsOf<{ seq: number; id: string }>(
      store,
      'SELECT seq, order_id AS id FROM order_events ORDER BY seq',
    );
    expect(events.filter(({ id }) => id === one).every((event) => event.seq > (read?.seq ?? 0))).toBe(true);
    expect(events.some(({ id, seq: at }) => id === yesterday && at <= (read?.seq ?? 0))).toBe(true);
    expect(new Set(storesIn(hub.storage))).toEqual(new Set(['B1', 'B2']));
  },
  limitMs(180_000),
);
