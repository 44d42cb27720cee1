import type { OnResolveArgs, Plugin } from 'esbuild';

/** What is needed by few starts or by none: loaded at its first use, by name of the importing package. */
const LAZY: readonly { wanted: RegExp; importer: RegExp; as: keyof typeof STUB }[] = [
  { wanted: /^semver$/, importer: /\/fastify\/lib\//, as: 'namespace' },
  { wanted: /^node:http(2|s)$/, importer: /\/fastify\/lib\//, as: 'namespace' },
  { wanted: /^node:perf_hooks$/, importer: /\/fastify\/lib\//, as: 'performance' },
  { wanted: /^(node:)?child_process$/, importer: /\/(commander|node-cron)\//, as: 'namespace' },
  { wanted: /\/from-json-schema\.js$/, importer: /\/zod\/v4\/classic\//, as: 'namespace' },
  { wanted: /\/client-h2\.js$/, importer: /\/undici\/lib\//, as: 'function' },
  { wanted: /\/transport$/, importer: /\/pino\/(lib\/)?[a-z]+\.js$/, as: 'function' },
];

/**
 * What tillsync never uses: JSON Schema in routes, since zod reads what arrives; undici's second parser, which is
 * an experiment. Its first use throws, in the stub's place.
 */
const LEFT_OUT: readonly { wanted: RegExp; importer: RegExp }[] = [
  { wanted: /^@fastify\/(ajv|fast-json-stringify)-compiler$/, importer: /\/fastify\/lib\// },
  { wanted: /\/milo\/(no-)?simd\.js$/, importer: /\/undici\/lib\// },
  // Judges the regular expressions of routes, of which there are none.
  { wanted: /^safe-regex2$/, importer: /\/find-my-way\// },
];

const STUB = {
  namespace: (load: string) =>
    `module.exports = new Proxy({}, { get: (_, name) => ${load}[name], has: (_, name) => name in ${load} });`,
  // The one thing that is wanted of it is there without it.
  performance: () => 'module.exports = { performance };',
  function: (load: string) => `module.exports = (...values) => ${load}(...values);`,
};

/** Fastify asks for its compilers at once and uses them with the first schema, so the inner call throws. */
const absent = (name: string) =>
  `module.exports = () => () => { throw new Error(${JSON.stringify(`${name} is not part of the packaged program`)}); };
  module.exports.setup = module.exports();`;

/** Leaves out of the start, or out of the bundle, what tillsync does not use of its dependencies. */
export function leanPackages(): Plugin {
  return {
    name: 'lean-packages',
    setup(build) {
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
  const applies = (rule: { wanted: RegExp; importer: RegExp }) =>
    rule.wanted.test(wanted) && rule.importer.test(importer);
  const lazy = LAZY.find(applies);
  if (!lazy && !LEFT_OUT.some(applies)) return undefined;
  const contents = lazy ? STUB[lazy.as](`require(${JSON.stringify(wanted)})`) : absent(wanted);
  return { path: `${wanted} of ${importer}`, namespace: 'lazy', pluginData: { contents, resolveDir } };
}
