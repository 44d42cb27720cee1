/** Tests src/demo/branches-demo.ts and src/demo/nats-server.ts. */

import { chmodSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { expect, it, onTestFinished } from 'vitest';
import type { BranchesDemoSummary } from '../../src/demo/branches-demo.ts';
import { findNatsServer } from '../../src/demo/nats-server.ts';
import { hasNatsServer } from '../support/nats-server.ts';
import { runCommand } from '../support/workplace.ts';

it.skipIf(!hasNatsServer)(
  'the demo of a hub and its branches ends equal, also for the one that was off the net',
  async () => {
    const env = { PATH: process.env.PATH ?? '' };
    const { code, stdout, stderr } = await runCommand(env, [
      'demo',
      '--branches',
      '3',
      '--seconds',
      '15',
      '--json',
    ]);
    expect(code, stderr).toBe(0);
    const { branches, away, ...hub } = JSON.parse(stdout) as BranchesDemoSummary;
    expect(hub).toMatchObject({ differences: [], violations: 0, deadTokenUses: 0 });
    expect(hub.equal).toBe(hub.atPlatform);
    expect(branches.map(({ branch }) => branch)).toEqual(['B1', 'B2', 'B3']);
    for (const each of branches) {
      expect(each).toMatchObject({ differences: [], equal: each.atPlatform, stocksEqual: each.stocks });
      expect(each.stocks).toBeGreaterThan(10);
      expect(each.soldOverTheCounter).toBeGreaterThan(0);
    }
    expect(branches.reduce((sum, { inMirror }) => sum + inMirror, 0)).toBe(hub.atPlatform);
    expect(away).toMatchObject({ branch: 'B3' });
    expect(away?.keptChanges).toBeGreaterThan(0);
    expect(stderr).toMatch(
      /the hub, with the board of its branches: http:\/\/127\.0\.0\.1:\d+\/[\s\S]*B3 is off the net/,
    );
  },
  90_000,
);

it('says which package to install where there is no nats-server, or an old one', () => {
  const directory = mkdtempSync(path.join(tmpdir(), 'tillsync-server-'));
  onTestFinished(() => rmSync(directory, { recursive: true }));
  const server = (version: string) => {
    const file = path.join(directory, `nats-server-${version}`);
    writeFileSync(file, `#!/bin/sh\necho "nats-server: v${version}"\n`);
    chmodSync(file, 0o755);
    return file;
  };
  const [old, good] = [server('2.9.10'), server('2.10.27')];
  const missing = path.join(directory, 'none');
  expect(findNatsServer([missing, old, good])).toBe(good);
  expect(() => findNatsServer([missing])).toThrow('there is none on this machine');
  expect(() => findNatsServer([old])).toThrow(`${old} is 2.9.10, which is too old`);
  try {
    findNatsServer([old]);
  } catch (error) {
    expect((error as { hint: string }).hint).toContain('sudo apt-get install nats-server');
  }
});
