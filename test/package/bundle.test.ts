import { execFileSync } from 'node:child_process';
import {
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { afterAll, beforeAll, describe, expect, it, onTestFinished } from 'vitest';
import { billOfMaterials } from '../../config/package/bill-of-materials.ts';
import { bundle } from '../../config/package/bundle.ts';
import { commandTree, everyCommand } from '../../config/package/command-tree.ts';
import { bashCompletion, fishCompletion } from '../../config/package/completion.ts';
import { licences, shippedPackages } from '../../config/package/licences.ts';
import { readPackage } from '../../config/package/read-package.ts';
import { thisTarget } from '../../config/package/target.ts';

const ROOT = path.resolve(import.meta.dirname, '../..');

describe('the bundled program', { tags: ['bulk'] }, () => {
  let directory: string;
  let inputs: string[];

  beforeAll(async () => {
    directory = mkdtempSync(path.join(tmpdir(), 'tillsync-bundle-'));
    inputs = await bundle({ root: ROOT, directory });
  });

  afterAll(() => rmSync(directory, { recursive: true, force: true }));

  it('needs nothing of the checkout', () => {
    const run = (...words: string[]) =>
      execFileSync(process.execPath, [path.join(directory, 'start.cjs'), ...words], {
        cwd: '/',
        env: { CACHE_DIRECTORY: path.join(directory, 'cache') },
        encoding: 'utf8',
      });
    expect(run('--version').trim()).toBe(readPackage(ROOT).version);
    expect(run('run', '--help')).toContain('--config');
    expect(readdirSync(path.join(directory, 'cache'))).not.toEqual([]);
    const generator = [path.join(directory, 'unit-generator.cjs'), path.join(directory, 'units')];
    expect(execFileSync(process.execPath, generator, { cwd: '/', env: {}, encoding: 'utf8' })).toBe('');
  });

  it('has none of the languages of zod, which `import { z }` would bring and `import * as z` leaves out', () => {
    expect(readFileSync(path.join(directory, 'main.cjs'), 'utf8')).not.toContain('zod/v4/locales/fr');
  });

  it('has no letter beyond Latin-1: one is enough, and Node holds the whole program in twice the memory', () => {
    for (const file of ['main.cjs', 'unit-generator.cjs', 'import-worker.cjs', 'inbox-child.cjs']) {
      const text = readFileSync(path.join(directory, file), 'utf8');
      expect([...text].filter((letter) => letter > '\u00ff')).toEqual([]);
    }
  });

  it('goes with the whole licence text of every part, those of Node and of SQLite among them', () => {
    const packages = shippedPackages(ROOT, thisTarget(), inputs);
    const all = licences(ROOT, packages);
    for (const text of ['V8, located at deps/v8', 'Apache License', 'UNICODE LICENSE V3', 'zlib']) {
      expect(all.includes(text), text).toBe(true);
    }
    for (const { name, version, licenceText } of packages) {
      expect(/copyright/i.test(licenceText), name).toBe(true);
      expect(all.includes(`${name} ${version} (`), name).toBe(true);
    }
    const { components } = JSON.parse(
      billOfMaterials({ facts: readPackage(ROOT), architecture: 'amd64', packages, date: new Date(0) }),
    );
    expect(components.map(({ name }: { name: string }) => name)).toEqual(packages.map(({ name }) => name));
    expect(packages.length).toBeGreaterThan(40);
  });

  it('is not built where a licence text is missing', () => {
    const place = path.join(directory, 'node_modules/bare');
    mkdirSync(place, { recursive: true });
    writeFileSync(path.join(place, 'package.json'), '{"name":"bare","version":"1.2.3","license":"MIT"}');
    const build = () => shippedPackages(ROOT, thisTarget(), [...inputs, path.join(place, 'index.js')]);
    expect(build).toThrow('bare 1.2.3 comes without its licence');
    writeFileSync(path.join(place, 'COPYING'), 'Copyright somebody');
    expect(build().find(({ name }) => name === 'bare')?.licenceText).toBe('Copyright somebody');
    rmSync(place, { recursive: true });
  });

  it('has what is read at run time: workers, migrations, SQLite, packages loaded by name', () => {
    const migrations = (place: string) =>
      readdirSync(path.join(place, 'db'), { recursive: true, encoding: 'utf8' })
        .filter((name) => name.endsWith('.sql'))
        .sort();
    expect(migrations(directory)).toEqual(migrations(path.join(ROOT, 'src')));
    for (const name of ['import-worker.cjs', 'better_sqlite3.node', 'node_modules/pino-pretty/index.js']) {
      expect(existsSync(path.join(directory, name)), name).toBe(true);
    }
  });
});

describe('the completion', () => {
  const program = commandTree();
  const complete = (...words: string[]) => completeAt(undefined, ...words);
  const completeAt = (configFile: string | undefined, ...words: string[]) =>
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
      { encoding: 'utf8', env: { ...process.env, TILLSYNC_CONFIG: configFile ?? '/nowhere' } },
    ).split('\n');

  it('offers the commands of a group, and the options of a command', () => {
    expect(complete('sy')).toContain('sync');
    expect(complete('sync', '')).toContain('orders');
    expect(complete('sync', 'orders', '--f')).toContain('--from');
    expect(complete('--config', '/etc/pass')).toContain('/etc/passwd');
  });

  it('offers the commands of a chain where the help shows them', () => {
    const place = mkdtempSync(path.join(tmpdir(), 'tillsync-completion-'));
    onTestFinished(() => rmSync(place, { recursive: true }));
    const file = path.join(place, 'hub.toml');
    writeFileSync(file, '[platform]\n[hub]\nnats = "nats://127.0.0.1:4222"\n');
    expect(completeAt(file, '')).toEqual(expect.arrayContaining(['bundle', 'hub', 'branch']));
    expect(complete('')).toContain('bundle');
    expect(complete('')).not.toEqual(expect.arrayContaining([expect.stringMatching(/^(hub|branch)$/)]));
    expect(completeAt(file, 'init', '--j')).toContain('--join');
    expect(complete('init', '--j')).not.toContain('--join');
    expect(complete('branch', '')).toContain('invite');
    const inFish = fishCompletion(program)
      .split('\n')
      .filter((line) => line.includes('and __tillsync_chain'));
    expect(inFish.map((line) => / -[al] (\S+)/.exec(line)?.[1])).toEqual([
      'hub',
      'branch',
      'join',
      'branches',
    ]);
  });

  it('knows every command in fish too', () => {
    const text = fishCompletion(program);
    for (const { words } of everyCommand(program).slice(1)) expect(text).toContain(`-a ${words.at(-1)} `);
  });
});
