import { execFileSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { copyFileSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';

export const MIRROR_DATE = new Date('2026-01-10T12:00:00Z');

/** Writes one suite of a Debian mirror, signed with the default key of gpg. */
export function writeSuite(directory: string, suite: string, debs: readonly string[]): void {
  const stanzas = debs.map((deb) => {
    const name = path.join('pool', path.basename(deb));
    mkdirSync(path.join(directory, 'pool'), { recursive: true });
    copyFileSync(deb, path.join(directory, name));
    const bytes = readFileSync(deb);
    const control = execFileSync('dpkg-deb', ['--field', deb], { encoding: 'utf8' }).trimEnd();
    return `${control}\nFilename: ${name}\nSize: ${bytes.length}\nSHA256: ${sha256(bytes)}\n`;
  });
  const list = Buffer.from(stanzas.join('\n'));
  const place = 'main/binary-amd64/Packages';
  const at = path.join(directory, 'dists', suite);
  mkdirSync(path.dirname(path.join(at, place)), { recursive: true });
  writeFileSync(path.join(at, place), list);
  const named = `Origin: Debian\nCodename: ${suite}\nArchitectures: amd64\nComponents: main\nDate: ${MIRROR_DATE.toUTCString()}`;
  writeFileSync(path.join(at, 'Release'), `${named}\nSHA256:\n ${sha256(list)} ${list.length} ${place}\n`);
  const sign = ['--batch', '--yes', '--quiet', '--clearsign', '--output', path.join(at, 'InRelease')];
  execFileSync('gpg', [...sign, path.join(at, 'Release')]);
}

function sha256(bytes: Uint8Array): string {
  return createHash('sha256').update(bytes).digest('hex');
}
