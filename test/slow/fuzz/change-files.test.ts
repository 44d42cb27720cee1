import { describe, expect, it } from 'vitest';
import { TillsyncError } from '../../../src/core/errors.ts';
import type { SourceLine, SubmittedChange } from '../../../src/outbox/intake/change.ts';
import { type FileFormat, readChangeFile } from '../../../src/outbox/intake/change-file.ts';
import { Dice, rounds, SEED } from './dice.ts';
import { mutateBytes } from './mutate-bytes.ts';
import { hostileValue, type JsonNode, mutateJson, nodeOf, write } from './mutate-json.ts';

type Kind = 'stock' | 'product';
type Item = SourceLine & SubmittedChange;
type Reading = { items: Item[] } | { refused: string };

const FORMATS: readonly FileFormat[] = ['csv', 'json', 'ndjson'];

/** Reads a file that arrives in these pieces. Returns its items, or the message with which the reader refuses it. */
async function read(kind: Kind, format: FileFormat | undefined, pieces: readonly Buffer[]): Promise<Reading> {
  const options = format === undefined ? {} : { format };
  const items: Item[] = [];
  try {
    for await (const some of readChangeFile(pieces, kind, options)) items.push(...some);
    return { items };
  } catch (error) {
    // Any other error is a fault of the reader.
    if (!(error instanceof TillsyncError) || error.code !== 'usage') throw error;
    return { refused: error.message };
  }
}

function pieces(bytes: Buffer, dice: Dice): Buffer[] {
  const cut: Buffer[] = [];
  for (let at = 0; at < bytes.length; ) {
    const size = 1 + dice.below(dice.chance(0.2) ? 3 : 400);
    cut.push(bytes.subarray(at, at + size));
    at += size;
  }
  return cut;
}

function change(kind: Kind, n: number, dice: Dice): Record<string, string | number | boolean> {
  const name = dice.pick(['plain', 'a, b', 'say "no"', 'Ñandú ☕', 'semi;colon', 'line\nbreak']);
  const show = dice.chance(0.3) ? { show: dice.chance(0.5) } : {};
  if (kind === 'stock') return { externalId: `A-${n}`, qty: dice.below(100_000) / 4, ...show };
  return { externalId: `A-${n}`, price: dice.below(100_000) / 4, name: `${name} ${n}`, ...show };
}

