import { createHash } from 'node:crypto';
import {
  createReadStream,
  existsSync,
  lstatSync,
  mkdirSync,
  openSync,
  readdirSync,
  readFileSync,
  rmSync,
  statfsSync,
  statSync,
} from 'node:fs';
import { open } from 'node:fs/promises';
import { join } from 'node:path';
import { pipeline } from 'node:stream/promises';
import { createGunzip } from 'node:zlib';
import { z } from 'zod';
import { asRoot, isActing, isReadable, programVersion, requireRights } from '../app/installation.ts';
import { noMirror } from '../app/readers.ts';
import { RUNNING, storagePaths } from '../app/storage.ts';
import { openState } from '../app/stores.ts';
import type { Config } from '../config/config-type.ts';
import { asTillsyncError, hasCode, TillsyncError } from '../core/errors.ts';
import { openWhenFree } from '../core/files.ts';
import { type Clock, isoUtc } from '../core/time.ts';
import { copyDatabase, toStorageError } from '../db/sqlite.ts';
import type { InboxAck, InboxChange, InboxFrom, InboxRow } from '../outbox/inbox.ts';
import { type LookIntoInboxOptions, lookIntoInbox } from '../outbox/inbox-process.ts';
import { makeArchive, readTar, type TarEntry, TarFault, type TarFile, textFile } from './archive.ts';
import { checkMirrorCopy } from './restored-mirror.ts';

export const MANIFEST = 'manifest.json';
export const CONFIG_FILE = 'config.toml';
export const MIRROR_FILE = 'mirror.db';
export const TOKENS_FILE = 'tokens.json';
export const STOCK_FILE = 'stock-changes.ndjson';
export const PRODUCT_FILE = 'product-changes.ndjson';
export const ACKS_FILE = 'order-acks.ndjson';

/** Rises when an older tillsync could no longer restore what is written. */
export const FORMAT_VERSION = 1;

const count = z.number().int().min(0);
const mark = z.object({ seq: count, orderId: z.string(), observedAt: z.string() });

/** First file of a backup: what it is, and what must be in it. */
export const manifestSchema = z.object({
  format: z.literal('tillsync-backup'),
  formatVersion: count,
  /** ISO 8601 in UTC: the moment the mirror is of. */
  createdAt: z.iso.datetime(),
  /** Version of the program that made it. */
  tillsync: z.string(),
  /** Host of the platform, so that one company's backup is not taken for another's. */
  platform: z.string(),
  files: z.array(
    z.object({
      name: z.string().regex(/^[a-z0-9][a-z0-9.-]{0,99}$/),
      bytes: count,
      sha256: z.string().regex(/^[0-9a-f]{64}$/),
    }),
  ),
  mirror: z.object({
    schema: z.array(z.string()),
    orders: count,
    events: count,
    products: count,
    unsentChanges: count,
    newestSeq: count,
    newestEvent: mark.nullable(),
  }),
  /** What a POS had handed over and tillsync had not taken yet; null: the inbox could not be read. */
  inbox: z.object({ stockChanges: count, productChanges: count, orderAcks: count }).nullable(),
  hasConfig: z.boolean(),
  hasTokens: z.boolean(),
});

export type Manifest = z.infer<typeof manifestSchema>;
export type ManifestFile = Manifest['files'][number];

/** Of a backup with `--with-tokens`. */
export const tokensSchema = z.object({
  tokens: z
    .object({
      refreshToken: z.string().min(1),
      accessToken: z.string().nullable(),
      accessExpiresAtMs: z.number().nullable(),
      accessIssuedAtMs: z.number().nullable(),
      refreshExpiresAtMs: z.number().nullable(),
      clockSkewMs: z.number(),
    })
    .nullable(),
  webhook: z.looseObject({
    current: z.string().nullable(),
    previous: z.string().nullable(),
    previousUntilMs: z.number().nullable(),
    pending: z.union([z.array(z.string()), z.string().nullable()]),
    handedInDigest: z.string().nullable(),
    registered: z.object({ callbackUrl: z.string(), secretDigest: z.string().nullable() }).nullable(),
  }),
});

const NAME = '.backup-';
const ROOM_TO_SPARE_BYTES = 64 * 1024 * 1024;

/** Where a copy of the mirror lies until it is packed. */
export interface Scratch {
  directory: string;
  clear(): void;
}

/**
 * `beside` the file that is written; but where root acts as the owner of the storage directory, in that: he may not
 * write where root may. Throws `storage-full` where a copy has no room there.
 */
