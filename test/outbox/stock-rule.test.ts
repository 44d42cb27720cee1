import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import type Database from 'better-sqlite3';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { StockLedger } from '../../src/outbox/ledger/stock-ledger.ts';
import { judgeStock, type Step, type StockFacts } from '../../src/outbox/ledger/stock-rule.ts';
import { runsOf } from '../support/seed.ts';
import { tempMirror } from './outbox-fixture.ts';
import { ruleOf, viewFault, viewOf } from './stock-view.ts';

const ROOT = join(import.meta.dirname, '../..');
const HOUR = 3_600_000;

/** Returns the rows of the first table in a text whose head has `wanted`. */
function tableIn(file: string): string[][] {
  const lines = readFileSync(join(ROOT, file), 'utf8')
    .split('\n')
    .map((line) => line.replace(/^ \* /, ''));
  const head = lines.findIndex((line) => /^\|.*\| wanted \|/.test(line));
  const rows = lines.slice(head + 2);
  return rows
    .slice(
      0,
      rows.findIndex((line) => !line.startsWith('|')),
    )
    .map((line) =>
      line
        .split('|')
        .slice(1, -1)
        .map((cell) => cell.trim()),
    );
}

/** Stores the facts of stock `1@s1`. */
function store(db: Database.Database, facts: StockFacts): void {
  const { count, steps, holds, safetyQty, missing, believedQty, confirmedSeq, confirmedMs } = facts;
  const run = (sql: string, ...params: unknown[]) => db.prepare(sql).run(...params);
  for (const table of [
    '_outbox',
    '_stock_counts',
    '_stock_steps',
    '_stock_notes',
    '_stocks',
    '_seen',
    '_ledger_orders',
  ]) {
    run(`DELETE FROM ${table}`);
  }
  run(
    `INSERT INTO _outbox (change_id, kind, target, body, state, created_at, source, basis, conflict_key, fields, priority,
       queue_seq, as_of_seq, version, counted_at, handed_ms)
     VALUES (1, 'stock', 'sku:1@s1', json_object('qty', ?), 'done', '', 'http', 'mirror', 'sku:1@s1', 'qty', 1, 1, ?, ?, ?, ?)`,
    ...[count.countedQty, count.countedSeq, count.countedVersion, new Date(count.countedMs).toISOString()],
    count.handedMs,
  );
  run(
    "INSERT INTO _stock_counts (sku, subsidiary_id, change_id, call_id) VALUES ('1', 's1', 1, ?)",
    facts.isUnderWay ? 1 : null,
  );
  for (const [n, step] of steps.entries()) {
    run(
      `INSERT INTO _stock_steps (sku, subsidiary_id, order_id, seq, external_id, part, qty, placed_ms, is_first,
         booked_version, booked_ms, held_until_ms) VALUES ('1', 's1', ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`,
      ...[step.orderId, step.seq, `X${n}`, step.part, step.qty, step.placedMs, Number(step.isFirst)],
      ...[step.bookedVersion, step.bookedMs, step.heldUntilMs],
    );
  }
  run(
    "INSERT INTO _stock_notes (sku, subsidiary_id, safety_qty, missing_qty, looked_seq, looked_ms) VALUES ('1', 's1', ?, ?, ?, 1)",
    ...[safetyQty, missing.qty, missing.seq],
  );
  run(
    "INSERT INTO _stocks (sku, subsidiary_id, qty, confirmed_seq, confirmed_ms, uncertain) VALUES ('1', 's1', ?, ?, ?, ?)",
    ...[believedQty ?? 0, confirmedSeq, confirmedMs, Number(believedQty === null)],
  );
  if (holds) run("INSERT INTO _seen (kind, name, first_at) VALUES ('holding-branch', 's1', '')");
  run(
    `INSERT INTO _ledger_orders (order_id, seq, first_seq, takes, placed_ms, places, is_unplaced)
     VALUES ('U', ?, 1, 1, 1, '{}', 1)`,
    facts.unplacedSeq,
  );
}

/** Tells a story of the table, one event after the other, each in a minute of its own. */
class Story {
  facts: StockFacts = {
    count: { countedQty: 0, countedSeq: 0, countedVersion: 0, countedMs: 0, handedMs: 0 },
    steps: [],
    holds: true,
    safetyQty: 0,
    missing: { qty: 0, seq: 0 },
    believedQty: null,
    confirmedSeq: 0,
    confirmedMs: 0,
    isUnderWay: false,
    unplacedSeq: 0,
  };
  #seq = 0;
  #version = 0;
  #nowMs = HOUR;
  #notedMs = 0;

