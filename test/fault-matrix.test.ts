import { existsSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { describe, expect, it } from 'vitest';
import { ROOT } from './support/workplace.ts';

interface Row {
  number: number;
  /** File and title of each test that injects the fault; a title may be its beginning or its end. */
  tests: { file: string; title: string }[];
  /** The other columns. */
  words: string[];
}

const rows = readFileSync(path.join(import.meta.dirname, 'fault-matrix.md'), 'utf8')
  .split('\n')
  .filter((line) => /^\| \d+ \|/.test(line))
  .map((line): Row => {
    const [number, fault, must, tests = '', ...rest] = line
      .split('|')
      .slice(1, -1)
      .map((cell) => cell.trim());
    const named = [...tests.matchAll(/`([^`]+)` › ([^;]+)/g)].map(([, file = '', title = '']) => ({
      file,
      title: title.trim(),
    }));
    return { number: Number(number), tests: named, words: [fault ?? '', must ?? '', ...rest] };
  });

describe('the fault matrix', () => {
  it('has its 45 rows, each with every column filled', () => {
    expect(rows.map(({ number }) => number)).toEqual(Array.from({ length: 45 }, (_, i) => i + 1));
    for (const { number, tests, words } of rows) {
      expect(tests.length, `row ${number}`).toBeGreaterThan(0);
      expect(words, `row ${number}`).toHaveLength(4);
      for (const word of words) expect(word, `row ${number}`).toMatch(/\w{2}/);
    }
  });

  it.each(rows.map(({ number, tests }) => [number, tests] as const))(
    'row %i names tests that exist',
    (_number, tests) => {
      for (const { file, title } of tests) {
        const place = path.join(ROOT, file);
        expect(existsSync(place), file).toBe(true);
        const titles = [
          ...readFileSync(place, 'utf8').matchAll(/(?:it|test)(?:\.\w+\(.*\)|\.\w+)?\(\s*(['"`])(.*?)\1,/gs),
        ];
        expect(
          titles.some(([, , text = '']) => text.includes(title)),
          `${file} › ${title}`,
        ).toBe(true);
      }
    },
  );
});
