import { execFileSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { existsSync, mkdirSync, mkdtempSync, readFileSync, renameSync, rmSync } from 'node:fs';
import path from 'node:path';

/** A kind of machine that a package is for. */
export interface Target {
  /** Name of the kind in Node and its packages, such as `linux-x64`. */
  platform: string;
  /** Debian's name of the architecture. */
  debian: string;
  /** SHA-256 of `bin/node` in the locked package, so that no other program is shipped. */
  node: string;
}

export const TARGETS: readonly Target[] = [
  {
    platform: 'linux-x64',
    debian: 'amd64',
    node: '7fde7b8afa198da66257f42ee2001d874c7355631e6d1579a5fb5ef1f246df4c',
  },
  {
    platform: 'linux-arm64',
    debian: 'arm64',
    node: '0f8949d1028f6d61506b2d5bc57e7e6fe893d7b1997509b7847294fc9c616584',
  },
];

/** Returns the target for the machine that builds. */
export function thisTarget(): Target {
  return targetOf(({ platform }) => platform === `linux-${process.arch}`, process.arch);
}

/** Returns the target whose architecture has this name in Debian. */
export function targetFor(architecture: string): Target {
  return targetOf(({ debian }) => debian === architecture, architecture);
}

function targetOf(fits: (target: Target) => boolean, asked: string): Target {
  const target = TARGETS.find(fits);
  if (target) return target;
  const names = TARGETS.map(({ debian }) => debian).join(' and ');
  throw new Error(`No package can be built for ${asked}, only for ${names}.`);
}

/**
 * Returns the directory of the npm package with Node and its licence. npm installs only the package for its own
 * machine. A package for another target is fetched, and is accepted only if package-lock.json locks it.
 */
export function nodeDirectory(root: string, { platform }: Target): string {
  const name = `node-${platform}`;
  const installed = path.join(root, 'node_modules', name);
  if (existsSync(installed)) return installed;
  const lock = JSON.parse(readFileSync(path.join(root, 'package-lock.json'), 'utf8')) as {
    packages: Record<string, { version: string; integrity: string }>;
  };
  const { version, integrity } = lock.packages[`node_modules/${name}`] ?? {};
  const cache = path.join(root, 'node_modules/.cache/tillsync');
  const kept = path.join(cache, `${name}-${version}`);
  if (existsSync(kept)) return kept;
  mkdirSync(cache, { recursive: true });
  const place = mkdtempSync(path.join(cache, 'fetch-'));
  try {
    const wanted = ['--silent', '--pack-destination', place, `${name}@${version}`];
    const file = path.join(place, execFileSync('npm', ['pack', ...wanted], { encoding: 'utf8' }).trim());
    const found = `sha512-${createHash('sha512').update(readFileSync(file)).digest('base64')}`;
    if (found !== integrity)
      throw new Error(`${name} ${version} of the registry is not the one in package-lock.json.`);
    execFileSync('tar', ['-xzf', file, '-C', place, '--no-same-owner']);
    renameSync(path.join(place, 'package'), kept);
  } finally {
    rmSync(place, { recursive: true, force: true });
  }
  return kept;
}

/** Returns the Node program that is shipped. Throws if it is not the locked one. */
export function shippedNode(root: string, target: Target): Uint8Array {
  const file = path.join(nodeDirectory(root, target), 'bin/node');
  const program = readFileSync(file);
  const found = createHash('sha256').update(program).digest('hex');
  if (found !== target.node) {
    throw new Error(
      `${file} has the SHA-256 ${found}, and not ${target.node} (config/package/target.ts). Run npm ci again.`,
    );
  }
  return program;
}
