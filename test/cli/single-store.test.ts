/**
 * Tests src/cli/program.ts, config/package/configuration.ts, src/support/doctor/doctor.ts and src/page/views/page-view.ts: nobody
 * with a single store meets a word of hubs.
 */

import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { nothing } from 'lit-html';
import { afterAll, describe, expect, test } from 'vitest';
import { commandTree, everyCommand } from '../../config/package/command-tree.ts';
import { FINDINGS } from '../../src/health/findings.ts';
import { SPANISH_FINDINGS } from '../../src/health/speech.ts';
import { boardOf, NO_BOARD, NO_BRANCHES, type PageState } from '../../src/page/state.ts';
import { speechOf } from '../../src/page/words/language.ts';
import { freshMirror, freshState } from '../support/fresh-mirror.ts';
import { invoke } from './invoke.ts';

const OF_A_CHAIN = /\bhubs?\b|\bnats|invit|\bchain|tillsync branch|--join|--branches|\bcentral\b/gi;
const wordsOfChain = (text: string) => [...text.matchAll(OF_A_CHAIN)].map(([word]) => word);
const CONFIG = path.join(import.meta.dirname, '../../config');

const directory = mkdtempSync(path.join(tmpdir(), 'tillsync-single-'));
afterAll(() => rmSync(directory, { recursive: true, force: true }));

function configured(name: string, text: string): string {
  const file = path.join(directory, `${name}.toml`);
  writeFileSync(file, text);
  return file;
}

const STORE = '[platform]\nbase_url = "http://127.0.0.1:9"\n[[branches]]\nexternal_id = "B1"\n';
const store = configured('store', STORE);
const hub = configured('hub', `${STORE}[hub]\nnats = "nats://127.0.0.1:4222"\n`);
const branch = configured('branch', '[link]\nhub = "tls://hub.test:4222"\nbranch = "B1"\n');

const helpOf = async (words: readonly string[], config: string) =>
  (await invoke([...words, '--help'], { env: { TILLSYNC_CONFIG: config } })).stdout;

describe('the help', () => {
  const commands = everyCommand(commandTree());
  const isShared = ({ words }: { words: string[] }) => words[0] !== 'hub' && words[0] !== 'branch';

  test('of no command of a single store names a hub', async () => {
    for (const { words } of commands.filter(isShared)) {
      expect(wordsOfChain(await helpOf(words, store)), `tillsync ${words.join(' ')}`).toEqual([]);
    }
    const nowhere = path.join(directory, 'none.toml');
    expect(wordsOfChain(await helpOf([], nowhere))).toEqual([]);
    expect(await helpOf([], nowhere)).toContain('\n  bundle [options]');
  });

  test('of a hub and of a branch has the commands and options of a chain', async () => {
    for (const config of [hub, branch]) {
      expect(await helpOf([], config)).toMatch(/\nHub and branches:\n {2}hub .*\n {2}branch /);
      expect(await helpOf(['init'], config)).toContain('--join <invitation>');
      expect(await helpOf(['demo'], config)).toContain('--branches <n>');
    }
    const { stdout } = await invoke(['--config', hub, '--help'], { env: { TILLSYNC_CONFIG: store } });
    expect(stdout).toContain('Hub and branches:');
    const env = { TILLSYNC_CONFIG: store, TILLSYNC_HUB_NATS: 'nats://127.0.0.1:4222' };
    expect((await invoke(['--help'], { env })).stdout).toContain('Hub and branches:');
  });

  test('of hub and branch is there for whoever types them, and so are the commands', async () => {
    expect(await helpOf(['hub'], store)).toContain('server-config');
    expect(await helpOf(['branch'], store)).toContain('invite [options] <name>');
    expect(await helpOf(['branch', 'invite'], store)).toContain('$ tillsync branch invite');
    const storage = path.join(directory, 'typed');
    mkdirSync(storage);
    const env = { TILLSYNC_CONFIG: store, TILLSYNC_STORAGE_DIRECTORY: storage };
    const typed = await invoke(['branch', 'list'], { env });
    expect(typed).toMatchObject({ code: 2, stderr: expect.stringContaining('This tillsync is no hub') });
  });
});

