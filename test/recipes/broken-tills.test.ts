import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { describe, expect, it } from 'vitest';
import type { Report } from '../../src/conform/conform.ts';
import { limitMs } from '../support/shared-config.ts';
import { COMPILED, NODE, runCommand } from '../support/workplace.ts';

const FILES = ['till.ts', 'api.ts', 'ledger.ts'];
const COUNTED = '  if (counts.length > 0) {';

/**
 * Faults to put into the TypeScript till of the docs, each with the ids of the behaviours that then fail, and perhaps
 * with words of what one of them saw.
 */
const FAULTS: { what: string; fails: number[]; saw?: string; edits: [from: string, to: string][] }[] = [
  {
    what: 'books unpaid orders',
    fails: [4],
    edits: [["'pending', 'payment-pending', ", '']],
  },
  {
    what: 'gives nothing back',
    fails: [5, 19],
    edits: [[", 'cancel', 'refund', 'payment-canceled'", '']],
  },
  {
    what: 'acknowledges before the count',
    fails: [3],
    edits: [[COUNTED, `  if (owed.length > 0) await post('/v1/orders/ack', owed);\n${COUNTED}`]],
  },
  {
    what: 'takes every event for a new order',
    fails: [2, 5, 6, 7, 8, 13, 18, 19],
    edits: [
      ["  run('DELETE FROM taken WHERE by = ?', orderId);\n", ''],
      ['WHERE by = ? AND sku', 'WHERE instr(by, ?) AND sku'],
      ['run(take, orderId,', "run(take, [orderId, seq].join(' '),"],
    ],
  },
  {
    what: 'books the orders of all branches',
    fails: [12, 13],
    edits: [
      ['order?.storeExternalId === TILL_STORE && ', 'order && '],
      [['&store=$', '{process.env.TILL_STORE}'].join(''), ''],
    ],
  },
  {
    what: 'looks for the id of a line',
    fails: [11],
    edits: [
      [
        'of order.items.entries()',
        'of order.items.filter((each) => each.productExternalId !== null).entries()',
      ],
    ],
  },
  {
    what: 'acknowledges a line that nobody knows',
    fails: [11],
    edits: [['sku IS NULL', 'sku = 0']],
  },
  {
    what: 'passes over a line without any id',
    fails: [11],
    saw: 'With a line of an article that nobody knows',
    edits: [['run(take, orderId,', 'if (sku || id) run(take, orderId,']],
  },
  {
    what: 'takes nothing for a line without sku',
    fails: [11],
    saw: 'no count has the pieces of its line',
    edits: [['THEN min(sku)', 'THEN 0']],
  },
  {
    what: 'names no branch',
    fails: [14],
    edits: [['counts.map((count) => ({ ...count, subsidiaryExternalId: TILL_STORE }))', 'counts']],
  },
  {
    what: 'cuts cents off',
    fails: [10],
    edits: [['[order.amountToPay, ', '[Math.trunc(order.amountToPay ?? 0), ']],
  },
  {
    what: 'keeps the first total',
    fails: [10],
    edits: [
      ['known?.total !== total', '!known'],
      ['SET total = ?, due = ?', 'SET total = coalesce(total, ?), due = ?'],
    ],
  },
  {
    what: 'prepares a scheduled order at once',
    fails: [16],
    edits: [['order.isScheduled ? order.scheduledFor : null', 'null']],
  },
  {
    what: 'takes an error for an answer',
    fails: [20],
    edits: [
      ["await post(\n      '/v1/stock',", "await blind(\n      '/v1/stock',"],
      [
        '/** Counts first;',
        'const blind = (...words: Parameters<typeof post>) => post(...words).catch(() => Response.json({ results: [] }));\n/** Counts first;',
      ],
    ],
  },
  {
    what: 'repeats what a guard holds',
    fails: [22],
    edits: [
      [
        'for (const { externalId, qty } of counts)',
        "for (const { externalId, qty } of counts.filter((_count, i) => results[i]?.state !== 'held'))",
      ],
    ],
  },
  {
    what: 'repeats what was refused',
    fails: [21],
    edits: [
      [
        "run('UPDATE stock SET told",
        "if (!results.some(({ index, state }) => state === 'rejected' && counts[index]?.externalId === externalId)) run('UPDATE stock SET told",
      ],
    ],
  },
  {
    what: 'stays where it is in a feed made anew',
    fails: [7],
    edits: [["if (error.code === 'feed-restarted') run('UPDATE place SET seq = 0');", '']],
  },
  {
    what: 'hands over with an order only',
    fails: [15],
    edits: [[COUNTED, `  if (owed.length === 0) return;\n${COUNTED}`]],
  },
  {
    what: 'asks without a pause',
    fails: [24],
    edits: [['&wait=1', '']],
  },
  {
    what: 'keeps a read of the mirror open',
    fails: [23],
    edits: [
      [
        'await forever(0, async () => {',
        "const { DatabaseSync } = await import('node:sqlite');\nconst mirror = new DatabaseSync(process.env.TILL_MIRROR ?? '', { readOnly: true });\nmirror.exec('BEGIN');\nmirror.prepare('SELECT count(*) FROM orders').get();\nawait forever(0, async () => {\n  mirror.prepare('SELECT 1').get();",
      ],
    ],
  },
  {
    what: 'cuts ids, and acknowledges what it was never told',
    fails: [25],
    edits: [
      [
        "await post('/v1/orders/ack', owed);",
        "await post('/v1/orders/ack', owed.map((each) => ({ ...each, orderId: each.orderId.slice(0, 100) })));",
      ],
    ],
  },
  {
    what: 'stops at a status that is NULL',
    // Later behaviours of the run fail too, because the till is stuck.
    fails: [7, 9, 23, 24],
    edits: [["order.status ?? ''", '(order.status as string).trim()']],
  },
];

