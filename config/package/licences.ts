import { existsSync, readdirSync, readFileSync } from 'node:fs';
import path from 'node:path';

export interface LicencesOptions {
  root: string;
  /** Files that were bundled. */
  inputs: readonly string[];
}

const NODE_LICENCE = `Node.js is distributed under the MIT licence, and parts of it under further licences:
https://github.com/nodejs/node/blob/main/LICENSE`;

/** The licence of tillsync and those of everything that is shipped with it. */
export function licences({ root, inputs }: LicencesOptions): string {
  const packages = new Set(['node_modules/better-sqlite3']);
  for (const input of inputs) {
    const match = /^.*\/(node_modules\/(?:@[^/]+\/)?[^/]+)\//.exec(input);
    if (match?.[1]) packages.add(match[1]);
  }
  const parts = [...packages].sort().map((directory) => {
    const { name, version, license } = JSON.parse(
      readFileSync(path.join(root, directory, 'package.json'), 'utf8'),
    ) as { name: string; version: string; license?: string };
    return `${name} ${version} (${license ?? 'see below'})\n\n${licenceText(path.join(root, directory))}`;
  });
  const own = readFileSync(path.join(root, 'LICENSE'), 'utf8').trim();
  const line = `\n\n${'-'.repeat(72)}\n\n`;
  return `${['tillsync', own].join('\n\n')}${line}${[NODE_LICENCE, ...parts].join(line)}\n`;
}

function licenceText(directory: string): string {
  if (!existsSync(directory)) return '';
  const name = readdirSync(directory).find((each) => /^licen[cs]e/i.test(each));
  return name ? readFileSync(path.join(directory, name), 'utf8').trim() : '';
}
