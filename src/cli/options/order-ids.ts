import { TillsyncError } from '../../domain/errors.ts';
import { ORDER_ID_LENGTH_MAX } from '../../domain/order/order.ts';

const INPUT_MAX_BYTES = 16 * 1024 * 1024;

/** Order ids from a stream: one a line, or one JSON array of texts. Throws `usage` naming the first bad one. */
export async function readOrderIds(stdin: AsyncIterable<string | Uint8Array>): Promise<string[]> {
  const parts: Buffer[] = [];
  let bytes = 0;
  for await (const part of stdin) {
    const buffer = Buffer.from(part);
    bytes += buffer.length;
    if (bytes > INPUT_MAX_BYTES) throw bad(`more than ${INPUT_MAX_BYTES} bytes came`);
    parts.push(buffer);
  }
  const text = Buffer.concat(parts)
    .toString('utf8')
    .replace(/^\ufeff/, '')
    .trim();
  if (text === '') throw bad('nothing came on standard input');
  if (text.startsWith('[')) return checkOrderIds(arrayOf(text), 'index');
  return checkOrderIds(
    text
      .split('\n')
      .map((line) => line.trim())
      .filter((line) => line !== ''),
    'id',
  );
}

/** Ids as they may stand in the mirror. */
export function checkOrderIds(ids: readonly unknown[], place: 'index' | 'id'): string[] {
  return ids.map((id, i) => {
    const text = typeof id === 'string' ? id.trim() : '';
    const isSound = text !== '' && text.length <= ORDER_ID_LENGTH_MAX && !/[\0\ufffd]/.test(text);
    if (isSound && text.isWellFormed()) return text;
    throw bad(
      `${place} ${place === 'index' ? i : i + 1} is no order id: ${JSON.stringify(id)?.slice(0, 60)}`,
    );
  });
}

function arrayOf(text: string): unknown[] {
  try {
    const value: unknown = JSON.parse(text);
    if (Array.isArray(value)) return value;
  } catch {
    // Named below: its own message would repeat the input.
  }
  throw bad('what came looks like a JSON array and is none');
}

function bad(found: string): TillsyncError {
  return new TillsyncError('usage', `No order was acknowledged: ${found}.`, {
    hint: 'Give ids as arguments, or one a line on standard input: {tillsync} feed ack < FILE',
  });
}
