import { execFileSync } from 'node:child_process';
import { existsSync, mkdtempSync, readdirSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { bundle } from '../../config/package/bundle.ts';
import { commandTree, everyCommand } from '../../config/package/command-tree.ts';
import { bashCompletion, fishCompletion } from '../../config/package/completion.ts';

const ROOT = path.resolve(import.meta.dirname, '../..');

describe('the bundled program', () => {
  let directory: string;

  beforeAll(async () => {
    directory = mkdtempSync(path.join(tmpdir(), 'tillsync-bundle-'));
    await bundle({ root: ROOT, directory });
  });

  afterAll(() => rmSync(directory, { recursive: true, force: true }));

  it('needs nothing of the checkout', () => {
    const run = (...words: string[]) =>
      execFileSync(process.execPath, [path.join(directory, 'start.cjs'), ...words], {
        cwd: '/',
        env: { CACHE_DIRECTORY: path.join(directory, 'cache') },
        encoding: 'utf8',
      });
    expect(run('--version').trim()).toMatch(/^\d+\.\d+\.\d+$/);
    expect(run('run', '--help')).toContain('--config');
    expect(readdirSync(path.join(directory, 'cache'))).not.toEqual([]);
  });

  it('has what is read at run time: workers, migrations, SQLite, packages loaded by name', () => {
    const migrations = (place: string) =>
      readdirSync(path.join(place, 'store/mirror/migrations')).filter((name) => name.endsWith('.sql'));
    expect(migrations(directory)).toEqual(migrations(path.join(ROOT, 'src')));
    for (const name of ['import-worker.cjs', 'better_sqlite3.node', 'node_modules/pino-pretty/index.js']) {
      expect(existsSync(path.join(directory, name)), name).toBe(true);
    }
  });
});

describe('the completion', () => {
  const program = commandTree();
  const complete = (...words: string[]) =>
    execFileSync(
      'bash',
      [
        '-c',
        `eval "$1"; shift; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _tillsync; printf '%s\\n' "\${COMPREPLY[@]}"`,
        'bash',
        bashCompletion(program),
        'tillsync',
        ...words,
      ],
      { encoding: 'utf8' },
    ).split('\n');

  it('offers the commands of a group, and the options of a command', () => {
    expect(complete('sy')).toContain('sync');
    expect(complete('sync', '')).toContain('orders');
    expect(complete('sync', 'orders', '--f')).toContain('--from');
    expect(complete('--config', '/etc/pass')).toContain('/etc/passwd');
  });

  it('knows every command in fish too', () => {
    const text = fishCompletion(program);
    for (const { words } of everyCommand(program).slice(1)) expect(text).toContain(`-a ${words.at(-1)} `);
  });
});
