import { Readable } from 'node:stream';
import { createGzip } from 'node:zlib';
import { makeArchive } from '../archive/make-file.ts';
import { textFile, writeTar } from '../archive/tar-writer.ts';
import type { Bundle } from './collect-bundle.ts';

const MODE = 0o600;
/** It unpacks into a directory of its own. */
const DIRECTORY = 'tillsync-bundle';

/** Writes a bundle under its name when it is whole. Returns its size in bytes. Throws as makeArchive does. */
export function writeBundle(
  { files }: Pick<Bundle, 'files'>,
  options: { path: string; force: boolean; modifiedMs: number; signal: AbortSignal },
): Promise<number> {
  return makeArchive(options, () => filesIn(files));
}

/** The same archive in memory. */
export async function packBundle({ files }: Pick<Bundle, 'files'>, modifiedMs: number): Promise<Buffer> {
  const packed = Readable.from(writeTar(filesIn(files), { modifiedMs, mode: MODE })).pipe(
    createGzip({ level: 6 }),
  );
  const chunks: Buffer[] = [];
  for await (const chunk of packed) chunks.push(chunk as Buffer);
  return Buffer.concat(chunks);
}

function filesIn(files: Bundle['files']) {
  return files.map(({ name, text }) => textFile(`${DIRECTORY}/${name}`, text));
}
