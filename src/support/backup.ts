import { createHash } from 'node:crypto';
import {
  createReadStream,
  existsSync,
  lstatSync,
  mkdirSync,
  openSync,
  readFileSync,
  readSync,
  rmSync,
  statfsSync,
  statSync,
} from 'node:fs';
import { open } from 'node:fs/promises';
import { basename, join, resolve } from 'node:path';
import { pipeline } from 'node:stream/promises';
import { createGunzip } from 'node:zlib';
import * as z from 'zod';
import { asRoot, isActing, isReadable, programVersion, requireRights } from '../app/installation.ts';
import { openMirror } from '../app/mirror.ts';
import { noMirror } from '../app/read-only-services.ts';
import { openState } from '../app/state.ts';
import { RUNNING, storagePaths } from '../app/storage.ts';
import { hookNames } from '../config/config.ts';
import type { Config } from '../config/config-type.ts';
import { companyHost, isHub } from '../config/roles.ts';
import { readSecrets, secretsByName, serviceOf } from '../config/secrets.ts';
import type { Environment } from '../config/source.ts';
import { asTillsyncError, hasCode, TillsyncError } from '../core/errors.ts';
import { openWhenFree } from '../core/files.ts';
import { type Clock, isoUtc } from '../core/time.ts';
import { Audit } from '../db/audit.ts';
import { type SigningKey, signingKeyFor } from '../db/signing-keys.ts';
import { copyDatabase, lookInto, toStorageError, walBytes } from '../db/sqlite.ts';
import { HUB_KEYS } from '../link/hub-state.ts';
import type { InboxAck, InboxChange, InboxRow } from '../outbox/intake/inbox.ts';
import { type LookIntoInboxOptions, lookIntoInbox } from '../outbox/intake/inbox-process.ts';
import type { InboxFrom } from '../outbox/intake/inbox-protocol.ts';
import { makeArchive, readTar, type TarEntry, TarFault, type TarFile, textFile } from './archive.ts';
import { removeLeftOvers } from './backup-files.ts';
import { refuseForged, SIGNATURE_BYTES_MAX, SIGNATURE_FILE, signatureOf } from './backup-origin.ts';
import type { Opening, ReadableBy } from './encryption.ts';
import { checkMirrorCopy, count, mirrorFactsSchema } from './restored-mirror.ts';

const MANIFEST = 'manifest.json';
export const CONFIG_FILE = 'config.toml';
export const MIRROR_FILE = 'mirror.db';
export const TOKENS_FILE = 'tokens.json';
export const HUB_FILE = 'hub.json';
export const STOCK_FILE = 'stock-changes.ndjson';
export const PRODUCT_FILE = 'product-changes.ndjson';
export const ACKS_FILE = 'order-acks.ndjson';

/** Version of the format. Increase it when an older tillsync can no longer restore a new backup. */
const FORMAT_VERSION = 1;

/** The manifest, the first file of a backup: what the backup contains, and the list of the files that must follow. */
const manifestSchema = z.object({
  format: z.literal('tillsync-backup'),
  formatVersion: count,
  /** Name of the file when it was made. */
  name: z.string(),
  /** Time of the mirror's state, ISO 8601 in UTC. */
  createdAt: z.iso.datetime(),
  /** Version of the program that made the backup. */
  tillsync: z.string(),
  /** Host of the platform (at a branch, of the hub), so that a backup of another company is recognised. */
  platform: z.string(),
  files: z.array(
    z.object({
      name: z.string().regex(/^[a-z0-9][a-z0-9.-]{0,99}$/),
      bytes: count,
      sha256: z.string().regex(/^[0-9a-f]{64}$/),
    }),
  ),
  mirror: mirrorFactsSchema,
  /** Inbox rows that tillsync had not copied yet; null if the inbox was unreadable. */
  inbox: z.object({ stockChanges: count, productChanges: count, orderAcks: count }).nullable(),
  hasConfig: z.boolean(),
  hasTokens: z.boolean(),
  /** At a hub: the number of branches whose public keys are included. */
  branches: count.optional(),
  /** Names of the secrets that were handed in; their values are in no backup. */
  handedIn: z.array(z.string()),
});

