import { readdirSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { describe, expect, it } from 'vitest';

const SRC = path.resolve(import.meta.dirname, '../src');

/** Who may import whom, besides its own folder. */
const MAY_IMPORT: Record<string, string[]> = {
  domain: [],
  platform: ['domain'],
  store: ['domain'],
  receiver: ['domain'],
  local: ['domain'],
  sync: ['domain'],
  page: ['domain'],
  sandbox: ['domain', 'platform/schemas'],
  config: ['domain'],
  daemon: ['domain', 'platform', 'store', 'receiver', 'local', 'sync', 'sandbox', 'config', 'page'],
  cli: ['daemon', 'config', 'domain'],
};
const LINES_MAX = 600;

const files = readdirSync(SRC, { recursive: true, encoding: 'utf8' })
  .filter((name) => name.endsWith('.ts'))
  .sort();

function importsOf(file: string): string[] {
  const text = readFileSync(path.join(SRC, file), 'utf8');
  return [...text.matchAll(/(?:from|import|new URL\()\s*'(\.[^']+)'/g)]
    .map((match) => path.relative(SRC, path.resolve(SRC, path.dirname(file), match[1] as string)))
    .filter((target) => target !== '../package.json' && target !== '../config/tillsync.sample.toml');
}

describe('the house', () => {
  it('has files to judge', () => {
    expect(files.length).toBeGreaterThan(10);
  });

  it.each(files)('%s imports only what its folder may', (file) => {
    const folder = file.split(path.sep)[0] as string;
    const allowed = MAY_IMPORT[folder];
    expect(allowed, `no rule for the folder ${folder}`).toBeDefined();
    const forbidden = importsOf(file).filter(
      (target) =>
        !target.startsWith(`${folder}/`) && !allowed?.some((place) => `${target}/`.startsWith(`${place}/`)),
    );
    expect(forbidden).toEqual([]);
  });

  it('sends no code of the daemon to browsers: the page knows only types of the domain', () => {
    for (const file of files.filter((name) => name.startsWith(`page${path.sep}`))) {
      const text = readFileSync(path.join(SRC, file), 'utf8');
      expect(text.match(/^import (?!type\b).*\/domain\/.*$/gm) ?? [], file).toEqual([]);
    }
  });

  it('keeps its arrows acyclic', () => {
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

  it('keeps files small', () => {
    const counts = files.map((file) => readFileSync(path.join(SRC, file), 'utf8').split('\n').length - 1);
    const tooLong = files.filter((_, i) => (counts[i] as number) > LINES_MAX);
    expect(tooLong).toEqual([]);
    const median = counts.toSorted((a, b) => a - b)[Math.floor(counts.length / 2)] as number;
    expect(median).toBeLessThanOrEqual(130);
  });
});