function csv(rows: readonly Record<string, unknown>[], columns: readonly string[], dice: Dice): Buffer {
  const delimiter = dice.pick([',', ';', '\t']);
  const cell = (value: unknown) => {
    const text = value === undefined ? '' : String(value);
    return /[",;\t\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
  };
  const lines = [columns, ...rows.map((row) => columns.map((column) => row[column]))];
  return Buffer.from(
    `${lines.map((line) => line.map(cell).join(delimiter)).join(dice.pick(['\n', '\r\n']))}\n`,
  );
}

function written(kind: Kind, format: FileFormat, rows: Record<string, unknown>[], dice: Dice): Buffer {
  const columns = kind === 'stock' ? ['externalId', 'qty', 'show'] : ['externalId', 'price', 'name', 'show'];
  if (format === 'csv') return csv(rows, columns, dice);
  if (format === 'json') return Buffer.from(JSON.stringify(rows));
  return Buffer.from(rows.map((row) => `${JSON.stringify(row)}\n`).join(''));
}

describe(`files of changes (TILLSYNC_SEED=${SEED})`, () => {
  it('that are sound are taken to the last digit, however they come', async () => {
    const dice = new Dice(SEED);
    for (let n = 0; n < rounds(300); n++) {
      const kind = dice.pick(['stock', 'product'] as const);
      const format = dice.pick(FORMATS);
      const rows = Array.from({ length: 1 + dice.below(30) }, (_, i) => change(kind, i, dice));
      const bytes = written(kind, format, rows, dice);
      const reading = await read(kind, format, pieces(bytes, dice));
      const taken =
        'items' in reading ? reading.items.map((item) => ('change' in item ? item.change : item)) : reading;
      expect(taken, `round ${n}: ${bytes}`).toEqual(rows);
    }
  });

  it('that are broken give each item or say what is wrong with it, the same in whatever pieces', async () => {
    const dice = new Dice(SEED + 1);
    for (let n = 0; n < rounds(3_000); n++) {
      const kind = dice.pick(['stock', 'product'] as const);
      const format = dice.pick(FORMATS);
      const rows = Array.from({ length: 1 + dice.below(8) }, (_, i) => change(kind, i, dice));
      const bytes = mutateBytes(written(kind, format, rows, dice), dice);
      const asked = dice.chance(0.5) ? format : undefined;
      const where = `round ${n} (${kind}, ${asked}): ${bytes.subarray(0, 2_000)}`;
      const whole = await read(kind, asked, [bytes]);
      // Text of another encoding is recognised only by its first chunk.
      const isOtherEncoding = bytes.includes(0) || (bytes[0] ?? 0) >= 0xfe;
      if (!isOtherEncoding) expect(await read(kind, asked, pieces(bytes, dice)), where).toEqual(whole);
      if ('refused' in whole) expect(whole.refused.length, where).toBeGreaterThan(0);
      else {
        expect(
          whole.items.map(({ index }) => index),
          where,
        ).toEqual(whole.items.map((_, i) => i));
        for (const item of whole.items) judge(item, bytes, where);
      }
    }
  });

  it('lose nothing of what stands beside a bad item', async () => {
    const dice = new Dice(SEED + 2);
    for (let n = 0; n < rounds(600); n++) {
      const kind = dice.pick(['stock', 'product'] as const);
      const format = dice.pick(['json', 'ndjson'] as const);
      const rows = Array.from({ length: 2 + dice.below(8) }, (_, i) => change(kind, i, dice));
      const isBad = rows.map(() => dice.chance(0.4));
      const nodes = rows.map((row, i): JsonNode => {
        if (!isBad[i]) return nodeOf(row);
        return dice.chance(0.3) ? hostileValue(dice) : mutateJson(nodeOf(row), dice);
      });
      const text =
        format === 'json'
          ? `[${nodes.map(write).join(',')}]`
          : nodes.map((node) => `${write(node)}\n`).join('');
      const where = `round ${n}: ${text.slice(0, 2_000)}`;
      const bytes = Buffer.from(text);
      const reading = await read(kind, format, bytes.length > 20_000 ? [bytes] : pieces(bytes, dice));
      if ('refused' in reading) throw new Error(`${where}: ${reading.refused}`);
      expect(reading.items, where).toHaveLength(rows.length);
      reading.items.forEach((item, i) => {
        if (!isBad[i]) expect(item, where).toMatchObject({ change: rows[i] });
        else judge(item, Buffer.from(text), where);
      });
    }
  });
});

const COLUMNS = new Set([
  'externalId',
  'sku',
  'qty',
  'price',
  'name',
  'description',
  'show',
  'subsidiaryId',
  'subsidiaryExternalId',
]);

/** Checks that a change contains only allowed values, and that any other item has the reason why it is refused. */
function judge(item: Item, bytes: Buffer, where: string): void {
  if ('fault' in item) {
    expect(item.fault.message.length, where).toBeGreaterThan(0);
    expect(item.fault.message.length, where).toBeLessThan(2_000);
    return;
  }
  const taken = item.change as Record<string, unknown>;
  expect(
    Object.keys(taken).filter((key) => !COLUMNS.has(key)),
    where,
  ).toEqual([]);
  for (const id of [taken.externalId, taken.subsidiaryId, taken.subsidiaryExternalId]) {
    if (id === undefined) continue;
    expect(typeof id === 'string' && id.trim() !== '' && id.length <= 200 && id.isWellFormed(), where).toBe(
      true,
    );
    // The file contains the id letter by letter, unless it has escapes.
    if (!bytes.includes('\\')) expect(bytes.includes(String(id).replaceAll('"', '""')), where).toBe(true);
  }
  for (const value of [taken.qty, taken.price]) {
    if (value !== undefined)
      expect(typeof value === 'number' && value >= 0 && value <= Number.MAX_SAFE_INTEGER, where).toBe(true);
  }
}