export function scratchFor(beside: string, storage: string, mirror: string): Scratch {
  if (!isActing()) return { directory: beside, clear: () => {} };
  for (const name of readdirSync(storage)) {
    if (name.startsWith(NAME)) rmSync(join(storage, name), { recursive: true, force: true });
  }
  refuseWithoutRoom(storage, mirror);
  const directory = join(storage, `${NAME}${process.pid}`);
  mkdirSync(directory, { mode: 0o700 });
  return { directory, clear: () => rmSync(directory, { recursive: true, force: true }) };
}

function refuseWithoutRoom(storage: string, mirror: string): void {
  const needed = ['', '-wal']
    .map((suffix) => statSync(mirror + suffix, { throwIfNoEntry: false })?.size ?? 0)
    .reduce((sum, bytes) => sum + bytes, ROOM_TO_SPARE_BYTES);
  const { bavail, bsize } = statfsSync(storage);
  if (bavail * bsize >= needed) return;
  const mib = (bytes: number) => `${Math.ceil(bytes / 1024 / 1024)} MiB`;
  throw new TillsyncError(
    'storage-full',
    `${storage} has room for ${mib(bavail * bsize)}; the copy for the backup needs ${mib(needed)} there. Nothing was written.`,
    { hint: 'Free some space, and back up again.', retryable: false },
  );
}

/** More are in nobody's inbox: the daemon empties it within a second. */
const ROWS_MAX = 200_000;

export interface InboxCopyOfRows {
  files: TarFile[];
  counts: Manifest['inbox'];
  fault: TillsyncError | null;
}

/** What a POS handed over by SQL and nobody has taken yet, one JSON document a line, as `push` reads changes. */
export async function copyInboxRows(options: LookIntoInboxOptions): Promise<InboxCopyOfRows> {
  const none = { stockChanges: 0, productChanges: 0, orderAcks: 0 };
  if (!lstatSync(options.path, { throwIfNoEntry: false })) return { files: [], counts: none, fault: null };
  try {
    return copyOf(await rowsOf(options));
  } catch (error) {
    if (hasCode(error, 'aborted')) throw error;
    return { files: [], counts: null, fault: asTillsyncError(error) };
  }
}

interface Rows {
  changes: InboxChange[];
  acks: InboxAck[];
}

/** Page by page, so that a POS is never locked out for long. What is taken in meanwhile is in the mirror. */
function rowsOf(options: LookIntoInboxOptions): Promise<Rows> {
  return lookIntoInbox(options, async (ask) => {
    const rows: Rows = { changes: [], acks: [] };
    const from: InboxFrom = {};
    while (rows.changes.length + rows.acks.length < ROWS_MAX) {
      const { changes, acks, more } = await ask({ do: 'copy', from });
      for (const { table, id } of [...changes, ...acks]) from[table] = String(BigInt(id) + 1n);
      rows.changes.push(...changes);
      rows.acks.push(...acks);
      if (!more) break;
    }
    return rows;
  });
}

function copyOf(rows: Rows): InboxCopyOfRows {
  // Nobody takes these: they become rejected changes.
  const isShort = ({ tooLong }: InboxRow) => tooLong === null;
  const [changes, acks] = [rows.changes.filter(isShort), rows.acks.filter(isShort)];
  const ofKind = (kind: 'stock' | 'product') =>
    changes
      .filter((change) => change.kind === kind)
      .map(({ value, reference }) => (reference === null ? value : { ...value, reference }));
  const [stock, product] = [ofKind('stock'), ofKind('product')];
  const files = [
    { name: STOCK_FILE, documents: stock },
    { name: PRODUCT_FILE, documents: product },
    { name: ACKS_FILE, documents: acks.map(({ orderId, key }) => ({ orderId, key })) },
  ];
  return {
    files: files
      .filter(({ documents }) => documents.length > 0)
      .map(({ name, documents }) =>
        textFile(name, documents.map((each) => `${JSON.stringify(each)}\n`).join('')),
      ),
    counts: { stockChanges: stock.length, productChanges: product.length, orderAcks: acks.length },
    fault: null,
  };
}

const MANIFEST_BYTES_MAX = 1024 * 1024;
const TEXT_BYTES_MAX = 1024 * 1024;

export interface ReadBackupOptions {
  /** Descriptor of the file, opened by who may read it; it stays open. Without it the file is opened by its path. */
  file?: number | undefined;
  /** Writes the files into this directory, mode 0600, on the disk when it returns. */
  into?: string;
  /** Keeps the text of this small file. */
  text?: string;
  signal?: AbortSignal | undefined;
}

/**
 * Reads a backup from its first byte to its last and holds every file against the manifest. Throws `not-found`;
 * `storage-corrupt` when it is no backup, not whole or altered; `storage-newer`; `aborted`.
 */
