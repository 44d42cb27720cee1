import { cpSync, mkdirSync, rmSync, writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import path from 'node:path';
import { build, type Plugin } from 'esbuild';
import { bundlePage, pageFiles } from '../../src/api/page-routes.ts';
import { readPackage } from './read-package.ts';
import { type Findings, sourceUrls } from './source-urls.ts';
import { type Target, thisTarget } from './target.ts';

export interface BundleOptions {
  /** Root directory of the repository. */
  root: string;
  /** Directory into which the program is written. It is created if it is missing. */
  directory: string;
  /** Kind of machine on which the program will run; the kind of this machine if left out. */
  target?: Target;
  /** Version that the program reports; the version of the package if left out. */
  version?: string;
}

const NATIVE = 'better_sqlite3.node';

/**
 * Writes the program as few files: `main.cjs`, `unit-generator.cjs`, a bundle for each worker, the native SQLite, the
 * page, and what else is read at run time. Node starts CommonJS in half the time of ES modules. Returns the paths of
 * the bundled files.
 */
export async function bundle(options: BundleOptions): Promise<string[]> {
  const { root, directory, target = thisTarget() } = options;
  mkdirSync(directory, { recursive: true });
  const findings: Findings = { workers: new Map(), data: new Map(), packages: new Set() };
  const inputs = new Set<string>();
  const make = async (source: string, output: string) => {
    const result = await build({
      entryPoints: [source],
      absWorkingDir: root,
      outfile: path.join(directory, output),
      bundle: true,
      platform: 'node',
      target: 'node24',
      format: 'cjs',
      minifySyntax: true,
      minifyWhitespace: true,
      banner: { js: `const bundleUrl = require('node:url').pathToFileURL(__filename).href;` },
      define: { 'import.meta.url': 'bundleUrl' },
      legalComments: 'none',
      logLevel: 'warning',
      metafile: true,
      plugins: [nativeSqlite(root, target), sourceUrls({ root, findings })],
    });
    for (const input of Object.keys(result.metafile.inputs)) inputs.add(path.resolve(root, input));
  };
  await make(path.join(root, 'src/cli/main.ts'), 'main.cjs');
  await make(path.join(root, 'src/config/unit-generator.ts'), 'unit-generator.cjs');
  const done = new Set<string>();
  for (const [source, output] of findings.workers) {
    if (!done.has(source)) await make(source, output);
    done.add(source);
  }
  for (const name of findings.packages) {
    await make(createRequire(path.join(root, 'package.json')).resolve(name), `node_modules/${name}/index.js`);
  }
  for (const [source, place] of findings.data) {
    cpSync(source, path.join(directory, place), { recursive: true, filter: (file) => !file.endsWith('.ts') });
  }
  // The bundled page replaces its sources, which were copied with the other data.
  rmSync(path.join(directory, 'page'), { recursive: true });
  mkdirSync(path.join(directory, 'page'));
  for (const [name, content] of await pageFiles()) {
    writeFileSync(path.join(directory, 'page', name), content);
  }
  for (const input of (await bundlePage()).inputs) inputs.add(path.resolve(input));
  cpSync(
    path.join(root, `node_modules/better-sqlite3/prebuilds/${target.platform}.node`),
    path.join(directory, NATIVE),
  );
  cpSync(path.join(import.meta.dirname, 'start.cjs'), path.join(directory, 'start.cjs'));
  writeFileSync(path.join(directory, 'package.json'), packageJson(options));
  return [...inputs].sort();
}

function packageJson({ root, version }: BundleOptions): string {
  const facts = readPackage(root);
  return `${JSON.stringify({ name: facts.name, version: version ?? facts.version, type: 'commonjs' }, null, 2)}\n`;
}

/**
 * Returns a plugin that lets better-sqlite3 load its binary from beside the bundles. It uses the entry file for the
 * target platform, because the usual one searches for the binary only in places that a checkout has.
 */
function nativeSqlite(root: string, { platform }: Target): Plugin {
  const entry = path.join(root, `node_modules/better-sqlite3/lib/${platform}.js`);
  return {
    name: 'native-sqlite',
    setup(build) {
      build.onResolve({ filter: /^better-sqlite3$/ }, () => ({ path: entry }));
      build.onResolve({ filter: /\.node$/ }, () => ({ path: `./${NATIVE}`, external: true }));
    },
  };
}