test('the sample of a single store names no hub, and that of a chain has those keys', () => {
  expect(wordsOfChain(readFileSync(path.join(CONFIG, 'tillsync.sample.toml'), 'utf8'))).toEqual([]);
  const ofChain = readFileSync(path.join(CONFIG, 'tillsync-hub.sample.toml'), 'utf8');
  expect(ofChain).toMatch(/\[hub\]\n(#.*\n)+nats = ""\n/);
});

test('init of a single store writes a file without a word of hubs', async () => {
  const config = path.join(directory, 'made.toml');
  const words = ['init', '--yes', '--offline', '--no-start', '--base-url', 'https://platform.test'];
  const place = ['--branch', 'sub-1,B1', '--directory', path.join(directory, 'made')];
  const { code, stdout, stderr } = await invoke([...words, ...place, '--config', config], { env: {} });
  expect(code, stderr).toBe(0);
  expect(readFileSync(config, 'utf8')).toContain('https://platform.test');
  expect(wordsOfChain(readFileSync(config, 'utf8') + stdout + stderr)).toEqual([]);
});

describe('what is wrong', () => {
  test('names a hub only in the findings of a chain', () => {
    const texts = (findings: object) =>
      Object.entries(findings).map(([code, row]) => [code, JSON.stringify(row)] as const);
    for (const [code, text] of [...texts(FINDINGS), ...texts(SPANISH_FINDINGS)]) {
      if (!code.startsWith('hub.')) expect(wordsOfChain(text), code).toEqual([]);
    }
    expect(wordsOfChain(JSON.stringify(FINDINGS['hub.link']))).not.toEqual([]);
  });

  test.each(['en', 'es'])('is said by status and doctor without a word of hubs (%s)', async (language) => {
    const storage = path.join(directory, `storage-${language}`);
    freshMirror(storage);
    freshState(storage);
    const at = (config: string) => ({
      TILLSYNC_CONFIG: config,
      TILLSYNC_STORAGE_DIRECTORY: storage,
      TILLSYNC_SHOP_LANGUAGE: language,
    });
    const said = async (words: string[], config = store) => {
      const { stdout, stderr } = await invoke(words, { env: at(config) });
      return stdout + stderr;
    };
    for (const words of [
      ['status', '--json'],
      ['status'],
      ['doctor', '--offline'],
      ['doctor', '--only', 'weather'],
    ]) {
      expect(wordsOfChain(await said(words)), words.join(' ')).toEqual([]);
    }
    expect(await said(['doctor', '--offline', '--only', 'hub'], hub)).toMatch(/nats-server/);
    expect(await said(['doctor', '--only', 'weather'], hub)).toContain('hub.server');
  });
});

describe('the page', () => {
  const examples = JSON.parse(
    readFileSync(path.join(import.meta.dirname, '../../src/api/examples.json'), 'utf8'),
  );
  const answer = (name: string) => examples[name].answer;

  /** Returns all texts of a template, as a browser would show them. */
  function textOf(value: unknown): string {
    if (value === nothing || typeof value === 'function') return '';
    if (typeof value !== 'object' || value === null) return String(value);
    if (Array.isArray(value)) return value.map(textOf).join('');
    if ('strings' in value && 'values' in value) {
      const [values, strings] = [value.values as unknown[], value.strings as string[]];
      return strings.map((part, i) => part + (i < values.length ? textOf(values[i]) : '')).join('');
    }
    if ('_$litDirective$' in value && 'values' in value) {
      const [items, , draw] = value.values as [Iterable<unknown>, unknown, (item: unknown) => unknown];
      return [...items].map((item) => textOf(draw(item))).join('');
    }
    throw new Error('a template has a value that this test does not know');
  }

  const state = (language: 'en' | 'es', change: Partial<PageState> = {}): PageState => {
    const status = answer('getStatus');
    return {
      speech: speechOf(language, []),
      nowMs: Date.parse(status.at),
      link: 'live',
      hasKey: false,
      shop: null,
      isNarrow: false,
      status,
      board: boardOf(answer('getBoard').orders, NO_BOARD),
      expanded: new Set(),
      branches: NO_BRANCHES,
      trends: answer('getTrends').hours,
      outbox: { tab: 'waiting', changes: answer('listChanges').changes, before: null, deciding: new Set() },
      catalog: { text: '', products: answer('findProducts').products, next: null, fault: null },
      search: { text: '', day: '', orders: null, hasMore: false, fault: null },
      calls: { isOn: false, seen: new Set(), isSilent: false, canNotify: true },
      dialog: null,
      notice: null,
      ...change,
    };
  };
  // The compiler does not follow this path, because the view needs the types of a browser.
  const VIEW: string = '../../src/page/views/page-view.ts';
  const view: Promise<{ pageView(page: PageState, actions: object): unknown }> = import(VIEW);
  const shown = async (page: PageState) => textOf((await view).pageView(page, {}));

  test.each(['en', 'es'] as const)('of a single store shows no word of hubs (%s)', async (language) => {
    const page = state(language);
    expect(page.status?.role).toBe('store');
    for (const link of ['live', 'lost', 'locked', 'connecting'] as const) {
      expect(wordsOfChain(await shown({ ...page, link }))).toEqual([]);
    }
    expect(await shown(page)).toContain(page.status?.shop);
    expect(wordsOfChain(await shown({ ...page, status: null }))).toEqual([]);
    const { branches } = answer('listBranches');
    const [first] = page.status?.freshness ?? [];
    const atHub = { ...page.status, role: 'hub', freshness: [{ ...first, subject: 'hub.link' }] };
    const ofHub = state(language, {
      status: atHub as PageState['status'],
      branches: { ...NO_BRANCHES, all: branches },
    });
    expect(wordsOfChain(await shown(ofHub))).not.toEqual([]);
  });
});
