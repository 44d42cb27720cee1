import { existsSync, readdirSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { nodeDirectory, type Target } from './target.ts';

/** An npm package that is shipped with tillsync, as its own files describe it. */
export interface ShippedPackage {
  name: string;
  version: string;
  /** SPDX expression. */
  license: string;
  licenceText: string;
}

/** Directory with the licence texts for packages that come without one. The files have the names of the packages. */
const OWN_TEXTS = path.join(import.meta.dirname, 'licences');
/** Packages that are compiled into the native SQLite, so that no bundle contains them. */
const COMPILED_IN = ['node_modules/better-sqlite3', 'node_modules/node-addon-api'];

/**
 * Returns the packages of the bundled files (`inputs`), of the native SQLite and of Node. Throws if a licence text is
 * missing.
 */
export function shippedPackages(root: string, target: Target, inputs: readonly string[]): ShippedPackage[] {
  const compiledIn = COMPILED_IN.map((place) => path.join(root, place));
  const directories = new Set([...compiledIn, nodeDirectory(root, target)]);
  for (const input of inputs) {
    const file = input.slice(Math.max(0, input.lastIndexOf(`${root}/`)));
    const match = /^(.*\/node_modules\/(?:@[^/]+\/)?[^/]+)\//.exec(file);
    if (match?.[1]) directories.add(match[1]);
  }
  return [...directories].map(shippedPackage).sort((a, b) => (a.name < b.name ? -1 : 1));
}

function shippedPackage(directory: string): ShippedPackage {
  const facts = JSON.parse(readFileSync(path.join(directory, 'package.json'), 'utf8')) as {
    name: string;
    version: string;
    license?: string;
  };
  const { name, version, license } = facts;
  const licenceText = textsIn(directory) || ownText(name);
  if (!license || !licenceText) {
    const wanted = path.join(OWN_TEXTS, `${name}.txt`);
    throw new Error(`${name} ${version} comes without its licence. Put the text into ${wanted}.`);
  }
  return { name, version, license, licenceText };
}

/** Returns all licences and notices in a directory, because some packages have several. */
function textsIn(directory: string): string {
  return readdirSync(directory)
    .filter((name) => /^(licen[cs]e|copying|notice)/i.test(name))
    .sort()
    .map((name) => readFileSync(path.join(directory, name), 'utf8').trim())
    .join('\n\n');
}

function ownText(name: string): string {
  const file = path.join(OWN_TEXTS, `${name}.txt`);
  return existsSync(file) ? readFileSync(file, 'utf8').trim() : '';
}

/** Returns the licence of tillsync, followed by the licences of everything that is shipped with it. */
export function licences(root: string, packages: readonly ShippedPackage[]): string {
  const own = readFileSync(path.join(root, 'LICENSE'), 'utf8').trim();
  const parts = packages.map(
    ({ name, version, license, licenceText }) => `${name} ${version} (${license})\n\n${licenceText}`,
  );
  return `${[`tillsync\n\n${own}`, ...parts].join(`\n\n${'-'.repeat(72)}\n\n`)}\n`;
}
