/** Tests src/support/archive.ts. */

import { execFileSync } from 'node:child_process';
import { existsSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { makeArchive, readTar, type TarFile, textFile, writeTar } from '../../src/support/archive.ts';
import { runsOf } from '../support/seed.ts';

const OPTIONS = { modifiedMs: Date.UTC(2026, 0, 2), mode: 0o600 };
const directory = () => mkdtempSync(path.join(tmpdir(), 'tillsync-archive-'));

async function bytesOf(files: readonly TarFile[]): Promise<Buffer> {
  const chunks: Uint8Array[] = [];
  for await (const chunk of writeTar(files, OPTIONS)) chunks.push(chunk);
  return Buffer.concat(chunks);
}

/** Yields chunks of `size` bytes, like a disk or a network. */
async function* pieces(bytes: Buffer, size: number) {
  for (let at = 0; at < bytes.length; at += size) yield bytes.subarray(at, at + size);
}

async function read(bytes: Buffer, size: number): Promise<Record<string, string>> {
  const found: Record<string, string> = {};
  for await (const { name, content } of readTar(pieces(bytes, size))) {
    const chunks: Uint8Array[] = [];
    for await (const chunk of content) chunks.push(chunk);
    found[name] = Buffer.concat(chunks).toString('utf8');
  }
  return found;
}

describe('an archive', () => {
  it('is read as it was written, in pieces of any size, by us and by tar', async () => {
    const content = fc.string({ unit: 'grapheme', maxLength: 2_000 });
    await fc.assert(
      fc.asyncProperty(
        fc.array(content, { maxLength: 5 }),
        fc.integer({ min: 1, max: 1_500 }),
        async (texts, size) => {
          const bytes = await bytesOf(texts.map((text, i) => textFile(`file-${i}.txt`, text)));
          expect(Object.values(await read(bytes, size))).toEqual(texts);
        },
      ),
      { seed: 5, numRuns: runsOf(60) },
    );
    const place = directory();
    writeFileSync(
      path.join(place, 'a.tar'),
      await bytesOf([textFile('one.txt', 'ñ'.repeat(600)), textFile('two', '')]),
    );
    expect(
      execFileSync('tar', ['-tvf', path.join(place, 'a.tar')], { encoding: 'utf8', env: { TZ: 'UTC' } }),
    ).toMatch(/^-rw------- 0\/0 +1200 2026-01-02 00:00 one\.txt\n-rw------- 0\/0 +0 2026-01-02 00:00 two\n$/);
    expect(execFileSync('tar', ['-xOf', path.join(place, 'a.tar'), 'one.txt'], { encoding: 'utf8' })).toBe(
      'ñ'.repeat(600),
    );
  });

  it('that is cut anywhere is refused, never taken for a shorter one', async () => {
    const bytes = await bytesOf([textFile('one', 'x'.repeat(700)), textFile('two', 'y')]);
    for (let end = 0; end < bytes.length; end += 101) {
      await expect(read(bytes.subarray(0, end), 512), `${end} bytes`).rejects.toThrow(/ends|no archive/);
    }
    const altered = Buffer.from(bytes);
    altered[3] = 0x41;
    await expect(read(altered, 512)).rejects.toThrow('altered');
  });

  it('gets its name when it is whole, and never the place of another unasked', async () => {
    const place = directory();
    const file = path.join(place, 'a.tar.gz');
    const options = { path: file, force: false, modifiedMs: 0 };
    const failing = async function* () {
      yield textFile('one', '1');
      throw new RangeError('no more');
    };
    await expect(makeArchive(options, failing)).rejects.toThrow('no more');
    const refuse = async () => {
      throw new RangeError('not good');
    };
    const one = () => [textFile('one', '1')];
    await expect(makeArchive({ ...options, verify: refuse }, one)).rejects.toThrow('not good');
    expect(readdirSync(place)).toEqual([]);

    // Work directories of a killed process, and of a process that still runs (process 1).
    const [dead, alive] = [`${file}.part-4194399`, `${file}.part-1`];
    for (const left of [dead, alive]) mkdirSync(left);
    await makeArchive(options, one);
    expect([existsSync(dead), existsSync(alive)]).toEqual([false, true]);
    const nowhere = { ...options, path: path.join(place, 'nowhere', 'a.tar.gz') };
    const tooLong = { ...options, path: path.join(place, 'x'.repeat(300)) };
    await expect(makeArchive(tooLong, one)).rejects.toMatchObject({ code: 'usage' });
    await expect(makeArchive(nowhere, one)).rejects.toMatchObject({ code: 'usage' });
    const first = readFileSync(file);
    await expect(makeArchive(options, () => [textFile('two', '2')])).rejects.toMatchObject({ code: 'usage' });
    expect(readFileSync(file)).toEqual(first);
    await makeArchive({ ...options, force: true }, () => [textFile('two', '2')]);
    expect(execFileSync('tar', ['-tzf', file], { encoding: 'utf8' })).toBe('two\n');
    await expect(makeArchive({ ...options, path: place, force: true }, one)).rejects.toMatchObject({
      code: 'usage',
    });
  });
});
