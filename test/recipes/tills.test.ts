import { execFileSync } from 'node:child_process';
import { existsSync, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { describe, expect, it } from 'vitest';
import type { Report } from '../../src/conform/conform.ts';
import { limitMs } from '../support/shared-config.ts';
import { COMPILED, NODE, runCommand } from '../support/workplace.ts';

interface TillRecipe {
  language: string;
  way: Report['way'];
  needs: string[];
  /** Debian packages. */
  packages: string;
  /** Command that compiles the recipe; it runs in a temporary directory. */
  compile?: string[];
  command: string[];
}

const recipe = (name: string) => path.join(import.meta.dirname, name);
const TILLS: TillRecipe[] = [
  {
    language: 'TypeScript',
    way: 'http',
    needs: [NODE],
    packages: 'nodejs',
    command: [NODE, recipe('typescript/till.ts')],
  },
  {
    language: 'TypeScript',
    way: 'stream',
    needs: [NODE],
    packages: 'nodejs',
    command: [NODE, recipe('typescript/till-stream.ts')],
  },
  {
    language: 'TypeScript',
    way: 'hook',
    needs: [NODE],
    packages: 'nodejs',
    command: [NODE, recipe('typescript/till-hook.ts')],
  },
  {
    language: 'Python',
    way: 'files',
    needs: ['/usr/bin/python3'],
    packages: 'python3',
    command: ['python3', recipe('python/till-files.py')],
  },
  {
    language: 'Python',
    way: 'sql',
    needs: ['/usr/bin/python3'],
    packages: 'python3',
    command: ['python3', recipe('python/till.py')],
  },
  {
    language: 'PHP',
    way: 'sql',
    needs: ['/usr/bin/php'],
    packages: 'php-cli php-sqlite3',
    command: ['php', recipe('php/till.php')],
  },
  {
    language: 'C#',
    way: 'sql',
    needs: ['/usr/bin/mcs', '/usr/bin/mono'],
    packages: 'mono-mcs mono-runtime libmono-sqlite4.0-cil',
    compile: ['mcs', '-r:System.Data', '-r:Mono.Data.Sqlite', '-out:till', recipe('csharp/Till.cs')],
    command: ['mono', 'till'],
  },
  {
    language: 'Free Pascal',
    way: 'sql',
    needs: ['/usr/bin/fpc'],
    packages: 'fp-compiler fp-units-fcl fp-units-db',
    compile: ['fpc', '-o./till', recipe('pascal/till.pas')],
    command: ['./till'],
  },
];

const missing = ({ needs }: TillRecipe) => needs.some((file) => !existsSync(file));
for (const till of TILLS) {
  if (missing(till))
    console.warn(`Not tested: the till in ${till.language}. Install it: apt install ${till.packages}`);
}

// The tests run concurrently, because a till mostly waits. Each uses its own test context, as concurrent tests must.
describe.concurrent('a till of the docs', () => {
  for (const till of TILLS) {
    it.skipIf(missing(till))(
      `in ${till.language} shows every behaviour by the way ${till.way}`,
      async ({ onTestFinished }) => {
        const directory = mkdtempSync(path.join(tmpdir(), 'tillsync-till-'));
        onTestFinished(() => rmSync(directory, { recursive: true, force: true }));
        const certificate = path.join(directory, 'till.html');
        const [compiler, ...sources] = till.compile ?? [];
        if (compiler !== undefined) execFileSync(compiler, sources, { cwd: directory, stdio: 'pipe' });
        // The command is started in the working directory of the test, so the compiled till needs its absolute path.
        const command = till.command.map((word) =>
          /(^|\/)till$/.test(word) ? path.join(directory, 'till') : word,
        );
        const words = ['conform', '--json', '--channel', till.way, '--certificate', certificate];
        const env = { ...COMPILED, PATH: process.env.PATH ?? '' };
        const { code, stdout, stderr } = await runCommand(env, [...words, '--', ...command]);
        const report = JSON.parse(stdout) as Report;
        expect(report.behaviours, stdout + stderr).toBeDefined();
        const wrong = report.behaviours.filter(({ verdict }) => verdict !== 'passed');
        expect(wrong, stderr).toEqual([]);
        expect([code, report.passed]).toEqual([0, 38]);
        expect(readFileSync(certificate, 'utf8')).toContain('the till passed');
      },
      limitMs(300_000),
    );
  }
});
