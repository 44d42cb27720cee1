import { pipeline, type Readable } from 'node:stream';

/** Content codings that tillsync reads (RFC 9110, section 8.4.1), as the value of Accept-Encoding. */
export const ACCEPTED_CODINGS = 'gzip, deflate, br';

type Coding = 'gzip' | 'deflate' | 'br';
const CODINGS: Readonly<Record<string, Coding>> = {
  gzip: 'gzip',
  'x-gzip': 'gzip',
  deflate: 'deflate',
  br: 'br',
};

/**
 * Returns the coding that a Content-Encoding header names; null if the body is not encoded, and undefined for a coding
 * that tillsync does not read. A body that is encoded several times counts as such, because nobody sends one.
 */
export function codingOf(header: string | undefined): Coding | null | undefined {
  const named = (header ?? '')
    .toLowerCase()
    .split(',')
    .map((name) => name.trim())
    .filter((name) => name !== '' && name !== 'identity');
  const [first] = named;
  if (first === undefined) return null;
  return named.length === 1 && Object.hasOwn(CODINGS, first) ? CODINGS[first] : undefined;
}

/** Why a body could not be decoded. A fault of the connection is thrown as it is, never as this error. */
export class DecodeError extends Error {
  override readonly name = 'DecodeError';
  readonly reason: 'too-large' | 'damaged';

  constructor(reason: DecodeError['reason'], cause?: unknown) {
    super(reason, { cause });
    this.reason = reason;
  }
}

/**
 * Decodes a body piece by piece. Throws `DecodeError` with `damaged` if the body does not have the coding or ends
 * early, and with `too-large` if it is larger than `maxBytes` before the decoding. The reader bounds what comes out.
 */
export async function* decoded(body: Readable, coding: Coding, maxBytes: number): AsyncGenerator<Buffer> {
  const chunks = body[Symbol.asyncIterator]() as AsyncIterator<Buffer>;
  const first = await chunks.next();
  // Servers also name a coding for an empty body, such as that of a 204.
  if (first.done) return;
  let sourceFault: unknown;
  const encoded = async function* () {
    let bytes = 0;
    try {
      for (let next: IteratorResult<Buffer> = first; !next.done; next = await chunks.next()) {
        bytes += next.value.length;
        if (bytes > maxBytes) throw new DecodeError('too-large');
        yield next.value;
      }
    } catch (error) {
      sourceFault = error;
      throw error;
    } finally {
      // Closes the connection if the decoding ended before the body.
      await chunks.return?.();
    }
  };
  const decoder = await decoderOf(coding, first.value);
  pipeline(encoded, decoder, () => {});
  try {
    yield* decoder as AsyncIterable<Buffer>;
  } catch (error) {
    throw sourceFault ?? new DecodeError('damaged', error);
  }
}

async function decoderOf(coding: Coding, [first = 0, second = 0]: Buffer) {
  // Loaded on first use, because most bodies are not encoded.
  const zlib = await import('node:zlib');
  if (coding === 'gzip') return zlib.createGunzip();
  if (coding === 'br') return zlib.createBrotliDecompress();
  // `deflate` means the zlib format, but some servers send the bare format that the name suggests.
  const hasZlibHeader = (first & 0x0f) === 8 && (first * 256 + second) % 31 === 0;
  return hasZlibHeader ? zlib.createInflate() : zlib.createInflateRaw();
}
