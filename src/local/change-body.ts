import { Readable } from 'node:stream';
import type { ChangeKind, ProductChange, StockChange } from '../domain/change/change.ts';
import {
  type FileChange,
  type FileFormat,
  readProductFile,
  readStockFile,
} from '../domain/change-file/read-change-file.ts';
import { TillsyncError } from '../domain/errors.ts';
import { ITEMS_MAX } from './schemas/changes.ts';

/** The formats a body may come in, by content type. */
export const BODY_FORMATS: Readonly<Record<string, FileFormat>> = {
  'application/json': 'json',
  'application/x-ndjson': 'ndjson',
  'text/csv': 'csv',
};

/** One item of the body: a change, or why it is none. `line` is null in a JSON array. */
export type BodyItem = FileChange<StockChange | ProductChange>;

export interface ReadBodyOptions {
  kind: ChangeKind;
  format: FileFormat;
  limitBytes: number;
}

/** Bytes looked at in one turn of the event loop: about three milliseconds of work. */
const PIECE_BYTES = 32 * 1024;

/**
 * Reads a body as it arrives, item by item, and never holds it whole. Throws `usage` when it is no list of 1 to
 * 100,000 items, too large, or cut off; nothing of it is taken then.
 */
export async function readChangeBody(body: unknown, options: ReadBodyOptions): Promise<BodyItem[]> {
  const { kind, format } = options;
  if (!(body instanceof Readable)) throw noItem();
  const pieces = counted(body, options);
  const items: BodyItem[] = [];
  const readings: AsyncIterable<BodyItem[]> =
    kind === 'stock' ? readStockFile(pieces, { format }) : readProductFile(pieces, { format });
  for await (const some of readings) {
    for (const item of some) items.push(item);
    if (items.length > ITEMS_MAX) throw tooMuch(`More than ${ITEMS_MAX} items came`);
  }
  if (items.length === 0) throw noItem();
  return items;
}

const EXAMPLE = 'Send an array, such as [{"externalId": "A1", "qty": 3}].';

async function* counted(body: Readable, { format, limitBytes }: ReadBodyOptions): AsyncGenerator<Uint8Array> {
  let bytes = 0;
  let isChecked = format !== 'json';
  // Left whole when this ends early, so that the refusal can still be answered.
  const chunks: AsyncIterable<Buffer> = body.iterator({ destroyOnReturn: false });
  for await (const chunk of chunks) {
    bytes += chunk.length;
    if (bytes > limitBytes) throw tooMuch(`More than ${limitBytes} bytes came`);
    if (!isChecked) {
      const first = chunk
        .toString('latin1')
        .replace(/^\u00ef\u00bb\u00bf/, '')
        .trimStart()[0];
      if (first !== undefined && first !== '[') {
        throw new TillsyncError('usage', 'The body is not a JSON array. Nothing was taken.', {
          hint: EXAMPLE,
        });
      }
      isChecked = first !== undefined;
    }
    for (let at = 0; at < chunk.length; at += PIECE_BYTES) yield chunk.subarray(at, at + PIECE_BYTES);
  }
  if (!isChecked) throw noItem();
}

function noItem(): TillsyncError {
  return new TillsyncError('usage', 'There is no item in the body.', { hint: EXAMPLE });
}

/** Answered by 413. */
function tooMuch(what: string): Error {
  const error = new Error(`${what}. Nothing was taken; send it in several parts.`);
  return Object.assign(error, { statusCode: 413 });
}