/** A till that prints, posts and inserts without a pause and ignores every answer. */
const FLOODING_TILL = `
const { TILL_URL = '', TILL_INBOX = '', TILL_ARTICLES = '' } = process.env;
const { readFileSync } = await import('node:fs');
const { DatabaseSync } = await import('node:sqlite');
const [sku, id] = readFileSync(TILL_ARTICLES, 'utf8').split('\\n')[1]?.split('\\t') ?? [];
const body = JSON.stringify(Array.from({ length: 1_000 }, (_, i) => ({ externalId: id, qty: i })));
const headers = { 'content-type': 'application/json', 'x-api-key': process.env.TILL_KEY ?? '' };
const post = async () => {
  for (;;) await fetch(TILL_URL + '/v1/stock', { method: 'POST', headers, body }).then((answer) => answer.text(), () => {});
};
for (let i = 0; i < 4; i++) void post();
for (;;) {
  process.stdout.write(sku + ' '.repeat(100_000));
  try {
    const inbox = new DatabaseSync(TILL_INBOX, { timeout: 100 });
    inbox.exec("BEGIN IMMEDIATE");
    for (let i = 0; i < 1_000; i++) inbox.prepare('INSERT INTO stock_changes (qty, external_id) VALUES (?, ?)').run(i, id ?? null);
    inbox.exec("COMMIT");
    inbox.close();
  } catch {}
  await new Promise((resolve) => setImmediate(resolve));
}
`;

/** Writes the till with the edits into the directory, and returns the file to start. */
function writeBroken(directory: string, edits: [from: string, to: string][]): string {
  const texts = FILES.map((name) => readFileSync(path.join(import.meta.dirname, 'typescript', name), 'utf8'));
  for (const [from, to] of edits) {
    const at = texts.findIndex((text) => text.includes(from));
    if (at < 0) throw new Error(`The till has no ${from}`);
    texts[at] = (texts[at] as string).replace(from, () => to);
  }
  for (const [i, name] of FILES.entries()) writeFileSync(path.join(directory, name), texts[i] as string);
  return path.join(directory, 'till.ts');
}

interface Verdicts {
  code: number | null;
  failed: number[];
  notJudged: number[];
  saw: string;
  durationMs: number;
}

async function judge(command: string[], ...words: string[]): Promise<Verdicts> {
  const env = { ...COMPILED, PATH: process.env.PATH ?? '' };
  const { code, stdout } = await runCommand(env, ['conform', '--json', ...words, '--', ...command]);
  const { behaviours, durationMs } = JSON.parse(stdout) as Report;
  const idsOf = (verdict: string) =>
    behaviours.filter((each) => each.verdict === verdict).map(({ id }) => id);
  const wrong = behaviours.filter(({ verdict }) => verdict !== 'passed');
  const saw = wrong.map((each) => `${each.id}: ${each.saw}`).join('\n');
  return { code, failed: idsOf('failed'), notJudged: idsOf('not-judged'), saw, durationMs };
}