export type Manifest = z.infer<typeof manifestSchema>;

/** Content of the file of tokens, in a backup made with `--with-tokens`. */
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
  webhook: z.object({
    current: z.string().nullable(),
    previous: z.string().nullable(),
    previousUntilMs: z.number().nullable(),
    pending: z.array(z.string()),
    handedInDigest: z.string().nullable(),
    registered: z.object({ callbackUrl: z.string(), secretDigest: z.string().nullable() }).nullable(),
    isOff: z.boolean(),
    isWithoutSecret: z.boolean(),
  }),
  /** Secret keys of the hub itself; null if this is no hub. */
  hubKeys: HUB_KEYS.nullable(),
});

const ROOM_TO_SPARE_BYTES = 64 * 1024 * 1024;

/**
 * Throws `storage-full` if there is no room for `bytes`. `say` makes the sentence from the available and needed
 * sizes.
 */
function refuseWithoutRoom(
  directory: string,
  bytes: number,
  { say, hint }: { say: (room: string, needed: string) => string; hint: string },
): void {
  const { bavail, bsize } = statfsSync(directory);
  const needed = bytes + ROOM_TO_SPARE_BYTES;
  if (bavail * bsize >= needed) return;
  const mib = (size: number) => `${Math.ceil(size / 1024 / 1024)} MiB`;
  const message = `${directory} has room for ${say(mib(bavail * bsize), mib(needed))}`;
  throw new TillsyncError('storage-full', message, { hint, retryable: false });
}

/**
 * Makes a work directory inside the storage directory, because root may act as the directory's owner, who cannot write
 * elsewhere. Deletes the work directories of killed commands. Throws `storage-full`.
 */
export function makeScratch(
  storage: string,
  start: string,
  bytes: number,
  words: Parameters<typeof refuseWithoutRoom>[2],
): string {
  removeLeftOvers(storage, start);
  refuseWithoutRoom(storage, bytes, words);
  const directory = join(storage, `${start}${process.pid}`);
  mkdirSync(directory, { mode: 0o700 });
  return directory;
}

const NO_ROOM = {
  say: (room: string, needed: string) =>
    `${room}; the copy for the backup needs ${needed} there. Nothing was written.`,
  hint: 'Free some space, and back up again.',
};

/** Maximum number of inbox rows in a backup. Inboxes have fewer, because the daemon empties them within a second. */
const ROWS_MAX = 200_000;

interface InboxCopy {
  files: TarFile[];
  counts: Manifest['inbox'];
  fault: TillsyncError | null;
}

/** Copies the inbox's rows, one JSON document per line, in the form that `push` reads. */
async function copyInbox(options: LookIntoInboxOptions): Promise<InboxCopy> {
  try {
    const isThere = lstatSync(options.path, { throwIfNoEntry: false }) !== undefined;
    const { changes, acks } = isThere ? await inboxRows(options) : { changes: [], acks: [] };
    const ofKind = (kind: 'stock' | 'product') =>
      changes
        .filter((change) => change.kind === kind)
        .map(({ value, reference }) => (reference === null ? value : { ...value, reference }));
    const [stock, product] = [ofKind('stock'), ofKind('product')];
    const lists = [
      { name: STOCK_FILE, documents: stock },
      { name: PRODUCT_FILE, documents: product },
      {
        name: ACKS_FILE,
        documents: acks.map(({ orderId, key, seq, without }) => ({
          orderId,
          key,
          ...(seq !== null && { seq }),
          ...(without.length > 0 && { without }),
        })),
      },
    ].filter(({ documents }) => documents.length > 0);
    return {
      files: lists.map(({ name, documents }) =>
        textFile(name, documents.map((each) => `${JSON.stringify(each)}\n`).join('')),
      ),
      counts: { stockChanges: stock.length, productChanges: product.length, orderAcks: acks.length },
      fault: null,
    };
  } catch (error) {
    if (hasCode(error, 'aborted')) throw error;
    return { files: [], counts: null, fault: asTillsyncError(error) };
  }
}

