import { execFile } from 'node:child_process';
import { createHash } from 'node:crypto';
import {
  chmodSync,
  cpSync,
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  statSync,
  writeFileSync,
} from 'node:fs';
import path from 'node:path';
import { promisify } from 'node:util';
import type { PackageFacts } from './read-package.ts';

export interface DebOptions {
  /** Directory with the files of the package. The control files are added to it. */
  stage: string;
  /** Directory of the maintainer scripts, and of the file `triggers` if there is one. */
  scripts: string;
  facts: PackageFacts;
  /** Debian's name of the architecture; `all` for a package that runs on each. */
  architecture: string;
  depends: string;
  /** Long description, which follows the short one. */
  about: string;
  /** Path of the package to write. */
  output: string;
  /** Latest modification time of the packed files, in seconds since 1970. Later times are set to it. */
  epoch: number;
  /** Compression as dpkg-deb names it: `xz`, or `none` for a quick try. */
  compression: string;
}

const SCRIPTS = ['postinst', 'prerm', 'postrm'];
const TRIGGERS = 'triggers';

/** Adds the control files and packs the files. The same files and `epoch` give the same bytes. */
export async function buildDeb(options: DebOptions): Promise<void> {
  const { stage, scripts, output, epoch, compression } = options;
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
  // Set explicitly, so that the mode does not depend on the umask of the person who builds.
  chmodSync(control, 0o755);
  const kib = files.reduce((sum, name) => sum + Math.ceil(statSync(path.join(stage, name)).size / 1024), 0);
  writeFileSync(path.join(control, 'control'), controlFile(options, kib));
  const sums = files.map((name) => `${md5(stage, name)}  ${name}\n`);
  writeFileSync(path.join(control, 'md5sums'), sums.join(''));
  for (const name of SCRIPTS) {
    cpSync(path.join(scripts, name), path.join(control, name));
    chmodSync(path.join(control, name), 0o755);
  }
  if (existsSync(path.join(scripts, TRIGGERS))) {
    cpSync(path.join(scripts, TRIGGERS), path.join(control, TRIGGERS));
    chmodSync(path.join(control, TRIGGERS), 0o644);
  }
  for (const name of ['control', 'md5sums']) chmodSync(path.join(control, name), 0o644);
  // With one thread, because the packed bytes depend on how the work is split.
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

function controlFile({ facts, architecture, depends, about }: DebOptions, kib: number): string {
  const { name, version, description, maintainer } = facts;
  return `Package: ${name}
Version: ${version}
Architecture: ${architecture}
Maintainer: ${maintainer}
Installed-Size: ${kib}
Depends: ${depends}
Section: net
Priority: optional
Description: ${description}
${about.replaceAll(/^/gm, ' ')}
`;
}