export async function readBackup(
  path: string,
  options: ReadBackupOptions = {},
): Promise<{ manifest: Manifest; text: string | undefined }> {
  const gunzip = createGunzip();
  const reading = async () => {
    try {
      return await readFiles(gunzip, options);
    } finally {
      gunzip.destroy();
    }
  };
  const { file: fd } = options;
  const streams = pipeline(
    createReadStream(path, fd === undefined ? {} : { fd, start: 0, autoClose: false }),
    gunzip,
    ...(options.signal ? [{ signal: options.signal }] : []),
  );
  // Whatever ends the streams comes out of the reading, too.
  streams.catch(() => {});
  try {
    return await reading();
  } catch (error) {
    throw judge(error, path, options.signal);
  }
}

/** Opens a backup, to be read as another user than the one who may open it. Throws `not-found`, `usage`. */
export function openBackup(path: string): number {
  try {
    return openSync(path, 'r');
  } catch (error) {
    throw judge(error, path, undefined);
  }
}

async function readFiles(source: AsyncIterable<Uint8Array>, { into, text: wanted }: ReadBackupOptions) {
  let manifest: Manifest | undefined;
  let text: string | undefined;
  const missing: ManifestFile[] = [];
  for await (const entry of readTar(source)) {
    if (manifest === undefined) {
      manifest = await readManifest(entry);
      missing.push(...manifest.files);
      continue;
    }
    const expected = missing.shift();
    if (expected?.name !== entry.name || expected.bytes !== entry.bytes) {
      throw new TarFault(`${entry.name} in it is not what its list says`);
    }
    const keep = entry.name === wanted && entry.bytes <= TEXT_BYTES_MAX;
    const { sha256, kept } = await take(entry, into, keep);
    if (sha256 !== expected.sha256) throw new TarFault(`${entry.name} in it was altered`);
    text ??= kept;
  }
  if (manifest === undefined || missing.length > 0) throw new TarFault('files are missing in it');
  return { manifest, text };
}

async function readManifest(entry: TarEntry): Promise<Manifest> {
  if (entry.name !== MANIFEST || entry.bytes > MANIFEST_BYTES_MAX) throw new TarFault('it has no manifest');
  const chunks: Uint8Array[] = [];
  for await (const chunk of entry.content) chunks.push(chunk);
  let document: unknown;
  try {
    document = JSON.parse(Buffer.concat(chunks).toString('utf8'));
  } catch {
    throw new TarFault('its manifest cannot be read');
  }
  if (isNewer(document)) {
    throw new TillsyncError(
      'storage-newer',
      'The backup was made by a newer tillsync. Nothing was changed.',
      {
        hint: 'Install that version of tillsync, or a newer one, and restore with it.',
      },
    );
  }
  const parsed = manifestSchema.safeParse(document);
  if (!parsed.success) throw new TarFault('its manifest is not one of a backup');
  return parsed.data;
}

function isNewer(document: unknown): boolean {
  if (typeof document !== 'object' || document === null || !('formatVersion' in document)) return false;
  return typeof document.formatVersion === 'number' && document.formatVersion > FORMAT_VERSION;
}

async function take(entry: TarEntry, into: string | undefined, keep: boolean) {
  const hash = createHash('sha256');
  const kept: Uint8Array[] = [];
  const file = into === undefined ? undefined : await open(join(into, entry.name), 'wx', 0o600);
  try {
    for await (const chunk of entry.content) {
      hash.update(chunk);
      if (keep) kept.push(Buffer.from(chunk));
      await file?.writeFile(chunk);
    }
    await file?.sync();
  } finally {
    await file?.close();
  }
  return { sha256: hash.digest('hex'), kept: keep ? Buffer.concat(kept).toString('utf8') : undefined };
}

function judge(error: unknown, path: string, signal: AbortSignal | undefined): TillsyncError {
  if (signal?.aborted) return new TillsyncError('aborted', 'Stopped. Nothing was changed.');
  if (error instanceof TillsyncError) return error;
  const code = error instanceof Error && 'code' in error ? String(error.code) : '';
  if (code === 'EACCES') {
    return new TillsyncError('usage', `You do not have permission to read ${path}. Nothing was changed.`, {
      cause: error,
      hint: 'Run it again with sudo.',
    });
  }
  if (code === 'ENOENT') return new TillsyncError('not-found', `There is no backup ${path}.`);
  if (error instanceof TarFault || code.startsWith('Z_') || code === 'ERR_STREAM_PREMATURE_CLOSE') {
    const why = error instanceof TarFault ? error.message : 'it is damaged, or not whole';
    return new TillsyncError('storage-corrupt', `${path} cannot be used: ${why}. Nothing was changed.`, {
      cause: error,
      hint: 'Copy it again from where it was made, or use another backup.',
    });
  }
  return toStorageError(error, path);
}

