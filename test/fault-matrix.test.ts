import { existsSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { describe, expect, it } from 'vitest';
import { FINDINGS } from '../src/health/findings.ts';
import { matrixRows } from './fault-matrix-rows.ts';
import { ROOT } from './support/workplace.ts';

const rows = matrixRows();

describe('the fault matrix', () => {
  it('has its 63 rows, each with every column filled', () => {
    expect(rows.map(({ number }) => number)).toEqual(Array.from({ length: 63 }, (_, i) => i + 1));
    for (const { number, tests, words } of rows) {
      expect(tests.length, `row ${number}`).toBeGreaterThan(0);
      expect(words, `row ${number}`).toHaveLength(4);
      for (const word of words) expect(word, `row ${number}`).toMatch(/\w{2}/);
    }
  });

  it('says of each when somebody is told, or that nobody need be; a watcher within five minutes', () => {
    for (const { number, toldAfter } of rows) {
      expect(toldAfter, `row ${number}`).toMatch(
        /^((`[\w.-]+` \d+|watcher [1-5]) min(, (`[\w.-]+` \d+|watcher [1-5]) min)*|nobody: .+)$/,
      );
    }
    for (const { number, toldAfter } of rows) {
      for (const [, key] of toldAfter.matchAll(/`([^`]+)`/g)) {
        expect(Object.keys(FINDINGS), `row ${number}`).toContain(key);
      }
    }
  });

  it.each(rows.map(({ number, tests }) => [number, tests] as const))(
    'row %i names tests that exist',
    (_number, tests) => {
      for (const { file, title } of tests) {
        const place = path.join(ROOT, file);
        expect(existsSync(place), file).toBe(true);
        const titles = [
          ...readFileSync(place, 'utf8').matchAll(/(?:it|test)(?:\.\w+\(.*?\)|\.\w+)?\(\s*(['"`])(.*?)\1,/gs),
        ];
        expect(
          titles.some(([, , text = '']) => text.includes(title)),
          `${file} › ${title}`,
        ).toBe(true);
      }
    },
  );
});
