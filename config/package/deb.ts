import { execFile } from 'node:child_process';
import { createHash } from 'node:crypto';
import { chmodSync, cpSync, mkdirSync, readdirSync, readFileSync, statSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { promisify } from 'node:util';
import type { PackageFacts } from './read-package.ts';
import type { Target } from './target.ts';

export interface DebOptions {
  /** The laid out tree; gets the control files. */
  stage: string;
  /** Directory of the maintainer scripts. */
  scripts: string;
  facts: PackageFacts;
  target: Target;
  /** The file to write. */
  output: string;
  /** Seconds since the epoch that every file is dated to at most. */
  epoch: number;
  /** As dpkg-deb names it: `xz`, or `none` for a quick try. */
  compression: string;
}

const SCRIPTS = ['postinst', 'prerm', 'postrm'];

/** Adds the control files and packs the tree; the same tree and epoch give the same bytes. */
export async function buildDeb({
  stage,
  scripts,
  facts,
  target,
  output,
  epoch,
  compression,
}: DebOptions): Promise<void> {
  const files = readdirSync(stage, { recursive: true, encoding: 'utf8' })
    .filter((name) => statSync(path.join(stage, name)).isFile())
    .sort();
  chmodSync(stage, 0o755);
  for (const name of readdirSync(stage, { recursive: true, encoding: 'utf8' })) {
    const file = path.join(stage, name);
    if (statSync(file).isDirectory()) chmodSync(file, 0o755);
    else chmodSync(file, statSync(file).mode & 0o100 ? 0o755 : 0o644);
  }
  const control = path.join(stage, 'DEBIAN');
  mkdirSync(control);
  // Whatever the umask of who builds.
  chmodSync(control, 0o755);
  const kib = files.reduce((sum, name) => sum + Math.ceil(statSync(path.join(stage, name)).size / 1024), 0);
  writeFileSync(path.join(control, 'control'), controlFile(facts, target, kib));
  const sums = files.map((name) => `${md5(stage, name)}  ${name}\n`);
  writeFileSync(path.join(control, 'md5sums'), sums.join(''));
  for (const name of SCRIPTS) {
    cpSync(path.join(scripts, name), path.join(control, name));
    chmodSync(path.join(control, name), 0o755);
  }
  for (const name of ['control', 'md5sums']) chmodSync(path.join(control, name), 0o644);
  // One thread: the packed bytes depend on how the work is split.
  await promisify(execFile)(
    'dpkg-deb',
    ['--root-owner-group', '--threads-max=1', `-Z${compression}`, '--build', stage, output],
    { env: { ...process.env, SOURCE_DATE_EPOCH: String(epoch) } },
  );
}

function md5(stage: string, name: string): string {
  return createHash('md5')
    .update(readFileSync(path.join(stage, name)))
    .digest('hex');
}

function controlFile(
  { name, version, description, maintainer }: PackageFacts,
  { debian }: Target,
  kib: number,
): string {
  return `Package: ${name}
Version: ${version}
Architecture: ${debian}
Maintainer: ${maintainer}
Installed-Size: ${kib}
Depends: libc6 (>= 2.28), libgcc-s1, libstdc++6 (>= 9), passwd
Section: net
Priority: optional
Description: ${description}
 A service that polls the ordering platform, receives its callbacks and keeps
 a local SQLite mirror that the point of sale reads at any time. It carries its
 own Node.
`;
}
