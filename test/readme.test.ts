import { existsSync, readdirSync, readFileSync } from 'node:fs';
import path from 'node:path';
import Database from 'better-sqlite3';
import { describe, expect, it } from 'vitest';
import { type CommandFacts, commandTree } from '../config/package/command-tree.ts';
import { referenceNow } from '../config/package/reference.ts';
import { FINDINGS } from '../src/health/findings.ts';
import { invoke } from './cli/invoke.ts';

const ROOT = path.resolve(import.meta.dirname, '..');
const read = (file: string) => readFileSync(path.join(ROOT, file), 'utf8');
const DOCS = readdirSync(path.join(ROOT, 'docs'), { recursive: true, encoding: 'utf8' })
  .filter((name) => name.endsWith('.md'))
  .map((name) => `docs/${name}`);
const POS = read('docs/pos.md');
const FILES = ['README.md', ...DOCS];
const ALL = FILES.filter((file) => file !== 'docs/reference.md')
  .map(read)
  .join('\n');
const prose = (file: string) => read(file).replace(/^```.*?^```$/gms, '');
const codeOf = (file: string): string[] => read(file).match(/^```.*?^```$/gms) ?? [];
const withoutCount = (message: string) => message.replace(/: \{count\}\.$/, '');
const SPANISH = JSON.parse(read('src/health/spanish.json')) as {
  findings: Record<string, { message: string }>;
};

function slugsOf(file: string): string[] {
  return [...prose(file).matchAll(/^#+ (.*)$/gm)].map(([, heading = '']) =>
    heading
      .toLowerCase()
      .replaceAll(/[^\p{L}\p{N}_\- ]/gu, '')
      .replaceAll(' ', '-'),
  );
}

/** The mirror's tables for tillsync's own use. A POS must not rely on them, because they may change. */
/** Columns of the inbox that its POS does not write. */
const OWN_COLUMNS = ['stock_changes', 'product_changes', 'order_acks', 'pos_alive'].flatMap((table) => [
  `${table}.id`,
  `${table}.inserted_at`,
]);
/** Views that the page shows in an example each. */
const SHOWN_VIEWS = ['contract', 'orders_due', 'orders_to_book', 'orders_unbooked', 'outbox_references'];

/** Executes these SQL files and returns `table.column` for each column of each table that they create. */
function columnsMadeBy(...files: string[]): string[] {
  const db = new Database(':memory:');
  db.unsafeMode(true);
  for (const file of files) db.exec(read(file));
  const rows = db
    .prepare<[], string>(
      `SELECT m.name || '.' || c.name FROM sqlite_schema m JOIN pragma_table_info(m.name) c
       WHERE m.type IN ('table', 'view') AND m.name NOT LIKE 'sqlite%' AND m.name NOT GLOB '_*'
       ORDER BY m.name, c.cid`,
    )
    .pluck()
    .all();
  db.close();
  return rows;
}

/**
 * Returns `table.column` pairs from the table under this mark in docs/pos.md, whose first cell names a table
 * and whose last cell lists its columns.
 */
function columnsTold(mark: string): string[] {
  const table = POS.split(`<!-- tables: ${mark} -->\n`)[1]?.split('\n\n')[0] ?? '';
  return table
    .split('\n')
    .slice(2)
    .flatMap((line) => {
      const cells = line.split('|').slice(1, -1);
      const name = cells[0]?.replaceAll('`', '').trim();
      const columns = cells.at(-1)?.replaceAll(/\([^)]*\)/g, '') ?? '';
      return [...columns.matchAll(/`(\w+)`/g)].map(([, column]) => `${name}.${column}`);
    });
}