  readonly #events: [RegExp, (...words: string[]) => void][] = [
    [/^count (-?\d+)( as noted)?$/, (qty, noted) => this.#count(Number(qty), noted !== undefined)],
    [/^another count is held$/, () => this.#handOver()],
    [/^sent$/, () => this.#send()],
    [/^(\w) takes (\d+)$/, (orderId = '', qty) => this.#step({ orderId, qty: Number(qty), isFirst: true })],
    [/^(\w) is changed by ([+-]\d+)$/, (orderId = '', qty) => this.#change(orderId, Number(qty))],
    [/^(\w) is booked(?: but for (\d+))?$/, (orderId = '', qty = '0') => this.#book(orderId, Number(qty))],
    [/^noted$/, () => this.#note()],
    [/^half an hour$/, () => this.#wait(HOUR / 2)],
    [/^keep back (\d+)$/, (qty) => this.#set({ safetyQty: Number(qty) })],
    [/^(\d+) is missing$/, (qty) => this.#set({ missing: { qty: Number(qty), seq: this.#seq } })],
    [/^hold nothing back$/, () => this.#set({ holds: false })],
  ];

  tell(story: string): this {
    for (const event of story.split(', ')) {
      const known = this.#events.find(([pattern]) => pattern.test(event));
      if (!known) throw new Error(`The table says "${event}", which nobody understands.`);
      this.#nowMs += 60_000;
      known[1](...(known[0].exec(event)?.slice(1) ?? []));
    }
    return this;
  }

  #set(facts: Partial<StockFacts>): void {
    Object.assign(this.facts, facts);
  }

  #handOver(): void {
    this.#version += 1;
  }

  #note(): void {
    this.#notedMs = this.#nowMs;
  }

  #wait(ms: number): void {
    this.#nowMs += ms;
  }

  #count(countedQty: number, isNoted: boolean): void {
    this.#handOver();
    const countedMs = isNoted ? this.#notedMs : this.#nowMs;
    this.facts.count = {
      ...{ countedQty, countedSeq: this.#seq, countedVersion: this.#version },
      ...{ countedMs, handedMs: this.#nowMs },
    };
  }

  #send(): void {
    const { wantedQty } = judgeStock(this.facts);
    Object.assign(this.facts, { believedQty: wantedQty, confirmedSeq: this.#seq, confirmedMs: this.#nowMs });
  }

  #step(step: Pick<Step, 'orderId' | 'qty' | 'isFirst'>, heldUntilMs: number | null = null): void {
    this.#seq += 1;
    const open = { bookedVersion: null, bookedMs: 0, heldUntilMs, placedMs: this.#nowMs };
    this.facts.steps = [...this.facts.steps, { ...step, ...open, seq: this.#seq, part: 0 }];
  }

  #change(orderId: string, qty: number): void {
    const wasBooked = this.facts.steps.some(
      (step) => step.orderId === orderId && step.bookedVersion !== null,
    );
    this.#step({ orderId, qty, isFirst: false }, wasBooked ? this.#nowMs + HOUR / 2 : null);
  }

  #book(orderId: string, leftOut: number): void {
    const booked = { bookedVersion: this.#version, bookedMs: this.#nowMs };
    this.facts.steps = this.facts.steps.flatMap((step) => {
      if (step.orderId !== orderId || step.bookedVersion !== null) return [step];
      const rest = { ...step, ...booked, qty: step.qty - leftOut };
      return leftOut === 0 ? [rest] : [rest, { ...step, qty: leftOut, part: 1 }];
    });
  }
}

const EXAMPLES = tableIn('src/outbox/ledger/stock-rule.ts').map(([story = '', wanted, expected]) => ({
  story,
  wanted: Number(wanted),
  expected: expected === 'unknown' ? null : Number(expected),
}));

describe('the table of examples', () => {
  it.each(EXAMPLES)('$story: wanted $wanted, expected $expected', ({ story, wanted, expected }) => {
    const { facts } = new Story().tell(story);
    expect(judgeStock(facts)).toMatchObject({ wantedQty: wanted, expectedQty: expected });
    const mirror = tempMirror();
    store(mirror, facts);
    expect(viewOf(mirror, '1', 's1')).toMatchObject({ wantedQty: wanted, expectedQty: expected });
  });

  it('is the same in the decision', () => {
    expect(EXAMPLES.length).toBeGreaterThan(20);
    const words = (file: string) => tableIn(file).map((row) => row.join(' | '));
    expect(words('docs/decisions/07-stock-ledger.md')).toEqual(words('src/outbox/ledger/stock-rule.ts'));
  });
});

const few = (max: number) => fc.integer({ min: 0, max });
const quantity = fc.oneof(
  few(12),
  few(120).map((tenths) => tenths / 10),
);
const step: fc.Arbitrary<Step> = fc.record({
  orderId: fc.constantFrom('A', 'B', 'C'),
  seq: few(6),
  qty: fc.oneof(fc.integer({ min: -5, max: 6 }), fc.constantFrom(0.1, -0.1, 0.3, 2.25)),
  part: fc.constantFrom(0, 0, 1, 2),
  bookedVersion: fc.option(few(4)),
  bookedMs: few(6),
  heldUntilMs: fc.option(few(6), { freq: 2 }),
  isFirst: fc.boolean(),
  placedMs: few(6),
});
const facts: fc.Arbitrary<StockFacts> = fc.record({
  count: fc.record({
    countedQty: fc.oneof(quantity, fc.integer({ min: -3, max: 20 })),
    countedSeq: few(6),
    countedVersion: few(4),
    countedMs: few(6),
    handedMs: few(6),
  }),
  steps: fc.array(step, { maxLength: 7 }),
  holds: fc.boolean(),
  safetyQty: fc.oneof(fc.constant(0), quantity),
  missing: fc.record({ qty: fc.oneof(fc.constant(0), few(4)), seq: few(6) }),
  believedQty: fc.option(quantity),
  confirmedSeq: few(6),
  confirmedMs: few(6),
  isUnderWay: fc.boolean(),
  unplacedSeq: few(4),
});

/** Returns steps in an order that tells nothing of when they were stored. */
function sorted(steps: readonly Step[] = []): string[] {
  return steps.map((step) => JSON.stringify(Object.entries(step).sort())).sort();
}

it('is what the view computes, whatever the facts are', () => {
  const db = tempMirror();
  db.pragma('synchronous = off');
  fc.assert(
    fc.property(facts, (given) => {
      db.transaction(() => store(db, given))();
      const read = new StockLedger(db).factsOf({ sku: '1', subsidiaryId: 's1' });
      expect({ ...read, steps: sorted(read?.steps) }).toEqual({ ...given, steps: sorted(given.steps) });
      expect(viewFault(db)).toBeNull();
      expect(viewOf(db, '1', 's1')).toEqual(ruleOf(given));
    }),
    { numRuns: runsOf(1_000) },
  );
});
