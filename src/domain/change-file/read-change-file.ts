import type { ChangeFault, ChangeKind, ProductChange, StockChange } from '../change/change.ts';
import { readProductChange, readStockChange } from '../change/read-change.ts';
import { TillsyncError } from '../errors.ts';
import { Csv } from './csv.ts';
import type { DecimalSign } from './csv-cell.ts';
import { FileText } from './file-text.ts';
import { JsonArray } from './json-array.ts';
import { JsonLines } from './json-lines.ts';
import type { ItemParser, ItemPlace, RawItem } from './raw-item.ts';

export type FileFormat = 'csv' | 'json' | 'ndjson';

export type FileChange<T> = ItemPlace & ({ change: T } | { fault: ChangeFault });

export interface ReadChangeFileOptions {
  /** Found from the first character when missing: `[` is a JSON array, `{` NDJSON, anything else CSV. */
  format?: FileFormat;
  /** Of CSV: which sign of its numbers is the decimal one. Without it a number that may mean two is refused. */
  decimal?: DecimalSign | undefined;
  /**
   * Told what a person should know of how the file is read: columns that are passed over, another encoding. Without it
   * both are refused.
   */
  tell?: (note: string) => void;
}

type Chunks = AsyncIterable<Uint8Array> | Iterable<Uint8Array>;

/** Stock changes from a file or a stream, as `readProductFile`. */
export function readStockFile(
  chunks: Chunks,
  options: ReadChangeFileOptions = {},
): AsyncGenerator<FileChange<StockChange>[]> {
  return readFile(chunks, 'stock', readStockChange, options);
}

/**
 * Product changes from a file or a stream in UTF-8: CSV with a header, a JSON array, or NDJSON. Gives one
 * array for each piece that is read, each item checked by itself and named by its line or index. Throws
 * `usage` when nothing of the file can be read: another encoding, a wrong header or delimiter.
 */
export function readProductFile(
  chunks: Chunks,
  options: ReadChangeFileOptions = {},
): AsyncGenerator<FileChange<ProductChange>[]> {
  return readFile(chunks, 'product', readProductChange, options);
}

async function* readFile<T>(
  chunks: Chunks,
  kind: ChangeKind,
  read: (value: unknown) => { change: T } | { fault: ChangeFault },
  options: ReadChangeFileOptions,
): AsyncGenerator<FileChange<T>[]> {
  const check = (item: RawItem): FileChange<T> => {
    const { index, line } = item;
    return 'fault' in item ? item : { index, line, ...read(item.value) };
  };
  const { format, tell } = options;
  const decoder = new FileText(tell !== undefined);
  const tellEncoding = () => {
    if (!decoder.is1252 || toldEncoding) return;
    toldEncoding = true;
    tell?.('The file is not UTF-8, so it is read as Windows-1252.');
  };
  let toldEncoding = false;
  let parser: ItemParser | undefined;
  let held = '';
  for await (const chunk of chunks) {
    const text = decoder.push(chunk);
    if (!parser && (isUtf16(chunk) || text.includes('\0'))) throw wrongEncoding();
    tellEncoding();
    if (parser) {
      yield parser.push(text).map(check);
      continue;
    }
    held += text;
    if (format === undefined && held.trim() === '') continue;
    parser = parserOf(format ?? formatOf(held), kind, options);
    yield parser.push(held).map(check);
  }
  const rest = decoder.end();
  parser ??= parserOf(format ?? formatOf(held + rest), kind, options);
  const items = [...parser.push(rest), ...parser.end()];
  tellEncoding();
  if (items.length > 0) yield items.map(check);
}

function formatOf(text: string): FileFormat {
  const first = text.trimStart()[0];
  if (first === '[') return 'json';
  return first === '{' ? 'ndjson' : 'csv';
}

function parserOf(
  format: FileFormat,
  kind: ChangeKind,
  { decimal, tell }: ReadChangeFileOptions,
): ItemParser {
  if (format === 'csv') return new Csv({ kind, decimal, tell });
  return format === 'json' ? new JsonArray() : new JsonLines();
}

function isUtf16(chunk: Uint8Array): boolean {
  const [a, b] = chunk;
  return (a === 0xff && b === 0xfe) || (a === 0xfe && b === 0xff);
}

function wrongEncoding(): TillsyncError {
  return new TillsyncError('usage', 'The file is not UTF-8 text. Nothing was taken.', {
    hint: 'Save it as UTF-8 (in a spreadsheet: "CSV UTF-8"), then hand it over again.',
  });
}
