import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import path from 'node:path';
import type { Plugin } from 'esbuild';

/** What the first call or the first request needs, and a start does not: by what an import says. */
const LATE: readonly { wanted: RegExp; importer: RegExp; file?: string }[] = [
  { wanted: /^undici$/, importer: /\/src\//, file: path.join(import.meta.dirname, 'undici-part.mjs') },
  { wanted: /\/schemas\/[a-z-]+\.ts$/, importer: /\/src\/(local|platform|sandbox)\// },
  {
    wanted: /^node:(child_process|crypto|fs\/promises|perf_hooks|readline|zlib)$/,
    importer: /\/(src|node-cron)\//,
  },
];

const BUILT_IN = /^node:/;

const EXPORT = /^export (?:const|function) (\w+)/gm;
const EXPORT_LIST = /^export \{([^}]*)\};$/gm;

/** Runs modules when one of their exports is first used, rather than when they are imported. */
export function lateModules(): Plugin {
  return {
    name: 'late-modules',
    setup(build) {
      build.onResolve({ filter: /./ }, ({ path: wanted, importer, namespace, resolveDir }) => {
        if (namespace === 'late') return undefined;
        const rule = LATE.find((late) => late.wanted.test(wanted) && late.importer.test(importer));
        if (!rule) return undefined;
        const file = rule.file ?? (BUILT_IN.test(wanted) ? wanted : path.resolve(resolveDir, wanted));
        return { path: `${file} when used`, namespace: 'late', pluginData: file };
      });
      build.onLoad({ filter: /./, namespace: 'late' }, ({ pluginData: file }: { pluginData: string }) => {
        const load = `require(${JSON.stringify(file)})`;
        const getters = exportsOf(file).map((name) => `get ${name}() { return ${load}.${name}; }`);
        return { contents: `module.exports = { ${getters.join(', ')} };`, resolveDir: path.dirname(file) };
      });
    },
  };
}

function exportsOf(file: string): string[] {
  if (BUILT_IN.test(file)) return Object.keys(createRequire(import.meta.url)(file) as object);
  const text = readFileSync(file, 'utf8');
  const listed = [...text.matchAll(EXPORT_LIST)].flatMap(([, names = '']) => names.split(','));
  const declared = [...text.matchAll(EXPORT)].map(([, name = '']) => name);
  return [...declared, ...listed.map((name) => name.trim())].filter((name) => name !== '');
}
