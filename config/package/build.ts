import { execFileSync } from 'node:child_process';
import { mkdirSync, mkdtempSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { buildDeb } from './deb.ts';
import { readPackage } from './read-package.ts';
import { stageTree } from './staged-tree.ts';
import { thisTarget } from './target.ts';

// `npm run package`: writes dist/tillsync_VERSION_ARCHITECTURE.deb and, beside it, what is in it as CycloneDX.

const root = path.resolve(import.meta.dirname, '../..');
const facts = readPackage(root);
const epoch = Number(process.env.SOURCE_DATE_EPOCH ?? lastCommit());
const output = path.join(root, 'dist', `${facts.name}_${facts.version}_${thisTarget().debian}.deb`);
const stage = mkdtempSync(path.join(tmpdir(), 'tillsync-package-'));
try {
  mkdirSync(path.dirname(output), { recursive: true });
  const materials = await stageTree({ root, stage, facts, date: new Date(epoch * 1000) });
  writeFileSync(output.replace(/\.deb$/, '.cdx.json'), materials);
  buildDeb({ stage, scripts: path.join(import.meta.dirname, 'debian'), facts, output, epoch });
} finally {
  rmSync(stage, { recursive: true, force: true });
}
const mebibytes = (statSync(output).size / 2 ** 20).toFixed(1);
process.stdout.write(`${path.relative(process.cwd(), output)} (${mebibytes} MiB)\n`);

/** Without a repository, such as in a source archive, the package is dated to the epoch's beginning. */
function lastCommit(): string {
  try {
    return execFileSync('git', ['log', '-1', '--format=%ct'], { cwd: root, encoding: 'utf8' }).trim();
  } catch {
    return '0';
  }
}
