import { readdirSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { describe, expect, it } from 'vitest';

const SRC = path.resolve(import.meta.dirname, '../src');

/** Slices from the bottom to the top: a slice imports itself and those before it. */
const SLICES = [
  'core',
  'db',
  'platform',
  'catalog',
  'orders',
  'outbox',
  'hooks',
  'health',
  'link',
  'config',
  'app',
  'api',
  'support',
  'daemon',
  'demo',
  'cli',
];
/** Outside the slices: the sandbox, which imports only the platform's schemas, and the page in the browser. */
const BESIDE: Record<string, string[]> = {
  sandbox: ['core', 'platform'],
  page: ['core', 'platform', 'catalog', 'orders', 'outbox', 'health', 'api'],
};
/** Files of rules: without database, network, clock, and Node modules that do I/O. */
const RULES = [
  'core/alarm.ts',
  'core/errors.ts',
  'core/time.ts',
  'core/values.ts',
  'core/schema.ts',
  'core/json-records.ts',
  'platform/platform.ts',
  'catalog/product.ts',
  'catalog/cover.ts',
  'orders/order.ts',
  'orders/mirrored-order.ts',
  'orders/merge.ts',
  'orders/spellings.ts',
  'orders/order-reader.ts',
  'orders/poll-window.ts',
  'outbox/change.ts',
  'outbox/csv.ts',
  'outbox/change-file.ts',
  'outbox/resolve.ts',
  'outbox/batch.ts',
  'outbox/differences.ts',
  'outbox/guards.ts',
  'outbox/hold-back.ts',
  'hooks/hook.ts',
  'health/facts.ts',
  'health/retention-rules.ts',
  'health/findings.ts',
  'health/speech.ts',
  'health/verdict.ts',
];
/** What the page shares with the daemon: the words of findings. Of everything else it imports only types. */
const SENT_TO_BROWSERS = ['health/speech.ts'];
const LINES_MAX = 600;
const FILES_MAX = 275;

const files = readdirSync(SRC, { recursive: true, encoding: 'utf8' })
  .filter((name) => name.endsWith('.ts'))
  .sort();
const textOf = (file: string) => readFileSync(path.join(SRC, file), 'utf8');

function importsOf(file: string): string[] {
  return [...textOf(file).matchAll(/(?:from|import|import\(|new URL\()\s*'(\.[^']+)'/g)]
    .map((match) => path.relative(SRC, path.resolve(SRC, path.dirname(file), match[1] as string)))
    .filter((target) => !['../package.json', '../config/tillsync.sample.toml'].includes(target));
}

function mayImport(folder: string): string[] | undefined {
  // A configuration is read before hooks, health and the link are loaded: their words for it are in core.
  const at = SLICES.indexOf(folder === 'config' ? 'hooks' : folder);
  // The demo and the command `sandbox` start the sandbox.
  return at < 0
    ? BESIDE[folder]
    : [...SLICES.slice(0, at), ...(folder === 'demo' || folder === 'cli' ? ['sandbox'] : [])];
}

describe('the house', () => {
  it.each(files)('%s imports only downwards', (file) => {
    const folder = file.split(path.sep)[0] as string;
    const allowed = mayImport(folder);
    expect(allowed, `no rule for the folder ${folder}`).toBeDefined();
    const folders = importsOf(file).map((target) => target.split(path.sep)[0] as string);
    const isPageServer = file === 'api/page-routes.ts';
    expect(
      folders.filter(
        (other) => other !== folder && !allowed?.includes(other) && !(isPageServer && other === 'page'),
      ),
    ).toEqual([]);
  });

  it('sends no code of the daemon to browsers: the page knows only types, and the words of findings', () => {
    for (const file of files.filter((name) => name.startsWith(`page${path.sep}`))) {
      const others = [...textOf(file).matchAll(/^import (?!type\b)[^;]*?'((?:\.\.\/)+(\w+)\/[^']+)'/gm)];
      expect(
        others.filter(
          ([, target]) =>
            !['page/', ...SENT_TO_BROWSERS].some((sent) =>
              path.relative(SRC, path.resolve(SRC, path.dirname(file), target as string)).startsWith(sent),
            ),
        ),
        file,
      ).toEqual([]);
    }
  });

  it('keeps rules pure: what they import is rules too, a schema or a type', () => {
    for (const file of RULES) {
      expect(files, 'a file of rules is named that is not there').toContain(file);
      const values = [...textOf(file).matchAll(/^import (?!type\b)[^;]*?'([^']+)';$/gm)].map(([, target]) =>
        target?.startsWith('.') ? path.relative(SRC, path.resolve(SRC, path.dirname(file), target)) : target,
      );
      expect(
        values.filter(
          (target) => target !== 'zod' && !target?.endsWith('.json') && !RULES.includes(target as string),
        ),
        file,
      ).toEqual([]);
    }
  });

  it('has no circle of imports', () => {
    const edges = new Map(files.map((file) => [file, importsOf(file)]));
    const done = new Set<string>();
    const visit = (file: string, trail: string[]): void => {
      if (trail.includes(file)) throw new Error(`cycle: ${[...trail, file].join(' -> ')}`);
      if (done.has(file)) return;
      for (const target of edges.get(file) ?? []) visit(target, [...trail, file]);
      done.add(file);
    };
    for (const file of files) visit(file, []);
  });

  it('stays small enough to live in', () => {
    expect(files.length).toBeGreaterThan(10);
    expect(files.length).toBeLessThanOrEqual(FILES_MAX);
    const lines = (file: string) => textOf(file).split('\n').length - 1;
    expect(files.filter((file) => lines(file) > LINES_MAX)).toEqual([]);
  });
});
