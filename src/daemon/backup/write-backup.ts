import { createHash } from 'node:crypto';
import { createReadStream, existsSync, readFileSync, statSync } from 'node:fs';
import { join } from 'node:path';
import type { Config } from '../../config/config-type.ts';
import { TillsyncError } from '../../domain/errors.ts';
import { type Clock, isoUtc } from '../../domain/time/clock.ts';
import { copyDatabase } from '../../store/backup/copy-database.ts';
import { checkMirrorCopy } from '../../store/backup/mirror-facts.ts';
import { openState } from '../../store/state/open-state.ts';
import { makeArchive } from '../archive/make-file.ts';
import { type TarFile, textFile } from '../archive/tar-writer.ts';
import { noMirror } from '../reading/readers.ts';
import { RUNNING } from '../service/running-mark.ts';
import { openWhenFree } from '../storage/open-when-free.ts';
import { isReadable, requireRights } from '../storage/rights.ts';
import { storagePaths } from '../storage/storage-directory.ts';
import { asRoot } from '../storage/storage-user.ts';
import { programVersion } from '../version.ts';
import { copyInboxRows } from './inbox-rows-copy.ts';
import {
  CONFIG_FILE,
  FORMAT_VERSION,
  MANIFEST,
  type Manifest,
  MIRROR_FILE,
  TOKENS_FILE,
} from './manifest.ts';
import { readBackup } from './read-backup.ts';
import { type Scratch, scratchFor } from './scratch.ts';

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
