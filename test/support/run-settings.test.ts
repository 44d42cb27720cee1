import { describe, expect, it } from 'vitest';
import { filesToRunAgain } from './failed-tests.ts';
import { isOfAnotherTier, mayBeSkipped } from './full-run-reporter.ts';
import { readSeed, readSlowness } from './run-settings.ts';

describe('TILLSYNC_SEED', () => {
  it('is 1 unless told, and a new one where it is "random"', () => {
    expect([readSeed(undefined), readSeed(''), readSeed('0'), readSeed('42')]).toEqual([1, 1, 0, 42]);
    expect(readSeed('random', () => 0.5)).toBe(1_073_741_823);
  });

  it.each(['-1', '1.5', 'one', '2147483648', '1e3', ' 1'])('%j is refused', (text) => {
    expect(() => readSeed(text)).toThrow(`TILLSYNC_SEED: found ${text}; allowed: a whole number`);
  });
});

describe('TILLSYNC_SLOW', () => {
  it('is measured unless told', () => {
    expect(readSlowness(undefined, () => 3.2)).toBe(3.2);
    expect(readSlowness('4', () => 3.2)).toBe(4);
  });

  it.each(['0', '0.5', '101', 'slow'])('%j is refused', (text) => {
    expect(() => readSlowness(text)).toThrow('TILLSYNC_SLOW: found');
  });
});

describe('test/may-be-skipped.ts', () => {
  it('names a skipped test by its file and its title', () => {
    const file = 'test/slow/package/hub.test.ts';
    const title = 'a hub (trixie) > is refused with the nats-server of Debian 12, and gets';
    expect(mayBeSkipped({ file, title })).toBe(true);
    expect(mayBeSkipped({ file, title: 'another test' })).toBe(false);
    expect(mayBeSkipped({ file: 'test/other.test.ts', title })).toBe(false);
  });

  it('has no need of what a tag leaves to another tier', () => {
    expect(isOfAnotherTier(['bulk'], ['!bulk'])).toBe(true);
    expect(isOfAnotherTier([], ['bulk'])).toBe(true);
    expect(isOfAnotherTier(['bulk'], ['bulk'])).toBe(false);
    expect(isOfAnotherTier([], ['!bulk'])).toBe(false);
    expect(isOfAnotherTier(['bulk'])).toBe(false);
  });
});

describe('a second run of a tier', () => {
  it('has each file with a failed test once', () => {
    expect(filesToRunAgain('test/a.test.ts\tone\ntest/a.test.ts\ttwo\ntest/b.test.ts\tone\n')).toEqual([
      'test/a.test.ts',
      'test/b.test.ts',
    ]);
  });

  it('is whole where an error belongs to no file', () => {
    expect(filesToRunAgain('test/a.test.ts\tone\n*\tno test: late\n')).toEqual([]);
  });
});
