import { execFileSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { mkdirSync, mkdtempSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { gunzipSync } from 'node:zlib';
import Database from 'better-sqlite3';
import fc from 'fast-check';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { Redactor } from '../../src/daemon/bundle/redactor.ts';
import { openMirror } from '../../src/store/mirror/mirror.ts';
import { openState } from '../../src/store/state/open-state.ts';
import { invoke } from '../cli/invoke.ts';
import { FakeClock } from '../support/fake-clock.ts';

const DIRECTORY = mkdtempSync(path.join(tmpdir(), 'tillsync-bundle-'));
const STORAGE = path.join(DIRECTORY, 'storage');
const LOG = path.join(DIRECTORY, 'tillsync.log');
const CREDENTIALS = path.join(DIRECTORY, 'credentials');
const CONFIG = path.join(DIRECTORY, 'config.toml');

/** One for each place where a secret lives; with characters that every encoding writes in another way. */
const SECRETS = {
  handedInRefresh: 'handed-refresh/%20"q+Zk81',
  oldRefresh: 'old-refresh-token-gone-Wq77',
  accessFromEnvironment: 'environment-access~Lm93/+',
  storedRefresh: 'stored-refresh#ñandú?Bx42',
  storedAccess: 'stored-access|Vt55==',
  webhookHandedIn: 'hook-handed-in&Rr16',
  webhookCurrent: 'hook-current\\Yy28',
  webhookPrevious: 'hook-previous<Uu39>',
  webhookPending: "hook-pending'Ii40",
  localApiKey: 'local-key;Pp51:Gh',
  urlPassword: 'url-pass-Jj62',
  urlQuery: 'url-query-Kk73',
  jwtUnknownHere: 'eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiJOb2JvZHkifQ.c2lnbmF0dXJlLVpaMDA',
};
/** Known to nobody here but by the names they stand under. */
const NAMED_SECRETS = {
  authorization: 'Opaque-Aa84-unknown',
  'x-webhook-secret': 'hdr-Bb95-unknown',
  api_key: 'api-Cc06-unknown',
  password: 'pw-Dd17-unknown',
};
const CUSTOMER = {
  customerFirstName: 'Wilhelmina',
  customerLastName: 'Quispe-Ñáñez',
  customerEmail: 'wilma.q@correo-ejemplo.test',
  customerPhoneNumber: '+56 9 8123 4567',
  addressAddress: 'Pasaje Los Zorzales 4471, Depto 32',
  addressStreetAddress: 'Pasaje Los Zorzales',
  addressDetails: 'timbre azul del fondo',
};
const COMMENT = 'sin cilantro porque me hincho';
const STRANGER = { email: 'otra.persona@correo-ejemplo.test', phone: '+56 2 2345 6789' };

const forms = (secret: string) => {
  const base64 = (before: string) => {
    const text = Buffer.from(`${before}${secret}`).toString('base64');
    return text.slice(
      Math.ceil((before.length * 8) / 6),
      Math.floor((Buffer.from(before + secret).length * 8) / 6),
    );
  };
  const json = JSON.stringify(secret).slice(1, -1);
  const standard = ['', 'x', 'xy'].map(base64);
  return [
    ...[secret, json, JSON.stringify(json).slice(1, -1), encodeURIComponent(secret)],
    ...[Buffer.from(secret).toString('hex'), ...standard],
    ...standard.map((text) => text.replaceAll('+', '-').replaceAll('/', '_')),
  ];
};

/** A text that names everybody and holds every secret in every form. */
const everything = () =>
  [
    ...Object.values(SECRETS).flatMap((secret) => [
      ...forms(secret),
      Buffer.from(`user:${secret}:x`).toString('base64url'),
    ]),
    ...Object.entries(NAMED_SECRETS).map(([name, secret]) => `${name}: ${secret}`),
    ...Object.entries(NAMED_SECRETS).map(([name, secret]) => JSON.stringify({ [name]: secret })),
    JSON.stringify(JSON.stringify(NAMED_SECRETS)),
    `Authorization: Bearer ${NAMED_SECRETS.authorization}`,
    `https://user:${NAMED_SECRETS.password}@example.com/?api_key=${NAMED_SECRETS.api_key}`,
    ...Object.values(CUSTOMER),
    JSON.stringify(CUSTOMER),
    COMMENT,
    `${STRANGER.email} (${STRANGER.phone})`,
  ].join(' \n ');

async function plantMirror(clock: FakeClock): Promise<void> {
  const mirror = openMirror({ path: path.join(STORAGE, 'mirror.db'), clock });
  const reading = {
    orderId: 'order-kept-1',
    fields: { status: 'pending', code: 7, createdAt: '2026-01-02T00:00:00.000Z', ...CUSTOMER },
    items: [
      {
        ...{ productExternalId: 'E-1', productName: 'Pizza', quantity: 1, comment: COMMENT, unitPrice: 1 },
        ...{ baseUnitPrice: 1, productPrice: 1, productBasePrice: 1, modifiers: [] },
      },
    ],
  };
  const raw = JSON.stringify({ ...reading.fields, note: everything() });
  const observation = { source: 'webhook' as const, observedAtMs: clock.nowMs(), raw, reading };
  const headers = { ...NAMED_SECRETS, 'x-webhook-secret': SECRETS.webhookCurrent };
  const payload = JSON.stringify({
    headers,
    customer: CUSTOMER,
    [CUSTOMER.customerEmail]: everything(),
    total: 12,
  });
  await mirror.keeper.keep([
    { kind: 'order', observation },
    {
      kind: 'unreadable',
      unreadable: { source: 'webhook', receivedAtMs: clock.nowMs(), reason: `Bad: ${everything()}`, payload },
    },
  ]);
  mirror.freshnessBoard.report('orders.poll', 'failing', everything());
  mirror.alarms.raise('orders.stale', everything());
  await mirror.flushBoards();
  await mirror.write(({ db }) =>
    db
      .prepare(
        `INSERT INTO outbox (change_id, kind, target, conflict_key, body, fields, state, message, created_at, priority,
           queue_seq, basis, source, version)
         VALUES (1, 'product', ?, 'c', ?, 'name', 'rejected', ?, '2026-01-01T00:00:00.000Z', 1, 1, 'mirror', 'cli', 1)`,
      )
      .run(`sku:${SECRETS.storedAccess}`, JSON.stringify({ name: everything() }), everything()),
  );
  await mirror.close();
}

function plantState(clock: FakeClock): void {
  const state = openState({ path: path.join(STORAGE, 'state.db'), clock });
  const times = { accessExpiresAtMs: null, accessIssuedAtMs: null, refreshExpiresAtMs: null, clockSkewMs: 0 };
  const save = (refreshToken: string) =>
    state.tokens.save({ ...times, refreshToken, accessToken: SECRETS.storedAccess }, null);
  save(SECRETS.oldRefresh);
  save(SECRETS.storedRefresh);
  state.webhook.update((memory) => ({
    ...memory,
    current: SECRETS.webhookCurrent,
    previous: SECRETS.webhookPrevious,
    pending: SECRETS.webhookPending,
    registered: { callbackUrl: `https://h.example/?k=${SECRETS.urlQuery}`, secretDigest: null },
  }));
  state.close();
}

const env = {
  TILLSYNC_CONFIG: CONFIG,
  CREDENTIALS_DIRECTORY: CREDENTIALS,
  TILLSYNC_ACCESS_TOKEN: SECRETS.accessFromEnvironment,
  TILLSYNC_LOCAL_API_KEY: SECRETS.localApiKey,
  TILLSYNC_WEBHOOK_SECRET: SECRETS.webhookHandedIn,
};

beforeAll(async () => {
  const clock = new FakeClock(Date.UTC(2026, 0, 2, 3, 4, 5));
  for (const directory of [STORAGE, CREDENTIALS]) mkdirSync(directory);
  writeFileSync(path.join(CREDENTIALS, 'refresh-token'), `${SECRETS.handedInRefresh}\n`);
  writeFileSync(
    CONFIG,
    `[platform]\nbase_url = "https://api.example.com"\n[storage]\ndirectory = "${STORAGE}"\n[webhook]\n` +
      `callback_url = "https://h.example/in?key=${SECRETS.urlQuery}"\n# https://shop:${SECRETS.urlPassword}@h.example\n`,
  );
  await plantMirror(clock);
  plantState(clock);
  writeFileSync(path.join(STORAGE, `copy-${SECRETS.localApiKey}-${CUSTOMER.customerFirstName}.txt`), 'x');
  const line = JSON.stringify({ level: 30, msg: everything(), headers: NAMED_SECRETS, customer: CUSTOMER });
  writeFileSync(LOG, `${line}\n${everything()}\n{"level":30,"msg":"kept words of the log"}\n`);
});
afterAll(() => rmSync(DIRECTORY, { recursive: true, force: true }));

const PLACE = /bundle-\d+\.tar\.gz/;
let made = 0;

async function bundle(...words: string[]) {
  const file = path.join(DIRECTORY, `bundle-${++made}.tar.gz`);
  const result = await invoke(['bundle', file, '--log', LOG, '--json', ...words], { env });
  expect(result.code, result.stderr + result.stdout).toBe(0);
  const raw = readFileSync(file);
  const directory = mkdtempSync(path.join(DIRECTORY, 'unpacked-'));
  execFileSync('tar', ['-xzf', file, '-C', directory]);
  const told = `${result.stdout}${result.stderr}`.replace(PLACE, '');
  const read = (name: string) => readFileSync(path.join(directory, name), 'utf8');
  return {
    file,
    document: JSON.parse(result.stdout),
    searched: [raw.toString('latin1'), gunzipSync(raw).toString('utf8'), told],
    read,
  };
}

/** What of `needles` stands anywhere, unpacked, as it lies on the disk, or on the screen. */
function found(searched: readonly string[], needles: readonly string[]): string[] {
  return needles.filter((needle) =>
    searched.some((text) => text.toLowerCase().includes(needle.toLowerCase())),
  );
}

/** Known by their looks or a fingerprint alone, so that a piece of their code cannot be told. */
const UNKNOWN: readonly string[] = [SECRETS.oldRefresh, SECRETS.jwtUnknownHere];
const wholeForms = (secret: string) => [
  ...[secret, Buffer.from(secret).toString('hex'), Buffer.from(secret).toString('base64')],
];
const secretNeedles = [
  ...Object.values(SECRETS).flatMap((secret) =>
    UNKNOWN.includes(secret) ? wholeForms(secret) : forms(secret),
  ),
  ...Object.values(NAMED_SECRETS),
];
const customerNeedles = [
  ...Object.values(CUSTOMER),
  COMMENT,
  ...Object.values(STRANGER),
  'Quispe',
  '8123 4567',
];

describe('bundle', () => {
  it('holds no secret and no customer, wherever they were', async () => {
    const { searched, read, document, file } = await bundle();
    expect(found(searched, secretNeedles)).toEqual([]);
    expect(found(searched, customerNeedles)).toEqual([]);
    expect(statSync(file).mode & 0o777).toBe(0o600);
    // It says enough all the same.
    expect(read('log-1.txt')).toContain('kept words of the log');
    expect(read('orders.ndjson')).toContain('order-kept-1');
    expect(JSON.parse(read('state.json')).auth).toMatchObject({ state: 'ok', generation: 2 });
    expect(JSON.parse(read('quarantine.ndjson')).structure).toMatchObject({
      total: 'whole number',
      customer: { customerFirstName: `text of ${CUSTOMER.customerFirstName.length}` },
    });
    expect(JSON.parse(read('outbox.ndjson'))).toMatchObject({ state: 'rejected', attempts: 0 });
    expect(document.leftOut.length).toBeGreaterThanOrEqual(2);
    expect(read('README.txt')).toContain('Left out');
    const notRead = document.files.filter(({ fault }: { fault: string | null }) => fault !== null);
    expect(notRead).toMatchObject([{ name: 'inbox.json', fault: expect.stringContaining('not-found') }]);
    expect(JSON.parse(read('verdict.json')).verdict.level).toBe('red');
  });

  it('holds customers on request, and still no secret', async () => {
    const { searched, read } = await bundle('--with-customer-data');
    expect(found(searched, secretNeedles)).toEqual([]);
    expect(read('orders.ndjson')).toContain(CUSTOMER.customerFirstName);
  });

  it('knows a token that was handed in long ago by its fingerprint', async () => {
    const db = new Database(path.join(STORAGE, 'state.db'), { readonly: true });
    const prints = db.prepare<[], string>('SELECT fingerprint FROM handed_in').pluck().all();
    db.close();
    expect(prints).toContain(createHash('sha256').update(SECRETS.oldRefresh).digest('hex'));
    const { read } = await bundle();
    expect(read('log-1.txt')).not.toContain(SECRETS.oldRefresh);
  });

  it('tells what cannot be read, and gathers the rest', async () => {
    const place = path.join(DIRECTORY, 'trouble');
    const at = (name: string) => path.join(place, name);
    mkdirSync(place);
    const gather = async (own: Record<string, string>) => {
      const file = at(`bundle-${++made}.tar.gz`);
      const result = await invoke(['bundle', file, '--json'], {
        env: {
          TILLSYNC_STORAGE_DIRECTORY: place,
          TILLSYNC_PLATFORM_BASE_URL: 'https://api.example.com',
          ...own,
        },
      });
      expect(result.code, result.stderr).toBe(0);
      const read = (name: string) => execFileSync('tar', ['-xzOf', file, name], { encoding: 'utf8' });
      const all = gunzipSync(readFileSync(file)).toString('utf8') + result.stdout + result.stderr;
      return { document: JSON.parse(result.stdout), read, all };
    };
    const empty = await gather({});
    expect(empty.read('mirror.json')).toContain('There is no');
    expect(empty.read('versions.json')).toContain(process.version);

    const broken = at('broken.toml');
    writeFileSync(
      broken,
      `[platform\nrefresh_token = "stray-Ee28"\n# https://u:pw-Ff39@h.example/?k=qq-Gg40\n`,
    );
    const faulty = await gather({ TILLSYNC_CONFIG: broken });
    expect(JSON.parse(faulty.read('configuration.json')).faults.length).toBeGreaterThan(0);
    expect(found([faulty.all], ['stray-Ee28', 'pw-Ff39', 'qq-Gg40'])).toEqual([]);

    writeFileSync(at('mirror.db'), 'this is no database, although it has the name of one. '.repeat(200));
    const corrupt = await gather({});
    expect(JSON.parse(corrupt.read('mirror.json')).couldNotBeRead).toContain('storage-corrupt');
    expect(corrupt.document.leftOut.join()).toContain('mirror.json');
    rmSync(at('mirror.db'));

    const newer = new Database(at('mirror.db'));
    newer.exec('CREATE TABLE schema_migrations (number INTEGER, name TEXT); CREATE TABLE orders (id)');
    newer.exec("INSERT INTO schema_migrations VALUES (1, '0001-orders'), (99, '0099-of-tomorrow')");
    newer.close();
    const tomorrow = await gather({});
    expect(JSON.parse(tomorrow.read('mirror.json'))).toMatchObject({
      quickCheck: 'ok',
      rows: { orders: 0 },
      schemaSteps: [{}, { name: '0099-of-tomorrow' }],
    });
  });

  it('hides a secret in any clothes', () => {
    const secret = fc.stringMatching(/^[!-~]{8,40}$/);
    const clothes = fc.constantFrom<(secret: string) => string>(
      (text) => text,
      (text) => JSON.stringify({ a: JSON.stringify({ b: text }) }),
      (text) => encodeURIComponent(text),
      (text) => Buffer.from(text).toString('hex'),
      (text) => Buffer.from(`user:${text}`).toString('base64'),
      (text) => Buffer.from(`{"t":"${text}"}`).toString('base64url'),
    );
    fc.assert(
      fc.property(secret, clothes, fc.string(), fc.string(), (text, dress, before, after) => {
        const redactor = new Redactor({ secrets: [text], fingerprints: new Set() });
        const told = redactor.known(redactor.text(`${before} ${dress(text)} ${after}`));
        return ![text, dress(text)].some((form) => told.includes(form)) && !redactor.finds(told);
      }),
      { seed: 11, numRuns: 300 },
    );
  });
});
