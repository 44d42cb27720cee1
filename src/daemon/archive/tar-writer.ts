/** A file of an archive. `content` must give exactly `bytes` bytes. */
export interface TarFile {
  /** At most 100 bytes; no directories. */
  name: string;
  bytes: number;
  content: AsyncIterable<Uint8Array> | Iterable<Uint8Array>;
}

export const BLOCK_BYTES = 512;
const NAME_BYTES_MAX = 100;
/** What eleven octal digits hold; larger sizes are written in binary, as every tar of today reads them. */
const OCTAL_SIZE_MAX = 0o77777777777;

/** A POSIX ustar archive, piece by piece. Throws `RangeError` when a content is not as long as was said. */
export async function* writeTar(
  files: Iterable<TarFile> | AsyncIterable<TarFile>,
  options: { modifiedMs: number; mode: number },
): AsyncGenerator<Uint8Array> {
  for await (const file of files) {
    yield headerOf(file, options);
    let written = 0;
    for await (const chunk of file.content) {
      written += chunk.length;
      yield chunk;
    }
    if (written !== file.bytes) {
      throw new RangeError(`${file.name} has ${written} bytes instead of ${file.bytes}.`);
    }
    yield Buffer.alloc((BLOCK_BYTES - (written % BLOCK_BYTES)) % BLOCK_BYTES);
  }
  yield Buffer.alloc(2 * BLOCK_BYTES);
}

/** A text as a file of an archive. */
export function textFile(name: string, text: string): TarFile {
  const content = Buffer.from(text);
  return { name, bytes: content.length, content: [content] };
}

function headerOf({ name, bytes }: TarFile, { modifiedMs, mode }: { modifiedMs: number; mode: number }) {
  if (Buffer.byteLength(name) > NAME_BYTES_MAX) throw new RangeError(`${name} is too long a name.`);
  const header = Buffer.alloc(BLOCK_BYTES);
  header.write(name, 0);
  header.write(octal(mode, 8), 100);
  header.write(octal(0, 8), 108);
  header.write(octal(0, 8), 116);
  if (bytes <= OCTAL_SIZE_MAX) header.write(octal(bytes, 12), 124);
  else {
    header[124] = 0x80;
    header.writeBigUInt64BE(BigInt(bytes), 128);
  }
  header.write(octal(Math.floor(modifiedMs / 1000), 12), 136);
  header.write('        ', 148);
  header.write('0', 156);
  header.write('ustar\u000000', 257);
  header.write(`${octal(checksumOf(header), 7)}\0 `.slice(0, 8), 148);
  return header;
}

/** Sum of the header's bytes, with spaces where the sum itself stands. */
export function checksumOf(header: Uint8Array): number {
  let sum = 0;
  for (let i = 0; i < BLOCK_BYTES; i++) sum += i >= 148 && i < 156 ? 0x20 : (header[i] ?? 0);
  return sum;
}

/** Digits that fill a field of `length` bytes up to its closing NUL. */
function octal(value: number, length: number): string {
  return value.toString(8).padStart(length - 1, '0');
}
