import { readdirSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { describe, expect, it } from 'vitest';

const TEST = import.meta.dirname;
const SRC = path.resolve(TEST, '../src');

/** Slices from the bottom to the top. A slice may import itself and the slices before it in this list. */
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
  'conform',
  'cli',
];
/** Folders outside the slices, with the slices that they may import. */
const BESIDE: Record<string, string[]> = {
  sandbox: ['core', 'platform'],
  page: ['core', 'platform', 'catalog', 'orders', 'outbox', 'health', 'api'],
};
/** Files of rules, which use no database, no network, no clock and no Node module that does I/O. */
const RULES = [
  'core/alarm.ts',
  'core/errors.ts',
  'core/time.ts',
  'core/values.ts',
  'core/schema.ts',
  'core/json-records.ts',
  'core/folding.ts',
  'platform/platform.ts',
  'catalog/product.ts',
  'catalog/cross-branch.ts',
  'orders/merging/order.ts',
  'orders/merging/mirrored-order.ts',
  'orders/merging/merge.ts',
  'orders/merging/field-aliases.ts',
  'orders/merging/field-values.ts',
  'orders/merging/order-reader.ts',
  'orders/receiving/order-lists.ts',
  'orders/receiving/poll-window.ts',
  'outbox/intake/change.ts',
  'outbox/intake/same-article.ts',
  'outbox/intake/csv.ts',
  'outbox/intake/change-file.ts',
  'outbox/intake/resolve.ts',
  'outbox/sending/call-plan.ts',
  'outbox/sending/differences.ts',
  'outbox/intake/guards.ts',
  'outbox/ledger/hold-back.ts',
  'outbox/ledger/stock-rule.ts',
  'hooks/hook.ts',
  'hooks/preparation.ts',
  'health/facts.ts',
  'health/hub-findings.ts',
  'health/looks.ts',
  'health/pos-silence.ts',
  'health/retention-rules.ts',
  'health/findings.ts',
  'health/speech.ts',
  'health/verdict.ts',
  'support/diff/differences.ts',
];
/**
 * Code that the page shares with the daemon: the words of findings, and how texts are compared in a search. From all
 * other files, the page imports only types.
 */
const SENT_TO_BROWSERS = ['core/folding.ts', 'health/speech.ts'];
/**
 * A room is a folder of src/, and its doors are the files that other rooms may import. `core`, `db` and `config` are
 * libraries, whose files may all be imported.
 */
const DOORS: Record<string, readonly string[]> = {
  platform: ['client', 'platform', 'schemas', 'tokens', 'transport', 'webhook-registration'],
  catalog: ['catalog-store', 'product', 'sweep', 'sweep-loop', 'unmapped'],
  orders: [
    'merging/anonymize',
    'merging/field-values',
    'merging/held-callbacks',
    'merging/incomplete-orders',
    'merging/listed-orders',
    'merging/mirrored-order',
    'merging/order',
    'merging/person',
    'reading/mirror',
    'reading/order-queries',
    'receiving/callback-log',
    'receiving/callback-server',
    'receiving/order-lists',
    'receiving/order-loop',
    'receiving/order-poll',
    'receiving/poll-window',
    'receiving/quarantine',
    'receiving/replay',
  ],
  outbox: [
    'intake/change',
    'intake/change-file',
    'intake/full-inventory-plan',
    'intake/guards',
    'intake/inbox-loop',
    'intake/inbox-process',
    'intake/inbox-protocol',
    'intake/pos-signs',
    'intake/same-article',
    'ledger/hold-back',
    'ledger/stock-differences',
    'ledger/stock-ledger',
    'sending/maintenance',
    'sending/outbox',
    'sending/outbox-queries',
    'sending/push-loop',
    'sending/repositories',
    'sending/undo',
  ],
  hooks: [
    ...['deliveries', 'hook', 'hook-loop', 'hook-cursors', 'hook-rows', 'hook-test', 'prepared-orders'],
    'receivers',
  ],
  health: [
    ...[
      'metrics-format',
      'alarm-receivers',
      'counters',
      'explain',
      'facts',
      'findings',
      'health-store',
      'heartbeat',
      'notifier',
      'pos-silence',
      'retention',
      'speech',
    ],
    'verdict',
  ],
  link: [
    ...['assign', 'branch', 'branch-status', 'hub', 'link', 'link-freshness', 'nats'],
    'server-config',
    ...['server-file', 'server-look', 'ways'],
  ],
  app: [
    'installation',
    'inventory',
    'mirror',
    'services',
    'read-only-services',
    'outbox-sender',
    'storage',
    'state',
  ],
  api: [
    ...['local-api', 'metrics', 'page-routes', 'change-schemas', 'schemas', 'server', 'status-routes'],
    'status-schemas',
  ],
  support: [
    ...['alarm-test', 'archive', 'backup', 'before-upgrade', 'bundle/bundle', 'diff/diff', 'doctor/check'],
    ...[
      'backup-files',
      'damaged-mirror',
      'diff/differences',
      'differential',
      'doctor/doctor',
      'encryption',
      'recovery-phrase',
      'restore',
      'webhook-probe',
    ],
  ],
  daemon: ['backups', 'daemon', 'link-loops', 'service', 'support-answers'],
  demo: ['branches-demo', 'demo', 'sandbox-platform'],
  conform: ['conform', 'report'],
  sandbox: ['control', 'draws', 'server', 'settings', 'traffic'],
  cli: [],
  page: ['main'],
};
/** Files that other rooms import although they are no door. The list may only become shorter. */
const BESIDE_THE_DOOR = [
  ...['api/access', 'api/api'],
  ...['catalog/branch-catalog', 'catalog/product-rows'],
  ...['health/health-checks', 'health/notification-policy'],
  ...['link/branch-upload', 'link/hub-feed', 'link/hub-state'],
  ...[
    'orders/merging/branch-feed',
    'orders/merging/customer',
    'orders/reading/mirror-file',
    'orders/merging/order-reader',
    'orders/merging/order-rows',
  ],
  ...['orders/merging/placed-lines', 'orders/merging/field-aliases'],
  ...[
    'outbox/sending/call-plan',
    'outbox/intake/csv',
    'outbox/ledger/holding-branches',
    'outbox/intake/inbox',
    'outbox/intake/intake',
  ],
  ...['outbox/sending/product-reads', 'outbox/sending/queue'],
  'platform/rate-budget',
  'sandbox/orders',
  ...['support/bundle/redact', 'support/doctor/machine', 'support/doctor/stored'],
];
/**
 * Maximum number of exports that only tests import. Each of them is a rule that could otherwise be tested only through
 * a whole daemon.
 */