/**
 * Reads the inbox's rows page by page, so that a POS is never locked out for long. Rows that the daemon takes over
 * meanwhile are in the mirror, which is copied afterwards.
 */
function inboxRows(options: LookIntoInboxOptions): Promise<{ changes: InboxChange[]; acks: InboxAck[] }> {
  // Rows that are too long are left out, because the daemon rejects them.
  const isShort = ({ tooLong }: InboxRow) => tooLong === null;
  return lookIntoInbox(options, async (ask) => {
    const changes: InboxChange[] = [];
    const acks: InboxAck[] = [];
    const from: InboxFrom = {};
    for (let rows = 0; rows < ROWS_MAX; ) {
      const page = await ask({ do: 'copy', from });
      for (const { table, id } of [...page.changes, ...page.acks]) from[table] = String(BigInt(id) + 1n);
      rows += page.changes.length + page.acks.length;
      changes.push(...page.changes.filter(isShort));
      acks.push(...page.acks.filter(isShort));
      if (!page.more) break;
    }
    return { changes, acks };
  });
}

const MANIFEST_BYTES_MAX = 1024 * 1024;
const TEXT_BYTES_MAX = 1024 * 1024;

export interface ReadBackupOptions {
  /** Descriptor of the open file, if another user opened it. Without it the file is opened by its path. */
  file?: number | undefined;
  /** Directory into which the files are written, with mode 0600. They are durable on return. */
  into?: string;
  /** Name of a small file whose text is returned. */
  text?: string;
  /** Opens an encrypted backup. */
  opening?: Opening | undefined;
  /** Whether a plain file is refused; one whose name says encrypted is refused always. */
  isSecret?: boolean;
  signal?: AbortSignal | undefined;
}

/**
 * Reads a whole backup and checks every file against the manifest, and the manifest against its signature. Throws
 * `not-found`; `usage` when it is plain, or not signed as it has to be; `storage-corrupt` when it is no backup,
 * incomplete or altered; `storage-newer`; `aborted`.
 */
export async function readBackup(
  path: string,
  options: ReadBackupOptions = {},
): Promise<{ manifest: Manifest; text: string | undefined }> {
  return await readArchive(path, options, (entries) => readFiles(entries, path, options));
}

export type ReadArchiveOptions = Pick<ReadBackupOptions, 'file' | 'signal' | 'opening' | 'isSecret'>;

/** Runs `read` on the files of an archive, which may be encrypted. Throws as readBackup does. */
export async function readArchive<T>(
  path: string,
  { file: fd, signal, opening, isSecret = false }: ReadArchiveOptions,
  read: (entries: AsyncIterable<TarEntry>) => Promise<T>,
): Promise<T> {
  const gunzip = createGunzip();
  const source = createReadStream(path, fd === undefined ? {} : { fd, start: 0, autoClose: false });
  // The pipeline's rejection is ignored, because the code that reads the stream throws the same error.
  const opened = (bytes: AsyncIterable<Uint8Array>) =>
    openedBy(opening, bytes, { path, isSecret: isSecret || path.endsWith(ENCRYPTED) });
  pipeline(source, opened, gunzip, ...(signal ? [{ signal }] : [])).catch(() => {});
  try {
    return await read(readTar(gunzip));
  } catch (error) {
    throw judge(error, path, signal);
  } finally {
    gunzip.destroy();
  }
}

/** Ending of the names of encrypted backups, the same that the program `age` uses. */
export const ENCRYPTED = '.age';
const AGE_HEADER = Buffer.from('age-encryption.org/v1\n');

/** Returns whether an open file is encrypted. */
export function isEncrypted(file: number): boolean {
  const start = Buffer.alloc(AGE_HEADER.length);
  readSync(file, start, 0, start.length, 0);
  return AGE_HEADER.equals(start);
}

