import { readFileSync } from 'node:fs';
import Database from 'better-sqlite3';
import { expect, it } from 'vitest';
import { openApi } from '../api/api-rig.ts';
import promised from './contract-1.json' with { type: 'json' };

const schema = readFileSync(
  new URL('../../src/db/mirror/migrations/0001-mirror.sql', import.meta.url),
  'utf8',
);
const POS = readFileSync(new URL('../../docs/pos.md', import.meta.url), 'utf8');
/** Views that docs/pos.md shows beside its table. */
const VIEWS = ['contract', 'orders_due', 'orders_to_book', 'orders_unbooked', 'outbox_references'];

interface Schema {
  properties?: Record<string, Schema & { $ref?: string }>;
  enum?: unknown[];
  items?: Schema;
  anyOf?: Schema[];
}

/**
 * Returns each property of a schema, such as `Order.status`, and each value that a property may have, such as
 * `Change.state: done`.
 */
function partsOf(name: string, { properties = {}, enum: values = [], items, anyOf = [] }: Schema): string[] {
  return [
    ...values.map((value) => `${name}: ${value}`),
    ...[items, ...anyOf].flatMap((inner) => (inner ? partsOf(name, inner) : [])),
    ...Object.entries(properties).flatMap(([key, inner]) => [
      `${name}.${key}`,
      ...partsOf(`${name}.${key}`, inner),
    ]),
  ];
}

it('what version 1 of the contract promised is all still there', async () => {
  const db = new Database(':memory:');
  db.exec(schema);
  expect(db.prepare('SELECT version, since FROM contract').all()).toEqual([
    { version: promised.version, since: '2026-11-24' },
  ]);
  expect(POS).toContain(`SELECT version FROM contract\` says ${promised.version}.`);
  const tables = db
    .prepare<[], string>("SELECT name FROM sqlite_schema WHERE type IN ('table', 'view')")
    .pluck()
    .all();
  const columns = tables.flatMap((table) =>
    db
      .prepare<[string], string>('SELECT name FROM pragma_table_info(?)')
      .pluck()
      .all(table)
      .map((column) => `${table}.${column}`),
  );
  db.close();
  expect(promised.columns.filter((column) => !columns.includes(column))).toEqual([]);
  for (const view of VIEWS)
    expect(promised.columns.some((column) => column.startsWith(`${view}.`))).toBe(true);

  const rig = await openApi({ isHub: true });
  const { components } = (await rig.call('/v1/openapi.json')).body;
  await rig.close();
  const api = Object.entries<Schema>(components.schemas).flatMap(([name, each]) => partsOf(name, each));
  expect(promised.api.length).toBeGreaterThan(200);
  expect(promised.api.filter((part) => !api.includes(part))).toEqual([]);
});
