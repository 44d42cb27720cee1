import { basename } from 'node:path';
import * as z from 'zod';
import { isReadable, programVersion, requireRights } from '../app/installation.ts';
import { noMirror } from '../app/read-only-services.ts';
import { storagePaths } from '../app/storage.ts';
import type { Config } from '../config/config-type.ts';
import { companyHost } from '../config/roles.ts';
import { type Clock, isoUtc } from '../core/time.ts';
import { lookInto } from '../db/sqlite.ts';
import { makeArchive, TarFault, textFile } from './archive.ts';
import { type ReadArchiveOptions, readArchive, readSignature, signerFor } from './backup.ts';
import { differentialsFor } from './backup-files.ts';
import { refuseForged, signatureOf } from './backup-origin.ts';
import type { Opening, ReadableBy } from './encryption.ts';
import { feedMarkSchema, knownSince, knownSinceSchema } from './restored-mirror.ts';

/**
 * The only file of a differential backup: data that a mirror got since the last whole backup and that the platform does
 * not have. It contains no orders and no catalogue, which the platform has, and no customer data.
 */
const DOCUMENT = 'differential.json';
/** Version of the format. Increase it when an older tillsync can no longer restore a new backup. */
const FORMAT_VERSION = 1;
const BYTES_MAX = 256 * 1024 * 1024;

const differentialSchema = z.object({
  format: z.literal('tillsync-differential'),
  formatVersion: z.literal(FORMAT_VERSION),
  /** Name of the file when it was made, with the time of the whole backup that it belongs to. */
  name: z.string(),
  /** Time of the mirror's state, ISO 8601 in UTC. */
  createdAt: z.iso.datetime(),
  /** Start of the period, ISO 8601 in UTC. Anything earlier is not included. */
  since: z.iso.datetime(),
  tillsync: z.string(),
  /** Host of the platform (at a branch, of the hub). */
  platform: z.string(),
  /** The newest event from before `since`, which the whole backup has too. */
  mark: feedMarkSchema.nullable(),
  known: knownSinceSchema,
});

export type Differential = z.infer<typeof differentialSchema>;

export interface DifferentialOptions {
  config: Config;
  path: string;
  /** Start of the period that the backup covers, ISO 8601 UTC. */
  since: string;
  readableBy?: ReadableBy | undefined;
  clock: Clock;
  signal?: AbortSignal | undefined;
}

export interface DifferentialReport {
  bytes: number;
  createdAt: string;
  acks: number;
  unsent: number;
}

/**
 * Writes a differential backup in the place of an earlier one, also while a daemon runs, and reads it back before it
 * gets its name. Throws `not-found` before the first start, `storage-…`, `aborted`.
 */
export async function writeDifferential(options: DifferentialOptions): Promise<DifferentialReport> {
  const { config, path, since, readableBy, clock, signal } = options;
  const { mirror, state } = storagePaths(config.storage.directory);
  requireRights(config.storage.directory, 'read');
  if (!isReadable(mirror)) throw noMirror(config.storage.directory);
  const createdAt = isoUtc(clock.nowMs());
  const { mark, known } = lookInto(mirror, (db) => knownSince(db, { since, clock }));
  const document: z.infer<typeof differentialSchema> = {
    format: 'tillsync-differential',
    formatVersion: FORMAT_VERSION,
    name: basename(path),
    createdAt,
    since,
    tillsync: programVersion(),
    platform: companyHost(config),
    mark,
    known,
  };
  const signer = await signerFor(readableBy, state, clock);
  const made = readableBy
    ? await (await import('./encryption.ts')).encryption(readableBy, signer)
    : undefined;
  const verify = (file: number) => readDifferential(path, { file, opening: made?.opening, signal });
  const text = JSON.stringify(document);
  const bytes = await makeArchive(
    { path, force: true, modifiedMs: clock.nowMs(), signal, encrypt: made?.encrypt, verify },
    () => [textFile(DOCUMENT, text), ...(signer ? [signatureOf('differential', text, signer)] : [])],
  );
  return { bytes, createdAt, acks: known.acks.length, unsent: known.unsent.length };
}

/**
 * Reads a differential backup. Throws `not-found`; `storage-corrupt` if the file is no differential backup, is cut or
 * was altered; `usage` if nothing here decrypts it, or if it is plain or not signed as it has to be; `aborted`.
 */
export async function readDifferential(path: string, options: ReadArchiveOptions): Promise<Differential> {
  return await readArchive(path, options, async (entries) => {
    let text: string | undefined;
    let signature: string | undefined;
    for await (const entry of entries) {
      signature ??= await readSignature(entry);
      if (entry.name !== DOCUMENT || entry.bytes > BYTES_MAX || text !== undefined) continue;
      const chunks: Uint8Array[] = [];
      for await (const chunk of entry.content) chunks.push(chunk);
      text = Buffer.concat(chunks).toString('utf8');
    }
    const parsed = differentialSchema.safeParse(asDocument(text ?? ''));
    const key = options.opening?.signingKey ?? null;
    if (key) {
      const name = parsed.data?.name;
      refuseForged({ kind: 'differential', text: text ?? '', name, signature }, key, path);
    }
    if (!parsed.success) throw new TarFault('it is no differential backup of this version');
    return { ...parsed.data, name: basename(path) };
  });
}

function asDocument(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

/**
 * Reads the differential backups that belong to a backup, oldest first. `openBy` returns how an encrypted file is
 * opened. Throws what `readDifferential` throws.
 */
export async function readDifferentialsFor(
  backup: string,
  openBy: ((path: string) => Opening) | undefined,
  options: Pick<ReadArchiveOptions, 'isSecret' | 'signal'>,
): Promise<Differential[]> {
  const found: Differential[] = [];
  for (const path of differentialsFor(backup)) {
    found.push(await readDifferential(path, { ...options, opening: openBy?.(path) }));
  }
  return found;
}