/**
 * Yields the archive's bytes, decrypting an encrypted file. Throws `usage` if nothing here decrypts it, or if it is plain
 * although it has to be encrypted.
 */
async function* openedBy(
  opening: Opening | undefined,
  bytes: AsyncIterable<Uint8Array>,
  { path, isSecret }: { path: string; isSecret: boolean },
) {
  const pieces = bytes[Symbol.asyncIterator]();
  const first = await pieces.next();
  if (first.done) return;
  const all = (async function* () {
    yield first.value;
    yield* { [Symbol.asyncIterator]: () => pieces };
  })();
  if (!AGE_HEADER.equals(first.value.subarray(0, AGE_HEADER.length))) {
    if (isSecret) throw plain(path);
    yield* all;
    return;
  }
  if (opening) {
    yield* opening.decrypt(all);
    return;
  }
  throw new TillsyncError('usage', `${path} is encrypted. Nothing was changed.`, {
    hint: `Have its recovery phrase at hand, and run: {tillsync} restore ${path} --phrase`,
  });
}

/** Returns the error for a plain file in the place of an encrypted one, which anyone can have written. */
function plain(path: string): TillsyncError {
  return new TillsyncError(
    'usage',
    `${path} is not encrypted, so nothing of it is taken. Nothing was changed.`,
    {
      hint: 'Whoever may write there can have put it there. Take another backup, or move this file away.',
    },
  );
}

/** Opens a backup that another user will read. Throws `not-found`, `usage`. */
export function openBackup(path: string): number {
  try {
    return openSync(path, 'r');
  } catch (error) {
    throw judge(error, path, undefined);
  }
}

