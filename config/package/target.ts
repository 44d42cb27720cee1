import { createHash } from 'node:crypto';
import { readFileSync } from 'node:fs';
import path from 'node:path';

/** The machine that a package is for: the one that builds it. */
export interface Target {
  /** As Node and its packages call it, such as `linux-x64`. */
  platform: string;
  /** As Debian calls it. */
  debian: string;
}

/** `node` is the SHA-256 of `bin/node` in the locked package, so that nothing else gets into shops. */
const TARGETS: Record<string, Target & { node: string }> = {
  x64: {
    platform: 'linux-x64',
    debian: 'amd64',
    node: '7fde7b8afa198da66257f42ee2001d874c7355631e6d1579a5fb5ef1f246df4c',
  },
  arm64: {
    platform: 'linux-arm64',
    debian: 'arm64',
    node: '0f8949d1028f6d61506b2d5bc57e7e6fe893d7b1997509b7847294fc9c616584',
  },
};

export function thisTarget(): Target {
  return factsOf(process.arch);
}

/** Directory of the package that Node comes in, with its licence. */
export function nodeDirectory(root: string): string {
  return path.join(root, `node_modules/node-${thisTarget().platform}`);
}

/** The Node that is shipped; throws when it is not the one that was locked. */
export function shippedNode(root: string): Uint8Array {
  const file = path.join(nodeDirectory(root), 'bin/node');
  const program = readFileSync(file);
  const found = createHash('sha256').update(program).digest('hex');
  const wanted = factsOf(process.arch).node;
  if (found !== wanted) {
    throw new Error(
      `${file} has the SHA-256 ${found}, and not ${wanted} (config/package/target.ts). Run npm ci again.`,
    );
  }
  return program;
}

function factsOf(architecture: string): Target & { node: string } {
  const target = TARGETS[architecture];
  if (!target) throw new Error(`No package can be built for ${architecture}, only on x64 and arm64.`);
  return target;
}
