import { readFileSync } from 'node:fs';
import path from 'node:path';

export interface MatrixRow {
  number: number;
  /** File and title of each test that injects the fault; the title may be only the beginning or the end. */
  tests: { file: string; title: string }[];
  /** Time after which a person is notified, or why nobody is. */
  toldAfter: string;
  /** Texts of the other columns. */
  words: string[];
}

/** Returns the rows of test/fault-matrix.md. */
export function matrixRows(): MatrixRow[] {
  return readFileSync(path.join(import.meta.dirname, 'fault-matrix.md'), 'utf8')
    .split('\n')
    .filter((line) => /^\| \d+ \|/.test(line))
    .map((line) => {
      const [number, fault, must, toldAfter = '', tests = '', ...rest] = line
        .split('|')
        .slice(1, -1)
        .map((cell) => cell.trim());
      const named = [...tests.matchAll(/`([^`]+)` › ([^;]+)/g)].map(([, file = '', title = '']) => ({
        file,
        title: title.trim(),
      }));
      return { number: Number(number), tests: named, toldAfter, words: [fault ?? '', must ?? '', ...rest] };
    });
}
