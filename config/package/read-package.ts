import { readFileSync } from 'node:fs';
import path from 'node:path';

/** What package.json says of tillsync. */
export interface PackageFacts {
  name: string;
  version: string;
  description: string;
}

export function readPackage(root: string): PackageFacts {
  return JSON.parse(readFileSync(path.join(root, 'package.json'), 'utf8')) as PackageFacts;
}