describe('README and docs', () => {
  it.each([
    [
      'mirror',
      readdirSync(path.join(ROOT, 'src/db/mirror/migrations')).map(
        (file) => `src/db/mirror/migrations/${file}`,
      ),
    ],
    ['inbox', ['src/outbox/intake/inbox-schema.sql']],
  ])('list what SELECT * of each table and view of the %s gives', (mark, files) => {
    const own = (name: string) =>
      OWN_COLUMNS.includes(name) || SHOWN_VIEWS.includes(name.split('.')[0] as string);
    const made = columnsMadeBy(...files.filter((file) => file.endsWith('.sql')).sort());
    expect(made.length).toBeGreaterThan(10);
    expect(columnsTold(mark).sort()).toEqual(made.filter((name) => !own(name)).sort());
  });

  it('list what SELECT * of the views of orders gives', () => {
    const made = columnsMadeBy('src/db/mirror/migrations/0001-mirror.sql');
    const of = (name: string) =>
      made.filter((each) => each.startsWith(`${name}.`)).map((each) => each.split('.')[1]);
    const orders = of('orders');
    for (const view of ['orders_due', 'orders_to_book', 'orders_unbooked']) {
      const more = of(view).slice(orders.length);
      expect(of(view).slice(0, orders.length)).toEqual(orders);
      expect(more.length).toBeGreaterThan(0);
      for (const column of more) expect(POS).toMatch(new RegExp(`\\b${column}\\b`));
    }
    expect(of('outbox_references')).toEqual(['reference', 'change_id']);
  });

  it('name constraints of the inbox as they are', () => {
    const schema = read('src/outbox/intake/inbox-schema.sql');
    const told = /name of the constraint says why: (.*?), and so on/s.exec(POS)?.[1] ?? '';
    const names = [...told.matchAll(/`([^`]+)`/g)].map(([, name]) => name?.replaceAll('\n', ' '));
    expect(names.length).toBeGreaterThan(2);
    for (const name of names) expect(schema).toContain(`CONSTRAINT "${name}"`);
  });

  it('link each recipe and proxy that is tried', () => {
    const tried = ['php', 'csharp', 'pascal', 'python', 'typescript', 'proxy', 'tunnel'].flatMap((folder) =>
      readdirSync(path.join(ROOT, 'test/recipes', folder))
        .filter((name) => name !== '__pycache__')
        .map((name) => `test/recipes/${folder}/${name}`),
    );
    expect(tried.length).toBe(25);
    for (const file of tried) expect(ALL).toContain(`](../${file})`);
  });

  it.each(FILES)('link to headings and files that are there: %s', (file) => {
    const links = [...prose(file).matchAll(/\]\(([^)]+)\)|src="([^"]+)"/g)].map(
      ([, link, src]) => link ?? src ?? '',
    );
    for (const link of links.filter((each) => !each.startsWith('http'))) {
      const [target = '', heading] = link.split('#');
      const place = target === '' ? file : path.join(path.dirname(file), target);
      expect(existsSync(path.join(ROOT, place)), link).toBe(true);
      if (heading !== undefined) expect(slugsOf(place), link).toContain(heading);
    }
  });

  it.each([
    ['docs/operator.md', 'docs/operador.md'],
    ['docs/support.md', 'docs/support.es.md'],
    ['docs/troubleshooting.md', 'docs/troubleshooting.es.md'],
    ['docs/pos.md', 'docs/pos.es.md'],
    ['docs/chain.md', 'docs/chain.es.md'],
    ['docs/customers.md', 'docs/customers.es.md'],
  ])('have the headings, the commands and the rows of tables of %s in Spanish too', (english, spanish) => {
    const levels = (file: string) => [...prose(file).matchAll(/^(#+) /gm)].map(([, level]) => level);
    expect(levels(spanish)).toEqual(levels(english));
    const commands = (file: string) =>
      codeOf(file)
        .join('\n')
        .match(/^(sudo )?tillsync [a-z]+( [a-z-]+)*/gm)
        ?.map((each) => each.trim()) ?? [];
    expect(commands(spanish)).toEqual(commands(english));
    const rows = (file: string) =>
      prose(file)
        .split(/^#+ /m)
        .map((part) => part.match(/^\|/gm)?.length ?? 0);
    expect(rows(spanish)).toEqual(rows(english));
  });

  it.each([
    ['docs/troubleshooting.md', 'docs/troubleshooting.es.md'],
    ['docs/pos.md', 'docs/pos.es.md'],
    ['docs/chain.md', 'docs/chain.es.md'],
  ])('have the code of %s in Spanish too, but for comments', (english, spanish) => {
    const withoutComments = (file: string) =>
      codeOf(file).map((block) => block.replaceAll(/(?<=\S {2,})(#|--) .*$/gm, '').replaceAll(/ +$/gm, ''));
    expect(withoutComments(spanish)).toEqual(withoutComments(english));
  });

  it('keep the README to a few screens', () => {
    expect(read('README.md').split('\n').length).toBeLessThanOrEqual(250);
  });

  it('have a heading for each finding and each code of an error', () => {
    const headings = [...read('docs/troubleshooting.md').matchAll(/^### (.*)$/gm)].map(([, text]) => text);
    const spanish = read('docs/troubleshooting.es.md');
    for (const [code, { message }] of Object.entries(FINDINGS)) {
      const said = withoutCount(message);
      expect(headings).toContain(said);
      expect(read('docs/troubleshooting.md'), code).toContain(`Code \`${code}\``);
      // The heading is the Spanish message of the page, and the line below it is the English one of the terminal.
      const page = withoutCount(SPANISH.findings[code]?.message ?? '');
      expect(spanish).toContain(`\n### ${page}\n\n*${said}*\n\nCódigo \`${code}\``);
    }
    const codes = /export type ErrorCode =(.*?);/s.exec(read('src/core/errors.ts'))?.[1] ?? '';
    const names = [...codes.matchAll(/'([\w-]+)'/g)].map(([, name]) => name);
    expect(names.length).toBeGreaterThan(10);
    for (const name of names) {
      expect(headings).toContain(name);
      expect(spanish).toContain(`\n### ${name}\n`);
    }
  });

  it('name tests that there are', () => {
    for (const file of ['SECURITY.md', ...DOCS]) {
      const names = [...read(file).matchAll(/`(test\/[\w/.-]+\.test\.ts)`/g)].map(([, name = '']) => name);
      if (file === 'SECURITY.md') expect(names.length).toBeGreaterThan(10);
      expect(
        names.filter((name) => !existsSync(path.join(ROOT, name))),
        file,
      ).toEqual([]);
    }
  });

  it('have the reference as the program has it: npm run reference', () => {
    expect(read('docs/reference.md')).toBe(referenceNow());
  });

  it('name commands, options and scripts that there are', () => {
    const program = commandTree();
    const { scripts } = JSON.parse(read('package.json')) as { scripts: Record<string, string> };
    const calls = [...ALL.matchAll(/(?<![\w/@.-])tillsync(?: --)? ([a-z][^`\n|#]*)/g)].map(
      ([, words = '']) => words,
    );
    const known = calls.filter((words) =>
      program.commands.some(({ words: [name] }) => name === words.split(' ')[0]),
    );
    expect(known.length).toBeGreaterThan(40);
    for (const call of known) {
      const command = descend(program, call.split(/\s+/));
      const options = [...command.options, ...program.options].map(({ long }) => long);
      for (const [, option = ''] of call.matchAll(/(?<=\s)(--[a-z-]+)/g))
        expect(options, call).toContain(option);
      expect(command.runs, `tillsync ${call} is a command, not a group`).toBe(true);
    }
    for (const [, script = ''] of ALL.matchAll(/npm run (?:-s )?([\w:]+)/g)) {
      expect(Object.keys(scripts)).toContain(script);
    }
  });

  it('name commands with sudo that are whole: without a configuration, that alone is their fault', async () => {
    const inline = [...ALL.matchAll(/`sudo tillsync ([^`]+)`/g)];
    const inBlocks = FILES.flatMap(codeOf).flatMap((block) => [
      ...block.replaceAll(/\\\n\s*/g, '').matchAll(/^sudo tillsync ([^\n]+)$/gm),
    ]);
    const typed = [...inline, ...inBlocks].map(
      ([, words = '']) => words.replaceAll(/\s+/g, ' ').split(/ [>|#]/)[0],
    );
    // These do something without a configuration too.
    const isHarmless = (words = '') =>
      !/^(init|bundle|restore|key (create|show|rotate).*)$|^(init|bundle|restore) |--config/.test(words);
    const calls = new Set(typed.filter(isHarmless));
    expect(calls.size).toBeGreaterThan(50);
    const env = { TILLSYNC_CONFIG: path.join(ROOT, 'no-such-file.toml') };
    for (const call of calls) {
      const words =
        call
          ?.replace(/\bID\b/, '1')
          .replace(/\bDAY\b/, '2026-03-01')
          .match(/"[^"]+"|\S+/g) ?? [];
      const { code, stdout, stderr } = await invoke(words, { env, input: 'Ana Rojas' });
      if (code !== 0) expect(stderr + stdout, call).toContain('no-such-file.toml: found no such file');
    }
  });
});

function descend(command: CommandFacts, words: readonly string[]): CommandFacts {
  const [next = '', ...rest] = words;
  const inner = command.commands.find(({ words: names }) => names.at(-1) === next.replace(/\W+$/, ''));
  return inner ? descend(inner, rest) : command;
}
