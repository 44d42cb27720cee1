import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { pathToFileURL } from 'node:url';
import { gzipSync } from 'node:zlib';
import { expect, it, onTestFinished } from 'vitest';
import { bundlePage, pageFiles } from '../../src/api/page-routes.ts';
import { FINDINGS } from '../../src/health/findings.ts';

const FIRST_PAINT_MAX_BYTES = 100_000;

it('makes the page from its sources, small and whole', async () => {
  const files = await pageFiles();
  const icons = ['green', 'amber', 'red'].flatMap((level) => [`icon-${level}.svg`, `icon-${level}-new.svg`]);
  const help = ['help.html', 'help.es.html', 'help.css'];
  const expected = [...icons, 'icon.svg', 'index.html', 'main.css', 'main.js', ...help];
  expect([...files.keys()].sort()).toEqual(expected.sort());
  const text = (name: string) => Buffer.from(files.get(name) ?? '').toString();
  const named = [...text('index.html').matchAll(/(?:src|href)="\/page\/([^"]+)"/g)].map(([, name]) => name);
  expect(named.sort()).toEqual(['icon.svg', 'main.css', 'main.js']);
  expect(text('main.css')).not.toContain('@import');
  expect(text('main.js')).not.toMatch(/\bimport\s*[("'{*]|from\s*["']/);
  const addresses = ['index.html', 'main.css', 'main.js'].flatMap(
    (name) => text(name).match(/https?:\/\/[^"'`\s)]+/g) ?? [],
  );
  expect(addresses.filter((address) => !address.startsWith('http://www.w3.org/'))).toEqual([]);
  const first = [...files].filter(([name]) => !name.startsWith('help.'));
  const sent = first.reduce((sum, [, content]) => sum + gzipSync(content).length, 0);
  expect(sent).toBeLessThan(FIRST_PAINT_MAX_BYTES);
});

it.each([
  ['help.html', 'help.es.html'],
  ['help.es.html', 'help.html'],
])('has a place for each finding in %s, and leads nowhere that is not served', async (name, other) => {
  const help = Buffer.from((await pageFiles()).get(name) ?? '').toString();
  const places = new Set([...help.matchAll(/ id="([^"]+)"/g)].map(([, id]) => id));
  expect(Object.keys(FINDINGS).filter((code) => !places.has(code))).toEqual([]);
  const links = [...help.matchAll(/<a href="([^"]+)"/g)].map(([, href = '']) => href);
  expect(links.length).toBeGreaterThan(3);
  expect(links.filter((href) => !places.has(href.slice(1)))).toEqual([other]);
});

it('knows what went into it, for the licences', async () => {
  const { inputs } = await bundlePage();
  expect(inputs.some((input) => input.endsWith('node_modules/lit-html/lit-html.js'))).toBe(true);
  expect(inputs.filter((input) => /\/src\/(?!page\/)/.test(input))).toEqual([]);
});

it('takes a page that was made before as it is', async () => {
  const directory = mkdtempSync(path.join(tmpdir(), 'tillsync-page-'));
  onTestFinished(() => rmSync(directory, { recursive: true, force: true }));
  for (const name of ['index.html', 'main.js', 'main.css', 'main.ts', 'tsconfig.json']) {
    writeFileSync(path.join(directory, name), name);
  }
  const files = await pageFiles(pathToFileURL(`${directory}/`));
  expect([...files].map(([name, content]) => [name, Buffer.from(content).toString()])).toEqual([
    ['index.html', 'index.html'],
    ['main.css', 'main.css'],
    ['main.js', 'main.js'],
  ]);
});
