import { cpSync, mkdirSync, rmSync, writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import path from 'node:path';
import { build, type Plugin } from 'esbuild';
import { bundlePage, pageFiles } from '../../src/api/page-routes.ts';
import { readPackage } from './read-package.ts';
import { type Findings, sourceUrls } from './source-urls.ts';
import { type Target, thisTarget } from './target.ts';

export interface BundleOptions {
  /** The repository. */
  root: string;
  /** Where the program goes; made when missing. */
  directory: string;
  /** The machine that it shall run on; without it, this one. */
  target?: Target;
  /** What the program says its version is; without it, that of the package. */
  version?: string;
}

const NATIVE = 'better_sqlite3.node';

/**
 * The program as few files: `main.cjs`, one bundle for each worker, the native SQLite, and what is read at run
 * time, the status page as a browser takes it. CommonJS, because Node starts it in half the time of ES modules. Gives
 * the files that were bundled.
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
  // The page is bundled too, in place of its sources.
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
 * better-sqlite3 looks for its binary in places that only a checkout has; its entry for one platform names the
 * file, which is left beside the bundles.
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
