import { createHash } from 'node:crypto';
import { createReadStream, openSync } from 'node:fs';
import { open } from 'node:fs/promises';
import { join } from 'node:path';
import { pipeline } from 'node:stream/promises';
import { createGunzip } from 'node:zlib';
import { TillsyncError } from '../../domain/errors.ts';
import { toStorageError } from '../../store/sqlite.ts';
import { readTar, type TarEntry, TarFault } from '../archive/tar-reader.ts';
import { FORMAT_VERSION, MANIFEST, type Manifest, type ManifestFile, manifestSchema } from './manifest.ts';

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