async function readFiles(
  entries: AsyncIterable<TarEntry>,
  path: string,
  { into, text: wanted, opening }: ReadBackupOptions,
) {
  const key = opening?.signingKey ?? null;
  let manifest: Manifest | undefined;
  let signed = '';
  let isFirst = true;
  let text: string | undefined;
  const missing: Manifest['files'] = [];
  for await (const entry of entries) {
    if (manifest === undefined) {
      ({ manifest, text: signed } = await readManifest(entry));
      missing.push(...manifest.files);
      continue;
    }
    if (isFirst) {
      isFirst = false;
      const signature = await readSignature(entry);
      if (key) refuseForged({ kind: 'backup', text: signed, name: manifest.name, signature }, key, path);
      if (signature !== undefined) continue;
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
  if (manifest === undefined || missing.length > 0 || isFirst) throw new TarFault('files are missing in it');
  return { manifest, text };
}

/** Returns the signature if the file is one; undefined for another file, which stays unread. */
export async function readSignature(entry: TarEntry): Promise<string | undefined> {
  if (entry.name !== SIGNATURE_FILE || entry.bytes > SIGNATURE_BYTES_MAX) return undefined;
  return (await take(entry, undefined, true)).kept;
}

async function readManifest(entry: TarEntry): Promise<{ manifest: Manifest; text: string }> {
  if (entry.name !== MANIFEST || entry.bytes > MANIFEST_BYTES_MAX) throw new TarFault('it has no manifest');
  const { kept = '' } = await take(entry, undefined, true);
  let document: unknown;
  try {
    document = JSON.parse(kept);
  } catch {
    throw new TarFault('its manifest cannot be read');
  }
  const version = z.looseObject({ formatVersion: z.number() }).safeParse(document);
  if (version.success && version.data.formatVersion > FORMAT_VERSION) {
    const message = 'The backup was made by a newer tillsync. Nothing was changed.';
    throw new TillsyncError('storage-newer', message, {
      hint: 'Install that version of tillsync, or a newer one, and restore with it.',
    });
  }
  const parsed = manifestSchema.safeParse(document);
  if (!parsed.success) throw new TarFault('its manifest is not one of a backup');
  return { manifest: parsed.data, text: kept };
}

async function take(entry: TarEntry, into: string | undefined, keep: boolean) {
  const hash = createHash('sha256');
  const kept: Uint8Array[] = [];
  const file = into === undefined ? undefined : await open(join(into, entry.name), 'wx', 0o600);
  try {
    for await (const chunk of entry.content) {
      hash.update(chunk);
      if (keep) kept.push(chunk);
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

/** Returns the names of the secrets handed in on this machine; empty if one of them has a fault. */
export function handedIn(config: Config, configFile: string, env: Environment): string[] {
  const read = asRoot(() => readSecrets(env, serviceOf(resolve(configFile)), hookNames(config)));
  return 'secrets' in read ? [...secretsByName(read.secrets).keys()] : [];
}

export interface BackupOptions {
  config: Config;
  env: Environment;
  /** Path of the configuration file, which is left out of the backup if it does not exist. */
  configFile: string;
  path: string;
  force: boolean;
  withTokens: boolean;
  /** Who can read the backup; if left out, everyone who has the file. */
  readableBy?: ReadableBy | undefined;
  clock: Clock;
  /** Person or program that makes the backup. */
  who: string;
  signal?: AbortSignal | undefined;
}

export interface BackupReport {
  bytes: number;
  manifest: Manifest;
  /** Whether a running daemon would use up the backup's tokens; null if the backup has no tokens. */
  tokensInUse: boolean | null;
  /** Why the backup does not contain the inbox; null if it does. */
  inboxFault: TillsyncError | null;
  /** Whether the backup is signed; null if it does not have to be, because no recovery phrase opens it. */
  isSigned: boolean | null;
}

/** Returns the key that signs backups for these readers; undefined if none does or this machine has not got it. */
export async function signerFor(
  readableBy: ReadableBy | undefined,
  state: string,
  clock: Clock,
): Promise<SigningKey | undefined> {
  if (!readableBy || !('recipient' in readableBy)) return undefined;
  const { recipient, signingKey } = readableBy;
  if (signingKey || !isReadable(state)) return signingKey;
  return await openWhenFree(clock, () => lookInto(state, (db) => signingKeyFor(db, recipient)));
}

/**
 * Writes mirror, inbox rows and configuration, each as of one moment, into one file, also while a daemon runs, and
 * reads it back before it gets its name. Throws `not-found` before the first start, `usage` for an existing file,
 * `storage-…`, `aborted`.
 */
export async function writeBackup(options: BackupOptions): Promise<BackupReport> {
  const { clock, path, force, who, signal } = options;
  const { storage } = options.config;
  const paths = storagePaths(storage.directory);
  requireRights(storage.directory, 'read');
  if (!isReadable(paths.mirror)) throw noMirror(storage.directory);
  const hub = isHub(options.config) ? await hubOf(paths.state, clock) : null;
  const secrets = options.withTokens ? await tokensOf(paths.state, options) : null;
  if (secrets) await noteWithTokens(paths.mirror, { who, subject: basename(path), clock });
  const inbox = await copyInbox({ path: paths.inbox, clock, signal });
  const config = configFile(options.configFile);
  const signer = await signerFor(options.readableBy, paths.state, clock);
  const small = [...config, ...(secrets ? [secrets.file] : []), ...(hub ? [hub.file] : []), ...inbox.files];
  let manifest: Manifest | undefined;
  let scratch: string | undefined;
  async function* files(beside: string): AsyncGenerator<TarFile> {
    const createdAt = isoUtc(clock.nowMs());
    if (isActing()) {
      const bytes = (statSync(paths.mirror, { throwIfNoEntry: false })?.size ?? 0) + walBytes(paths.mirror);
      scratch = makeScratch(storage.directory, '.backup-', bytes, NO_ROOM);
    }
    const copy = join(scratch ?? beside, MIRROR_FILE);
    copyDatabase(paths.mirror, copy);
    const mirror = () => ({
      name: MIRROR_FILE,
      bytes: statSync(copy).size,
      content: createReadStream(copy),
    });
    manifest = {
      format: 'tillsync-backup',
      formatVersion: FORMAT_VERSION,
      name: basename(path),
      createdAt,
      tillsync: programVersion(),
      platform: companyHost(options.config),
      files: await Promise.all([...small, mirror()].map(listed)),
      mirror: checkMirrorCopy(copy),
      inbox: inbox.counts,
      hasConfig: config.length > 0,
      hasTokens: secrets !== null,
      ...(hub && { branches: hub.branches }),
      handedIn: handedIn(options.config, options.configFile, options.env),
    };
    const text = `${JSON.stringify(manifest, null, 2)}\n`;
    yield textFile(MANIFEST, text);
    if (signer) yield signatureOf('backup', text, signer);
    yield* small;
    yield mirror();
  }
  const made = options.readableBy
    ? await (await import('./encryption.ts')).encryption(options.readableBy, signer)
    : undefined;
  const verify = (file: number) => readBackup(path, { file, opening: made?.opening, signal });
  try {
    const file = { path, force, modifiedMs: clock.nowMs(), signal, encrypt: made?.encrypt, verify };
    const bytes = await makeArchive(file, files);
    if (!manifest) throw new TillsyncError('internal', 'A backup was written without its list.');
    const isSigned = options.readableBy && 'recipient' in options.readableBy ? signer !== undefined : null;
    return { bytes, manifest, tokensInUse: secrets?.inUse ?? null, inboxFault: inbox.fault, isSigned };
  } finally {
    if (scratch !== undefined) rmSync(scratch, { recursive: true, force: true });
  }
}

function configFile(path: string): TarFile[] {
  // Root may be the only user who can read the configuration.
  return asRoot(() => (existsSync(path) ? [textFile(CONFIG_FILE, readFileSync(path, 'utf8'))] : []));
}

async function tokensOf(
  path: string,
  { config, clock }: Pick<BackupOptions, 'config' | 'clock'>,
): Promise<{ file: TarFile; inUse: boolean }> {
  if (!isReadable(path)) {
    throw new TillsyncError('not-found', 'No tokens were ever stored here. Nothing was written.', {
      hint: 'Make the backup without --with-tokens.',
    });
  }
  const state = await openWhenFree(clock, () => openState({ path, clock }));
  try {
    const hubKeys = isHub(config) ? (state.hub.keys() ?? null) : null;
    const stored = { tokens: state.tokens.read(), webhook: state.webhook.read(), hubKeys };
    const text = JSON.stringify(tokensSchema.parse(stored), null, 2);
    return { file: textFile(TOKENS_FILE, `${text}\n`), inUse: state.leases.isHeld(RUNNING) };
  } finally {
    state.close();
  }
}

/** Returns the hub's branches with their public keys as a file, so that a hub on another machine recognises them. */
async function hubOf(path: string, clock: Clock): Promise<{ file: TarFile; branches: number } | null> {
  if (!isReadable(path)) return null;
  const state = await openWhenFree(clock, () => openState({ path, clock, role: 'hub' }));
  try {
    const copy = state.hub.copy();
    return { file: textFile(HUB_FILE, `${JSON.stringify(copy, null, 2)}\n`), branches: copy.branches.length };
  } finally {
    state.close();
  }
}

/** Notes a backup with tokens in the audit before the file is written, so that no such file exists without a note. */
async function noteWithTokens(
  path: string,
  { who, subject, clock }: { who: string; subject: string; clock: Clock },
): Promise<void> {
  const mirror = await openWhenFree(clock, () => openMirror({ path, clock }));
  try {
    const auditEvent = { who, action: 'backup', subject, detail: 'with tokens' } as const;
    await mirror.write((db) => new Audit({ db, clock }).note(auditEvent));
  } finally {
    await mirror.close();
  }
}

async function listed({ name, bytes, content }: TarFile): Promise<Manifest['files'][number]> {
  const hash = createHash('sha256');
  for await (const chunk of content) hash.update(chunk);
  return { name, bytes, sha256: hash.digest('hex') };
}
