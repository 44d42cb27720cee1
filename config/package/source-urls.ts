import { existsSync, readFileSync, statSync } from 'node:fs';
import path from 'node:path';
import type { Plugin } from 'esbuild';

/** Files that a bundle needs beside itself. They are found in the sources while these are bundled. */
export interface Findings {
  /** Names of the bundles of modules that run as workers, by source file. */
  workers: Map<string, string>;
  /** Files and directories that are read at run time: their places in the directory of the program, by source path. */
  data: Map<string, string>;
  /** Packages that are loaded by name at run time, so that each needs a place in `node_modules`. */
  packages: Set<string>;
}

export interface SourceUrlsOptions {
  /** Root directory of the repository. */
  root: string;
  findings: Findings;
}

const URL_OF_SOURCE = /new URL\(\s*'(\.[^']*)',\s*import\.meta\.url\s*\)/g;
const LOADED_BY_NAME = /createRequire\(import\.meta\.url\)\('([^']+)'\)/g;

/**
 * Returns a plugin that replaces each address that is relative to a source file by the place of the addressed file in
 * the package, because a bundle is elsewhere. A use of `import.meta` that is not understood ends the build.
 */
export function sourceUrls({ root, findings }: SourceUrlsOptions): Plugin {
  return {
    name: 'source-urls',
    setup(build) {
      build.onLoad({ filter: /\/src\/.*\.ts$/ }, ({ path: file }) => {
        const text = readFileSync(file, 'utf8');
        const contents = text.replaceAll(URL_OF_SOURCE, (_all, address: string) => {
          const place = placeOf(path.resolve(path.dirname(file), address), address, { root, findings });
          return `new URL('./${place}', import.meta.url)`;
        });
        for (const [, name] of text.matchAll(LOADED_BY_NAME)) if (name) findings.packages.add(name);
        const understood = contents.replaceAll(LOADED_BY_NAME, '').replaceAll(URL_OF_SOURCE, '');
        if (understood.includes('import.meta')) {
          return { errors: [{ text: `${file} uses import.meta in a way that cannot be packaged` }] };
        }
        return { contents, loader: 'ts' };
      });
    },
  };
}

function placeOf(source: string, address: string, { root, findings }: SourceUrlsOptions): string {
  if (!existsSync(source)) throw new Error(`${source} is not there`);
  if (source.endsWith('.ts')) {
    const bundle = `${path.basename(source, '.ts')}.cjs`;
    const twin = [...findings.workers].find(([other, name]) => name === bundle && other !== source);
    if (twin) throw new Error(`${source} and ${twin[0]} would both become ${bundle}`);
    findings.workers.set(source, bundle);
    return bundle;
  }
  const place = path.relative(path.join(root, 'src'), source).replace(/^(\.\.\/)+/, '');
  findings.data.set(source, place);
  // The slash at the end of a directory's address is kept, so that names are resolved inside the directory.
  return statSync(source).isDirectory() && address.endsWith('/') ? `${place}/` : place;
}
