import { execFile } from 'node:child_process';
import { cpSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { promisify } from 'node:util';
import { afterEach, beforeEach, expect, it, onTestFinished } from 'vitest';
import examples from '../../src/api/examples.json' with { type: 'json' };
import { type Exchange, liveExamples } from '../support/api-examples.ts';
import { NODE, openWorkplace, until, type Workplace } from '../support/workplace.ts';

const PARTS = path.resolve(import.meta.dirname, '../support/api-client');

let place: Workplace;
beforeEach(async () => {
  place = await openWorkplace(29);
});
afterEach(() => place.close());

/**
 * Returns the paths of fields that only one of two values has, such as `answer.results.0.line`. Of a list, only the
 * first entry is compared.
 */
function differences(a: unknown, b: unknown, at: string): string[] {
  if (typeof a !== 'object' || typeof b !== 'object' || a === null || b === null) return [];
  if (Array.isArray(a) && Array.isArray(b)) {
    return a.length === 0 || b.length === 0 ? [] : differences(a[0], b[0], `${at}.0`);
  }
  const [one, other] = [a as Record<string, unknown>, b as Record<string, unknown>];
  return [...new Set([...Object.keys(one), ...Object.keys(other)])].flatMap((key) =>
    key in one && key in other ? differences(one[key], other[key], `${at}.${key}`) : [`${at}.${key}`],
  );
}

it('the examples of the document are what a real daemon answers', async () => {
  place.env.TILLSYNC_ALARMS_COMMAND = '["/bin/true"]';
  place.env.TILLSYNC_HOOKS = '[{"name":"printer","command":["/bin/true"]}]';
  const daemon = await place.run();
  const live = await liveExamples(place, daemon.localUrl);
  const shown: Record<string, Partial<Exchange>> = examples;
  const found = Object.entries(live).flatMap(([name, { answer, request }]) => [
    ...(answer === null ? [] : differences(shown[name]?.answer, answer, `${name}.answer`)),
    ...(request === undefined ? [] : differences(shown[name]?.request, request, `${name}.request`)),
  ]);
  expect(Object.keys(live).length).toBeGreaterThan(14);
  expect(found).toEqual([]);
});

it('a client that public tools make from the document compiles, and runs a till on a real daemon', async () => {
  place.env.TILLSYNC_LOCAL_API_KEY = 'the-key-of-all-rights';
  const daemon = await place.run();
  const made = await place.command('key', 'add', 'till-1', '--may', 'orders,ack,stock');
  const key = made.stdout.trim();
  const order = place.sandbox.control.createOrder({ status: 'payment-approved' });
  await until('the order is in the mirror', () => place.mirrorRows().length > 0);
  const headers = { 'x-api-key': key };
  const document = await fetch(`${daemon.localUrl}/v1/openapi.json`, { headers });

  const directory = mkdtempSync(path.join(tmpdir(), 'tillsync-client-'));
  onTestFinished(() => rmSync(directory, { recursive: true, force: true }));
  cpSync(PARTS, directory, { recursive: true });
  writeFileSync(path.join(directory, 'openapi.json'), await document.text());
  // The programs run asynchronously, because the sandbox answers in this process.
  const run = async (program: string, ...words: string[]) =>
    (await promisify(execFile)(program, words, { cwd: directory })).stdout;
  await run('npm', 'ci', '--prefer-offline', '--no-audit', '--no-fund', '--ignore-scripts');
  await run('node_modules/.bin/openapi-typescript', 'openapi.json', '--output', 'api.d.ts');
  // A property whose type is unknown would take anything. The order as received is of no type on purpose.
  const types = readFileSync(path.join(directory, 'api.d.ts'), 'utf8').split('\n');
  const untyped = types.filter(
    (line) => /: .*\bunknown\b(?!")/.test(line) && !/\[\w+: string\]|^\s*\/?\*|unknown:/.test(line),
  );
  expect(untyped.map((line) => line.trim())).toEqual(['payload: unknown;']);
  const strict = ['--noEmit', '--strict', '--skipLibCheck', '--allowImportingTsExtensions'];
  await run('node_modules/.bin/tsc', ...strict, '--module', 'nodenext', '--target', 'esnext', 'till.ts');
  expect(JSON.parse(await run(NODE, 'till.ts', daemon.localUrl, key))).toEqual({
    order: order.internalOrderId,
    outcomes: ['done', 'rejected'],
    acked: ['new', 'unheard'],
    left: 0,
    settled: ['done', 'rejected'],
    misspelt: 'unknown-column',
    forbidden: [403, { error: expect.objectContaining({ code: 'forbidden' }) }],
  });
  expect(daemon.log()).not.toContain(key);
  expect((await place.command('audit', '--json')).stdout).toContain('key.add');
});
