import { execFileSync } from 'node:child_process';
import { mkdtempSync, readFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { gunzipSync } from 'node:zlib';
import { expect } from 'vitest';
import { openMirror } from '../../src/app/mirror.ts';
import { openState } from '../../src/app/state.ts';
import { invoke } from '../cli/invoke.ts';
import type { FakeClock } from '../support/fake-clock.ts';
import { freshMirror } from '../support/fresh-mirror.ts';

export const DIRECTORY = mkdtempSync(path.join(tmpdir(), 'tillsync-bundle-'));
export const STORAGE = path.join(DIRECTORY, 'storage');
export const LOG = path.join(DIRECTORY, 'tillsync.log');
export const CREDENTIALS = path.join(DIRECTORY, 'credentials');
export const CONFIG = path.join(DIRECTORY, 'config.toml');

/** One secret for each place where a secret can be, with characters that every encoding writes differently. */
export const SECRETS = {
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
/** Secrets that can be recognised only by the name before them. */
export const NAMED_SECRETS = {
  authorization: 'Opaque-Aa84-unknown',
  'x-webhook-secret': 'hdr-Bb95-unknown',
  api_key: 'api-Cc06-unknown',
  password: 'pw-Dd17-unknown',
};
export const CUSTOMER = {
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

/** Returns a text with all personal data and with every secret in every form. */
export const everything = () =>
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

export async function plantMirror(clock: FakeClock): Promise<void> {
  const mirror = openMirror({ path: freshMirror(STORAGE), clock });
  const reading = {
    orderId: 'order-kept-1',
    fields: { status: 'pending', code: 7, createdAt: '2026-01-02T00:00:00.000Z', ...CUSTOMER },
    items: [
      {
        productExternalId: 'E-1',
        productName: 'Pizza',
        quantity: 1,
        comment: COMMENT,
        unitPrice: 1,
        baseUnitPrice: 1,
        productPrice: 1,
        productBasePrice: 1,
        modifiers: [],
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
  await mirror.save([
    { kind: 'order', observation },
    {
      kind: 'unreadable',
      unreadable: { source: 'webhook', receivedAtMs: clock.nowMs(), reason: `Bad: ${everything()}`, payload },
    },
  ]);
  mirror.health.report('orders.poll', 'failing', everything());
  mirror.health.note('orders.stale', everything());
  await mirror.health.flush();
  await mirror.write((db) =>
    db
      .prepare(
        `INSERT INTO _outbox (change_id, kind, target, conflict_key, body, fields, state, message, created_at, priority,
           queue_seq, basis, source, version)
         VALUES (1, 'product', ?, 'c', ?, 'name', 'rejected', ?, '2026-01-01T00:00:00.000Z', 1, 1, 'mirror', 'cli', 1)`,
      )
      .run(`sku:${SECRETS.storedAccess}`, JSON.stringify({ name: everything() }), everything()),
  );
  await mirror.close();
}

export function plantState(clock: FakeClock): void {
  const state = openState({ path: path.join(STORAGE, 'state.db'), clock });
  const times = { accessExpiresAtMs: null, accessIssuedAtMs: null, refreshExpiresAtMs: null, clockSkewMs: 0 };
  const save = (refreshToken: string) =>
    state.tokens.save({ ...times, refreshToken, accessToken: SECRETS.storedAccess }, null, refreshToken);
  save(SECRETS.oldRefresh);
  save(SECRETS.storedRefresh);
  state.webhook.update((memory) => ({
    ...memory,
    current: SECRETS.webhookCurrent,
    previous: SECRETS.webhookPrevious,
    pending: [SECRETS.webhookPending],
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

const PLACE = /bundle-\d+\.tar\.gz/;
let made = 0;

export async function bundle(...words: string[]) {
  const file = path.join(DIRECTORY, `bundle-${++made}.tar.gz`);
  const result = await invoke(['bundle', file, '--log', LOG, '--json', ...words], { env });
  expect(result.code, result.stderr + result.stdout).toBe(0);
  const raw = readFileSync(file);
  const directory = mkdtempSync(path.join(DIRECTORY, 'unpacked-'));
  execFileSync('tar', ['-xzf', file, '-C', directory, '--strip-components=1']);
  const told = `${result.stdout}${result.stderr}`.replace(PLACE, '');
  const read = (name: string) => readFileSync(path.join(directory, name), 'utf8');
  return {
    file,
    document: JSON.parse(result.stdout),
    searched: [raw.toString('latin1'), gunzipSync(raw).toString('utf8'), told],
    read,
  };
}

/** Returns the `needles` that are in the unpacked bundle, on the disk, or on the screen. */
export function found(searched: readonly string[], needles: readonly string[]): string[] {
  return needles.filter((needle) =>
    searched.some((text) => text.toLowerCase().includes(needle.toLowerCase())),
  );
}

/** Secrets known only by their looks or a fingerprint, so a part of their encoded form is not recognisable. */
const UNKNOWN: readonly string[] = [SECRETS.oldRefresh, SECRETS.jwtUnknownHere];
const wholeForms = (secret: string) => [
  ...[secret, Buffer.from(secret).toString('hex'), Buffer.from(secret).toString('base64')],
];
export const secretNeedles = [
  ...Object.values(SECRETS).flatMap((secret) =>
    UNKNOWN.includes(secret) ? wholeForms(secret) : forms(secret),
  ),
  ...Object.values(NAMED_SECRETS),
];
export const customerNeedles = [
  ...Object.values(CUSTOMER),
  COMMENT,
  ...Object.values(STRANGER),
  'Quispe',
  '8123 4567',
];
