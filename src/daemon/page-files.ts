import { existsSync } from 'node:fs';
import { readdir, readFile } from 'node:fs/promises';
import { fileURLToPath } from 'node:url';
import { TillsyncError } from '../domain/errors.ts';

const DIRECTORY = new URL('../page/', import.meta.url);
/** Parts that a browser cannot use as they are written; each becomes one file. */
const BUNDLED = ['main.ts', 'main.css'];

export interface PageBundle {
  /** `main.js` and `main.css`. */
  files: Map<string, Uint8Array>;
  /** Paths of the sources, those of packages included. */
  inputs: string[];
}

/** The status page's files by name: as the package carries them, or in a checkout made from their sources. */
export async function pageFiles(directory = DIRECTORY): Promise<Map<string, Uint8Array>> {
  const files = new Map<string, Uint8Array>();
  for (const name of await readdir(directory)) {
    if (/\.(html|css|js|svg)$/.test(name)) files.set(name, await readFile(new URL(name, directory)));
  }
  if (files.has('main.js')) return files;
  for (const [name, content] of (await bundlePage()).files) files.set(name, content);
  return files;
}

/** Makes the page's script and style from their sources. Throws `not-found` where the tool for it is missing. */
export async function bundlePage(): Promise<PageBundle> {
  const esbuild = await bundler();
  try {
    const { outputFiles, metafile } = await esbuild.build({
      entryPoints: BUNDLED.map((name) => fileURLToPath(new URL(name, DIRECTORY))),
      outdir: '/',
      bundle: true,
      minify: true,
      write: false,
      metafile: true,
      format: 'esm',
      target: ['chrome100', 'firefox100', 'safari15'],
      legalComments: 'none',
      logLevel: 'silent',
      external: ['/page/*'],
    });
    const files = outputFiles.map(({ path, contents }) => [path.replace(/^.*[\\/]/, ''), contents] as const);
    return { files: new Map(files), inputs: Object.keys(metafile.inputs) };
  } finally {
    // Its helper process would stay otherwise.
    await esbuild.stop();
  }
}

/** Loaded by a name that is not written out: the package, which needs none, then does not carry it. */
async function bundler(): Promise<typeof import('esbuild')> {
  const name: string = ['es', 'build'].join('');
  try {
    return await import(name);
  } catch (cause) {
    const message = existsSync(new URL('main.ts', DIRECTORY))
      ? 'The status page cannot be made from its sources.'
      : 'The status page is not installed.';
    throw new TillsyncError('not-found', message, {
      hint: 'In a checkout run npm ci; otherwise install tillsync again.',
      cause,
    });
  }
}
