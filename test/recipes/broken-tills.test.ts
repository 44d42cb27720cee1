import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { describe, expect, it } from 'vitest';
import type { Report } from '../../src/conform/conform.ts';
import { limitMs } from '../support/shared-config.ts';
import { COMPILED, NODE, runCommand } from '../support/workplace.ts';

const WHOLE = readFileSync(path.join(import.meta.dirname, 'typescript/till.ts'), 'utf8');
const COUNTED = '  if (counts.length > 0) {';

/** The till of the docs with one fault each, and the behaviours that fail then. */
const FAULTS: { what: string; fails: number[]; edits: [from: string, to: string][] }[] = [
  {
    what: 'books unpaid orders',
    fails: [4],
    edits: [["const UNPAID = ['pending', 'payment-pending'];", 'const UNPAID: string[] = [];']],
  },
  {
    what: 'gives nothing back',
    fails: [5, 19],
    edits: [["const UNDONE = ['cancel', 'refund', 'payment-canceled'];", 'const UNDONE: string[] = [];']],
  },
  {
    what: 'acknowledges before the count',
    fails: [3],
    edits: [[COUNTED, `  if (owed.length > 0) await ask('/v1/orders/ack', owed);\n${COUNTED}`]],
  },
  {
    what: 'takes every event for a new order',
    fails: [2, 5, 6, 7, 8, 13, 18, 19],
    edits: [["    run('UPDATE stock SET qty = qty + ? WHERE sku = ?', qty, sku);\n", '    continue;\n']],
  },
  {
    what: 'books the orders of all branches',
    fails: [12, 13],
    edits: [
      ['order.storeExternalId === env.TILL_STORE && ', ''],
      [['&store=$', '{env.TILL_STORE}'].join(''), ''],
    ],
  },
  {
    what: 'looks for the id of a line',
    fails: [11],
    edits: [
      ['  items: { sku: string', '  items: { productExternalId?: string | null; sku: string'],
      ['of order.items) {', 'of order.items.filter((item) => item.productExternalId !== null)) {'],
    ],
  },
  {
    what: 'names no branch',
    fails: [14],
    edits: [[', subsidiaryExternalId: env.TILL_STORE', '']],
  },
  {
    what: 'cuts cents off',
    fails: [10],
    edits: [['      order.amountToPay,', '      Math.trunc(order.amountToPay ?? 0),']],
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
      [
        "    const { results = [] } = await ask(\n      '/v1/stock',\n      counts.map((count) => ({ ...count, subsidiaryExternalId: env.TILL_STORE })),\n    );",
        "    const body = counts.map((count) => ({ ...count, subsidiaryExternalId: env.TILL_STORE }));\n    const blind = { results: counts.map((_, index) => ({ index, state: 'pending', message: '' })) };\n    const { results = [] } = await ask('/v1/stock', body).catch(() => blind);",
      ],
    ],
  },
  {
    what: 'repeats what a guard holds',
    fails: [22],
    edits: [
      [
        "      if (state === 'rejected')\n",
        "      if (state === 'held') continue;\n      if (state === 'rejected')\n",
      ],
    ],
  },
  {
    what: 'repeats what was refused',
    fails: [21],
    edits: [
      [
        "      if (state === 'rejected')\n",
        "      if (state === 'rejected') continue;\n      if (message)\n",
      ],
    ],
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
        'for (;;) {\n  try {',
        "const mirror = new DatabaseSync(env.TILL_MIRROR ?? '', { readOnly: true });\nmirror.exec('BEGIN');\nmirror.prepare('SELECT count(*) FROM orders').get();\nfor (;;) {\n  try {\n    mirror.prepare('SELECT 1').get();",
      ],
    ],
  },
  {
    what: 'cuts ids, and acknowledges what it was never told',
    fails: [25],
    edits: [
      [
        "await ask('/v1/orders/ack', owed);",
        "await ask('/v1/orders/ack', owed.map((each) => ({ ...each, orderId: each.orderId.slice(0, 100) })));",
      ],
    ],
  },
  {
    what: 'stops at a status that is NULL',
    // Later behaviours of the run fail too, because the till is stuck.
    fails: [7, 9, 23, 24],
    edits: [["!UNPAID.includes(order.status ?? '')", '!UNPAID.includes((order.status as string).trim())']],
  },
];

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

/**
 * Faults that do not touch each other share a till, by the first behaviour that each fails. `.ci/nightly` plays each fault
 * alone.
 */
const TOGETHER = [
  [4, 10, 14, 16],
  [5, 11, 25],
  [12, 21, 22],
  [3, 23, 24],
];
const tills = [
  // A till that fails much waits longest, so it starts first.
  ...FAULTS.filter(({ fails: [first = 0] }) => !TOGETHER.flat().includes(first)).map((fault) => [fault]),
  ...TOGETHER.map((firsts) => FAULTS.filter(({ fails: [first = 0] }) => firsts.includes(first))),
].flatMap((faults) => (process.env.TILLSYNC_NIGHTLY === '1' ? faults.map((fault) => [fault]) : [faults]));

// The tests run at once, because a till mostly waits. Each uses its own test context, as concurrent tests must.
describe.concurrent('a till that', () => {
  for (const faults of tills) {
    const fails = faults.flatMap((fault) => fault.fails).sort((one, other) => one - other);
    it(
      `${faults.map(({ what }) => what).join(' and ')} fails behaviour ${fails.join(', ')} and no other`,
      async ({ onTestFinished }) => {
        const directory = mkdtempSync(path.join(tmpdir(), 'tillsync-broken-'));
        onTestFinished(() => rmSync(directory, { recursive: true, force: true }));
        const file = path.join(directory, 'till.ts');
        const edits = faults.flatMap((fault) => fault.edits);
        const broken = edits.reduce((text, [from, to]) => {
          if (!text.includes(from)) throw new Error(`The till has no ${from}`);
          return text.replace(from, to);
        }, WHOLE);
        writeFileSync(file, broken);
        const { code, failed, notJudged, saw } = await judge([NODE, file], '--way', 'http');
        expect({ failed, notJudged }, saw).toEqual({ failed: fails, notJudged: [] });
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
