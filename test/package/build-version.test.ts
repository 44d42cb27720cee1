import { spawnSync } from 'node:child_process';
import { mkdtempSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { expect, it } from 'vitest';
import { buildVersion } from '../../config/package/read-package.ts';

it('names each commit, after the release before it, and the release by its tag', () => {
  const root = mkdtempSync(path.join(tmpdir(), 'tillsync-version-'));
  // Without git, the version can only be that of package.json.
  if (spawnSync('git', ['--version']).error !== undefined) {
    expect(buildVersion(root, '0.1.0')).toBe('0.1.0');
    return;
  }
  const git = (...words: string[]) => {
    const own = ['-C', root, '-c', 'user.name=a', '-c', 'user.email=a@b.test'];
    const { status, stderr } = spawnSync('git', [...own, ...words], { encoding: 'utf8' });
    expect(status, stderr).toBe(0);
  };
  git('init', '-q');
  // Without a commit, as in an archive of the source, the version can only be that of package.json.
  expect(buildVersion(root, '0.1.0')).toBe('0.1.0');
  git('commit', '-q', '--allow-empty', '-m', 'One');
  expect(buildVersion(root, '0.1.0')).toMatch(/^0\.1\.0\+1\.g[0-9a-f]{9}$/);
  git('tag', 'v0.1.0');
  expect(buildVersion(root, '0.1.0')).toBe('0.1.0');
  for (let i = 0; i < 9; i++) git('commit', '-q', '--allow-empty', '-m', 'More');
  const later = buildVersion(root, '0.1.0');
  expect(later).toMatch(/^0\.1\.0\+10\.g[0-9a-f]{9}$/);
  const isLater = (a: string, b: string) =>
    spawnSync('dpkg', ['--compare-versions', a, 'gt', b]).status === 0;
  for (const earlier of ['0.1.0', '0.1.0+9.gfffffffff']) expect(isLater(later, earlier), earlier).toBe(true);
  expect(isLater('0.1.1', later)).toBe(true);
});