const TESTED_ALONE_MAX = 20;

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
  // `config` is read before hooks, health and the link are loaded, so the values that they share with it are in `core`.
  const at = SLICES.indexOf(folder === 'config' ? 'hooks' : folder);
  // The demo, the kit for tills and the command `sandbox` start the sandbox.
  const startsSandbox = ['demo', 'conform', 'cli'].includes(folder);
  return at < 0 ? BESIDE[folder] : [...SLICES.slice(0, at), ...(startsSandbox ? ['sandbox'] : [])];
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

  it('enters each room by its door', () => {
    const roomOf = (file: string) => file.split(path.sep)[0] as string;
    const nameOf = (file: string) => file.replace(/\.ts$/, '');
    const entered = files.flatMap((file) =>
      importsOf(file).filter((target) => target.endsWith('.ts') && roomOf(target) !== roomOf(file)),
    );
    const passedBy = entered.map(nameOf).filter((name) => {
      const door = DOORS[roomOf(name)];
      return door !== undefined && !door.some((part) => `${roomOf(name)}/${part}` === name);
    });
    expect([...new Set(passedBy)].sort()).toEqual([...BESIDE_THE_DOOR].sort());
    const doors = Object.entries(DOORS).flatMap(([room, parts]) => parts.map((part) => `${room}/${part}.ts`));
    expect(doors.filter((door) => !files.includes(door))).toEqual([]);
  });

  it('is tested by its doors: few exports are imported by tests alone', () => {
    const exported = /^export (?:async )?(?:function\*?|class|const|interface|type) (\w+)/gm;
    const imported = new Map<string, Set<string>>();
    const tests = readdirSync(TEST, { recursive: true, encoding: 'utf8' })
      .filter((name) => name.endsWith('.ts'))
      .map((name) => path.join(TEST, name));
    for (const file of [...files.map((name) => path.join(SRC, name)), ...tests]) {
      const who = file.startsWith(SRC) ? 'source' : 'test';
      const names = /\{([^{}]*)\}\s*(?:from|=\s*await import\()\s*'(\.[^']+)'/g;
      for (const [, list = '', target = ''] of readFileSync(file, 'utf8').matchAll(names)) {
        const from = path.relative(SRC, path.resolve(path.dirname(file), target));
        for (const name of list.split(',').map((each) => each.trim().replace(/^type /, ''))) {
          const key = `${from} ${name.split(/ as |:/)[0]?.trim()}`;
          imported.set(key, (imported.get(key) ?? new Set()).add(who));
        }
      }
    }
    const alone = files.flatMap((file) =>
      [...textOf(file).matchAll(exported)]
        .map(([, name]) => `${file} ${name}`)
        .filter((key) => imported.get(key)?.has('test') && !imported.get(key)?.has('source')),
    );
    expect(alone.length, alone.join('\n')).toBeLessThanOrEqual(TESTED_ALONE_MAX);
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
});
