import { BLOCK_BYTES, checksumOf } from './tar-writer.ts';

export interface TarEntry {
  name: string;
  bytes: number;
  /** To be read before the next entry is asked for; what is left over is skipped. */
  content: AsyncGenerator<Uint8Array>;
}

/** What is not an archive, or not a whole one. */
export class TarFault extends Error {
  override readonly name = 'TarFault';
}

/** The plain files of a ustar archive in their order, without ever holding one whole. Throws TarFault. */
export async function* readTar(source: AsyncIterable<Uint8Array>): AsyncGenerator<TarEntry> {
  const bytes = new ByteSource(source);
  for (;;) {
    const header = await bytes.exactly(BLOCK_BYTES);
    if (header.every((byte) => byte === 0)) {
      await bytes.exactly(BLOCK_BYTES);
      // To the very end, so that a checksum behind it is looked at.
      while ((await bytes.atMost(65_536)) !== undefined);
      return;
    }
    const { name, size } = fieldsOf(header);
    let left = size;
    const content = (async function* () {
      while (left > 0) {
        const chunk = await bytes.atMost(left);
        if (chunk === undefined) throw new TarFault(`it ends within ${name}`);
        left -= chunk.length;
        yield chunk;
      }
    })();
    yield { name, bytes: size, content };
    for await (const _ of content);
    while (left > 0) left -= (await bytes.exactly(Math.min(left, BLOCK_BYTES))).length;
    await bytes.exactly((BLOCK_BYTES - (size % BLOCK_BYTES)) % BLOCK_BYTES);
  }
}

function fieldsOf(header: Buffer): { name: string; size: number } {
  const text = (start: number, length: number) => {
    const field = header.toString('utf8', start, start + length);
    const end = field.indexOf('\0');
    return end === -1 ? field : field.slice(0, end);
  };
  if (text(257, 5) !== 'ustar' || Number.parseInt(text(148, 8), 8) !== checksumOf(header)) {
    throw new TarFault('it is no archive, or was altered');
  }
  const name = text(0, 100);
  const type = text(156, 1);
  if (type !== '0' && type !== '') throw new TarFault(`${name} in it is no plain file`);
  const size = header[124] === 0x80 ? Number(header.readBigUInt64BE(128)) : Number.parseInt(text(124, 12), 8);
  if (!Number.isSafeInteger(size) || size < 0) throw new TarFault(`${name} in it has no length`);
  return { name, size };
}

/** A stream by amounts. */
class ByteSource {
  readonly #chunks: AsyncIterator<Uint8Array>;
  #rest: Buffer = Buffer.alloc(0);

  constructor(source: AsyncIterable<Uint8Array>) {
    this.#chunks = source[Symbol.asyncIterator]();
  }

  /** Up to `max` bytes; undefined at the end. */
  async atMost(max: number): Promise<Buffer | undefined> {
    while (this.#rest.length === 0) {
      const { done, value } = await this.#chunks.next();
      if (done) return undefined;
      this.#rest = Buffer.from(value.buffer, value.byteOffset, value.byteLength);
    }
    const chunk = this.#rest.subarray(0, max);
    this.#rest = this.#rest.subarray(chunk.length);
    return chunk;
  }

  async exactly(length: number): Promise<Buffer> {
    const parts: Buffer[] = [];
    for (let missing = length; missing > 0; ) {
      const chunk = await this.atMost(missing);
      if (chunk === undefined) throw new TarFault('it ends too early');
      parts.push(chunk);
      missing -= chunk.length;
    }
    return parts.length === 1 ? (parts[0] as Buffer) : Buffer.concat(parts);
  }
}
