import path from 'node:path';
import type { OnResolveArgs, Plugin } from 'esbuild';

/** What is needed by few starts or by none: loaded at its first use, by name of the importing package. */
const LAZY: readonly { wanted: RegExp; importer: RegExp; as: 'namespace' | 'function' | 'factory' }[] = [
  { wanted: /^semver$/, importer: /\/fastify\/lib\//, as: 'namespace' },
  { wanted: /^node:http2$/, importer: /\/fastify\/lib\//, as: 'namespace' },
  { wanted: /\/client-h2\.js$/, importer: /\/undici\/lib\//, as: 'function' },
  { wanted: /\/transport$/, importer: /\/pino\/(lib\/)?[a-z]+\.js$/, as: 'function' },
  { wanted: /^@fastify\/ajv-compiler$/, importer: /\/fastify\/lib\//, as: 'factory' },
  { wanted: /^@fastify\/fast-json-stringify-compiler$/, importer: /\/fastify\/lib\//, as: 'factory' },
];

const STUB = {
  namespace: (load: string) =>
    `module.exports = new Proxy({}, { get: (_, name) => ${load}[name], has: (_, name) => name in ${load} });`,
  function: (load: string) => `module.exports = (...values) => ${load}(...values);`,
  // Called at once for what it will build later.
  factory: (load: string) =>
    `module.exports = (...first) => { let made; return (...values) => (made ??= ${load}(...first))(...values); };`,
};

/** Leaves out of the start, or out of the bundle, what tillsync does not use of its dependencies. */
export function leanPackages(): Plugin {
  return {
    name: 'lean-packages',
    setup(build) {
      build.onResolve({ filter: /^undici$/ }, () => ({
        path: path.join(import.meta.dirname, 'undici-part.mjs'),
      }));
      // Messages of faults in every language; tillsync words its own.
      build.onResolve({ filter: /\/locales\/index\.js$/ }, ({ importer, resolveDir }) =>
        importer.includes('/zod/')
          ? { path: resolveDir, namespace: 'english', pluginData: resolveDir }
          : undefined,
      );
      build.onLoad({ filter: /.*/, namespace: 'english' }, ({ pluginData }) => ({
        contents: "export { default as en } from '../locales/en.js';",
        resolveDir: String(pluginData),
      }));
      build.onResolve({ filter: /./ }, (args) => lazily(args));
      build.onLoad({ filter: /.*/, namespace: 'lazy' }, ({ pluginData }) => pluginData);
    },
  };
}

function lazily({ path: wanted, importer, resolveDir, namespace }: OnResolveArgs) {
  // The stub itself gets the real one.
  if (namespace === 'lazy') return undefined;
  const rule = LAZY.find((each) => each.wanted.test(wanted) && each.importer.test(importer));
  if (!rule) return undefined;
  const contents = STUB[rule.as](`require(${JSON.stringify(wanted)})`);
  return { path: `${wanted} of ${importer}`, namespace: 'lazy', pluginData: { contents, resolveDir } };
}