export interface BackupOptions {
  config: Config;
  /** Where the configuration was read from; left out of the backup when it is no file. */
  configFile: string;
  path: string;
  force: boolean;
  withTokens: boolean;
  clock: Clock;
  signal?: AbortSignal | undefined;
}

export interface BackupReport {
  bytes: number;
  manifest: Manifest;
  /** Whether the daemon runs that would use up a token in the backup; null: none is in it. */
  tokensInUse: boolean | null;
  /** Why the inbox is not part of it. */
  inboxFault: TillsyncError | null;
}

/**
 * Writes mirror, inbox rows and configuration, as of one moment each, into one file, also beside a running daemon,
 * and reads it once more before it gets its name. Throws `not-found` before the first start, `usage` when the file
 * is there, `storage-…`, `aborted`.
 */
export async function writeBackup(options: BackupOptions): Promise<BackupReport> {
  const paths = storagePaths(options.config.storage.directory);
  const { directory } = options.config.storage;
  requireRights(directory, 'read');
  if (!isReadable(paths.mirror)) throw noMirror(directory);
  const { clock, path, force, signal } = options;
  const secrets = options.withTokens ? await tokensOf(paths.state, clock) : null;
  const inbox = await copyInboxRows({ path: paths.inbox, clock, signal });
  const small = [...configFile(options.configFile), ...(secrets ? [secrets.file] : []), ...inbox.files];
  let manifest: Manifest | undefined;
  let scratch: Scratch | undefined;
  async function* files(beside: string): AsyncGenerator<TarFile> {
    const createdAt = isoUtc(clock.nowMs());
    scratch = scratchFor(beside, options.config.storage.directory, paths.mirror);
    const copy = join(scratch.directory, MIRROR_FILE);
    copyDatabase(paths.mirror, copy);
    manifest = {
      format: 'tillsync-backup',
      formatVersion: FORMAT_VERSION,
      createdAt,
      tillsync: programVersion(),
      platform: new URL(options.config.platform.baseUrl).host,
      files: await Promise.all([...small.map(listed), listedFile(MIRROR_FILE, copy)]),
      mirror: checkMirrorCopy(copy),
      inbox: inbox.counts,
      hasConfig: small.some(({ name }) => name === CONFIG_FILE),
      hasTokens: secrets !== null,
    };
    yield textFile(MANIFEST, `${JSON.stringify(manifest, null, 2)}\n`);
    yield* small;
    yield { name: MIRROR_FILE, bytes: statSync(copy).size, content: createReadStream(copy) };
  }
  const verify = async (file: number) => {
    await readBackup(path, { file, signal });
  };
  const where = { path, force, modifiedMs: clock.nowMs(), signal, verify };
  const bytes = await makeArchive(where, files).finally(() => scratch?.clear());
  if (manifest === undefined) throw new TillsyncError('internal', 'A backup was written without its list.');
  return { bytes, manifest, tokensInUse: secrets?.inUse ?? null, inboxFault: inbox.fault };
}

function configFile(path: string): TarFile[] {
  // It may be readable for root alone.
  return asRoot(() => (existsSync(path) ? [textFile(CONFIG_FILE, readFileSync(path, 'utf8'))] : []));
}

async function tokensOf(path: string, clock: Clock): Promise<{ file: TarFile; inUse: boolean }> {
  if (!isReadable(path)) {
    throw new TillsyncError('not-found', 'No tokens were ever stored here. Nothing was written.', {
      hint: 'Make the backup without --with-tokens.',
    });
  }
  const state = await openWhenFree(clock, () => openState({ path, clock }));
  try {
    const pair = state.tokens.read();
    const tokens = pair && {
      refreshToken: pair.refreshToken,
      accessToken: pair.accessToken,
      accessExpiresAtMs: pair.accessExpiresAtMs,
      accessIssuedAtMs: pair.accessIssuedAtMs,
      refreshExpiresAtMs: pair.refreshExpiresAtMs,
      clockSkewMs: pair.clockSkewMs,
    };
    const text = JSON.stringify({ tokens, webhook: state.webhook.read() }, null, 2);
    return { file: textFile(TOKENS_FILE, `${text}\n`), inUse: state.leases.isHeld(RUNNING) };
  } finally {
    state.close();
  }
}

function listed({ name, bytes, content }: TarFile): Promise<Manifest['files'][number]> {
  return hashed(name, bytes, content);
}

function listedFile(name: string, path: string): Promise<Manifest['files'][number]> {
  return hashed(name, statSync(path).size, createReadStream(path));
}

async function hashed(name: string, bytes: number, content: TarFile['content']) {
  const hash = createHash('sha256');
  for await (const chunk of content) hash.update(chunk);
  return { name, bytes, sha256: hash.digest('hex') };
}
