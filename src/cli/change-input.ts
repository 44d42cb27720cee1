import { createReadStream, openSync } from 'node:fs';
import path from 'node:path';
import type { ProductChange, StockChange } from '../domain/change/change.ts';
import type { DecimalSign } from '../domain/change-file/csv-cell.ts';
import {
  type FileChange,
  type FileFormat,
  readProductFile,
  readStockFile,
} from '../domain/change-file/read-change-file.ts';
import { TillsyncError } from '../domain/errors.ts';
import type { Cli } from './cli.ts';
import { printable } from './texts/printable.ts';

export const FORMATS: readonly FileFormat[] = ['csv', 'json', 'ndjson'];

/** One item of a file: a change, or why it is none. */
export type InputItem = FileChange<StockChange | ProductChange>;

export interface ReadInputOptions {
  kind: 'stock' | 'product';
  input: OpenInput;
  /** Found by the file's extension, else by its first character. */
  format?: FileFormat | undefined;
  /** Which sign of a CSV's numbers is the decimal one. */
  decimal?: DecimalSign | undefined;
  onProgress: (items: number) => void;
}

const BY_EXTENSION: Readonly<Record<string, FileFormat>> = {
  '.csv': 'csv',
  '.tsv': 'csv',
  '.json': 'json',
  '.ndjson': 'ndjson',
  '.jsonl': 'ndjson',
};

/** A file that is open, or standard input. */
export interface OpenInput {
  name: string;
  /** undefined: standard input. */
  descriptor: number | undefined;
}

/** Opens what will be read, while this is still the user who named it. Throws `usage` when it cannot be opened. */
export function openInput(cli: Pick<Cli, 'stdin'>, name: string): OpenInput {
  if (name === '-' && cli.stdin.isTTY) {
    throw new TillsyncError('usage', 'Standard input is a terminal, so there is nothing to read from it.', {
      hint: 'Redirect a file into it, or name the file.',
    });
  }
  if (name === '-') return { name, descriptor: undefined };
  try {
    return { name, descriptor: openSync(name, 'r') };
  } catch (error) {
    throw unreadable(name, error);
  }
}

/**
 * Reads a whole file of changes, each item checked by itself. Throws `usage` when nothing of it can be read,
 * `aborted` at the signal.
 */
export async function readInput(cli: Cli, options: ReadInputOptions): Promise<InputItem[]> {
  const { kind, input, onProgress } = options;
  const { name: file, descriptor: fd } = input;
  const format = options.format ?? BY_EXTENSION[path.extname(file).toLowerCase()];
  const how = {
    ...(format !== undefined && { format }),
    decimal: options.decimal,
    tell: (note: string) => cli.stderr.write(`${printable(note)}\n`),
  };
  const source = fd === undefined ? cli.stdin : createReadStream(file, { fd });
  const pieces = bytesOf(source, file, cli.signal);
  const items: InputItem[] = [];
  const readings: AsyncIterable<InputItem[]> =
    kind === 'stock' ? readStockFile(pieces, how) : readProductFile(pieces, how);
  for await (const some of readings) {
    for (const item of some) items.push(item);
    onProgress(items.length);
  }
  return items;
}

async function* bytesOf(
  source: AsyncIterable<string | Uint8Array>,
  file: string,
  signal: AbortSignal,
): AsyncGenerator<Uint8Array> {
  const stopped = new Promise<never>((_, reject) => {
    const stop = () => reject(new TillsyncError('aborted', 'Stopped while reading. Nothing was taken.'));
    if (signal.aborted) stop();
    signal.addEventListener('abort', stop, { once: true });
  });
  stopped.catch(() => {});
  const pieces = source[Symbol.asyncIterator]();
  for (;;) {
    const next = await Promise.race([pieces.next(), stopped]).catch((error: unknown) => {
      throw unreadable(file, error);
    });
    if (next.done) return;
    yield typeof next.value === 'string' ? Buffer.from(next.value) : next.value;
  }
}

function unreadable(file: string, error: unknown): unknown {
  if (error instanceof TillsyncError) return error;
  const code = (error as NodeJS.ErrnoException).code ?? 'unknown reason';
  return new TillsyncError('usage', `${file} cannot be read (${code}). Nothing was taken.`, { cause: error });
}