/** Groups of faults that do not affect each other, so that one till can have them all. `.ci/nightly` tests each alone. */
const TOGETHER = [
  [
    'books unpaid orders',
    'cuts cents off',
    'names no branch',
    'prepares a scheduled order at once',
    'passes over a line without any id',
  ],
  [
    'gives nothing back',
    'looks for the id of a line',
    'keeps the first total',
    'cuts ids, and acknowledges what it was never told',
  ],
  [
    'books the orders of all branches',
    'repeats what a guard holds',
    'repeats what was refused',
    'stays where it is in a feed made anew',
    'acknowledges a line that nobody knows',
  ],
  [
    'acknowledges before the count',
    'asks without a pause',
    'keeps a read of the mirror open',
    'takes nothing for a line without sku',
  ],
];
const tills = [
  // A till that fails many behaviours takes longest, so these tills start first.
  ...FAULTS.filter(({ what }) => !TOGETHER.flat().includes(what)).map((fault) => [fault]),
  ...TOGETHER.map((group) => FAULTS.filter(({ what }) => group.includes(what))),
].flatMap((faults) => (process.env.TILLSYNC_NIGHTLY === '1' ? faults.map((fault) => [fault]) : [faults]));

// The tests run concurrently, because a till mostly waits. Each uses its own test context, as concurrent tests must.
describe.concurrent('a till that', () => {
  for (const faults of tills) {
    const fails = faults.flatMap((fault) => fault.fails).sort((one, other) => one - other);
    it(
      `${faults.map(({ what }) => what).join(' and ')} fails behaviour ${fails.join(', ')} and no other`,
      async ({ onTestFinished }) => {
        const directory = mkdtempSync(path.join(tmpdir(), 'tillsync-broken-'));
        onTestFinished(() => rmSync(directory, { recursive: true, force: true }));
        const file = writeBroken(
          directory,
          faults.flatMap((fault) => fault.edits),
        );
        const { code, failed, notJudged, saw } = await judge([NODE, file], '--way', 'http');
        expect({ failed, notJudged }, saw).toEqual({ failed: fails, notJudged: [] });
        for (const fault of faults) expect(saw).toContain(fault.saw ?? '');
        expect(code).toBe(3);
      },
      limitMs(300_000),
    );
  }

  it(
    'ends at once fails everything, soon',
    async () => {
      const { code, failed, saw, durationMs } = await judge(['sh', '-c', 'echo no printer >&2; exit 1']);
      expect(failed).toHaveLength(25);
      expect(saw).toContain('ended 5 times with a fault');
      expect(saw).toContain('It said: no printer');
      expect(code).toBe(3);
      expect(durationMs).toBeLessThan(limitMs(120_000));
    },
    limitMs(300_000),
  );

  it(
    'floods its output, the API and the inbox fails too, in time',
    async ({ onTestFinished }) => {
      const directory = mkdtempSync(path.join(tmpdir(), 'tillsync-flood-'));
      onTestFinished(() => rmSync(directory, { recursive: true, force: true }));
      const file = path.join(directory, 'till.ts');
      writeFileSync(file, FLOODING_TILL);
      // Tests only three behaviours, because a flood uses up the CPU time.
      const { code, failed, saw, durationMs } = await judge(
        [NODE, file],
        '--way',
        'http',
        '--only',
        '1,11,24',
      );
      expect(failed, saw).toEqual([1, 11, 24]);
      expect(code).toBe(3);
      expect(durationMs).toBeLessThan(limitMs(90_000));
    },
    limitMs(300_000),
  );

  it(
    'does nothing fails everything, in a few minutes',
    async () => {
      const { code, failed, saw, durationMs } = await judge(['sleep', '3600']);
      expect(failed).toHaveLength(25);
      expect(saw).toContain('It has acknowledged nothing since behaviour 1.');
      expect(code).toBe(3);
      expect(durationMs).toBeLessThan(limitMs(240_000));
    },
    limitMs(300_000),
  );
});
