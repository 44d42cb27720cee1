import { execFileSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import {
  copyFileSync,
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  renameSync,
  writeFileSync,
} from 'node:fs';
import path from 'node:path';
import { gzipSync } from 'node:zlib';
import { TARGETS } from './target.ts';

export interface RepositoryOptions {
  /**
   * Directory that a web server serves. It is created if it is missing. Versions that were published before stay in it.
   */
  directory: string;
  /** Packages to add, each with its bill of materials beside it. */
  debs: readonly string[];
  /** gpg's name of the signing key. If left out, the key named `OWN_KEY` is used, which the first call creates. */
  key?: string | undefined;
  /** Date of the index. apt rejects an index that is older than the one it already has. */
  date: Date;
}

/** Name of the signing key if no other is named. The key is in gpg's own directory and has no passphrase. */
const OWN_KEY = 'tillsync packages';
/** File with the public key, which machines install. */
const PUBLIC_KEY = 'tillsync.asc';
const POOL = 'pool';
const SUITE = 'dists/stable';

/**
 * Adds packages to a repository for apt, signs it, and returns the key's fingerprint. Throws before any change if a
 * version was published with other content or another key signed the repository, because machines would reject both.
 */
export function publish({ directory, debs, key, date }: RepositoryOptions): string {
  const pool = path.join(directory, POOL);
  for (const deb of debs) refuseOther(deb, path.join(pool, path.basename(deb)));
  const fingerprint = signingKey(directory, key);
  mkdirSync(pool, { recursive: true });
  for (const deb of debs) {
    for (const file of [deb, deb.replace(/\.deb$/, '.cdx.json')]) {
      copyFileSync(file, path.join(pool, path.basename(file)));
    }
  }
  const listed = TARGETS.flatMap(({ debian }) => writePackages(directory, debian));
  const release = path.join(directory, SUITE, 'Release');
  replace(release, releaseFile(date, listed));
  gpg('--local-user', fingerprint, '--clearsign', '--output', `${release}.signed`, release);
  const sums = path.join(directory, 'SHA256SUMS');
  replace(
    sums,
    namesIn(pool, '')
      .map((name) => `${sha256(readFileSync(path.join(pool, name)))}  ${POOL}/${name}\n`)
      .join(''),
  );
  gpg('--local-user', fingerprint, '--armor', '--detach-sign', '--output', `${sums}.asc`, sums);
  replace(path.join(directory, PUBLIC_KEY), gpg('--armor', '--export', fingerprint));
  // Renamed last, because this file names all the others.
  renameSync(`${release}.signed`, path.join(directory, SUITE, 'InRelease'));
  return fingerprint;
}

function refuseOther(deb: string, published: string): void {
  if (existsSync(published) && !readFileSync(published).equals(readFileSync(deb))) {
    throw new Error(`${published} has other content. Raise the version in package.json and in CHANGELOG.md.`);
  }
}

/** Returns the fingerprint of the signing key. If no key is named and `OWN_KEY` does not exist yet, creates it. */
function signingKey(directory: string, named: string | undefined): string {
  const find = () => fingerprints('--list-secret-keys', named ?? `=${OWN_KEY}`)[0];
  let found: string | undefined;
  try {
    found = find();
  } catch {
    if (named)
      throw new Error(`gpg has no secret key ${named}. gpg --list-secret-keys lists those that are there.`);
  }
  const published = path.join(directory, PUBLIC_KEY);
  const before = existsSync(published) ? fingerprints('--show-keys', published)[0] : undefined;
  if (before && before !== found) {
    throw new Error(
      `${directory} was signed by ${before} until now, and machines take no other key. Name it with --key, or delete ${published} and give every machine the new key.`,
    );
  }
  if (found) return found;
  gpg('--passphrase', '', '--quick-generate-key', OWN_KEY, 'ed25519', 'sign', 'never');
  return find() as string;
}

function fingerprints(...words: string[]): string[] {
  const lines = gpg('--with-colons', ...words).split('\n');
  return lines.filter((line) => line.startsWith('fpr:')).map((line) => line.split(':')[9] as string);
}

function gpg(...words: string[]): string {
  return execFileSync('gpg', ['--batch', '--yes', '--quiet', '--digest-algo', 'SHA512', ...words], {
    encoding: 'utf8',
    stdio: ['ignore', 'pipe', 'pipe'],
  });
}

/** Writes the list of packages for one architecture, plain and compressed. Returns its lines for the Release file. */
function writePackages(directory: string, architecture: string): string[] {
  const pool = path.join(directory, POOL);
  const names = [`_${architecture}.deb`, '_all.deb'].flatMap((ending) => namesIn(pool, ending));
  const stanzas = names.map((name) => {
    const file = path.join(pool, name);
    const bytes = readFileSync(file);
    const control = execFileSync('dpkg-deb', ['--field', file], { encoding: 'utf8' }).trimEnd();
    return `${control}\nFilename: ${POOL}/${name}\nSize: ${bytes.length}\nSHA256: ${sha256(bytes)}\n`;
  });
  const list = Buffer.from(stanzas.join('\n'));
  const place = `main/binary-${architecture}`;
  return [['Packages', list] as const, ['Packages.gz', gzipSync(list, { level: 9 })] as const].map(
    ([name, content]) => {
      const hash = sha256(content);
      const folder = path.join(directory, SUITE, place);
      mkdirSync(path.join(folder, 'by-hash/SHA256'), { recursive: true });
      // The list is also stored under its hash and is never deleted, because a machine that has just read an earlier
      // Release file asks for the list that is named there.
      replace(path.join(folder, 'by-hash/SHA256', hash), content);
      replace(path.join(folder, name), content);
      return ` ${hash} ${content.length} ${place}/${name}`;
    },
  );
}

function releaseFile(date: Date, listed: readonly string[]): string {
  return `Origin: tillsync
Label: tillsync
Suite: stable
Codename: stable
Date: ${date.toUTCString().replace('GMT', 'UTC')}
Architectures: ${TARGETS.map(({ debian }) => debian).join(' ')}
Components: main
Description: tillsync for Debian
Acquire-By-Hash: yes
SHA256:
${listed.join('\n')}
`;
}

function namesIn(directory: string, ending: string): string[] {
  return readdirSync(directory)
    .filter((name) => name.endsWith(ending))
    .sort();
}

/** Replaces a file as a whole, because a web server may send it at any moment. */
function replace(file: string, content: string | Uint8Array): void {
  writeFileSync(`${file}.new`, content);
  renameSync(`${file}.new`, file);
}

function sha256(bytes: Uint8Array): string {
  return createHash('sha256').update(bytes).digest('hex');
}
