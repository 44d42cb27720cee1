import { readdirSync, readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import Database from 'better-sqlite3';
import { expect, it, onTestFinished } from 'vitest';
import { openWorkplace, until } from '../support/workplace.ts';

const PAGE_BYTES = 4096;

it('an inbox that is damaged where nobody reads is set aside and told of, and the next row arrives', async () => {
  const place = await openWorkplace(29);
  onTestFinished(() => place.close());
  const file = path.join(place.storage, 'inbox', 'inbox.db');
  const using = <T>(action: (db: Database.Database) => T): T => {
    const db = new Database(file, { fileMustExist: true });
    try {
      return action(db);
    } finally {
      db.close();
    }
  };
  const isThere = () => {
    try {
      return using((db) => db.prepare('SELECT count(*) FROM stock_changes').pluck().get()) === 0;
    } catch {
      return false;
    }
  };
  const first = await place.run();
  await until('the inbox is there', isThere);
  await first.end('SIGTERM');

  // Appends a page that belongs to no table, and adds it to the number of pages in the header. Every query still works;
  // only a check of the whole file finds the page.
  const bytes = Buffer.concat([readFileSync(file), Buffer.alloc(PAGE_BYTES)]);
  bytes.writeUInt32BE(bytes.readUInt32BE(28) + 1, 28);
  writeFileSync(file, bytes);
  expect(using((db) => db.prepare('SELECT count(*) FROM stock_changes').pluck().get())).toBe(0);

  await place.run();
  await until('it is set aside and there is another', () => {
    const kept = readdirSync(path.dirname(file)).filter((name) => name.startsWith('inbox.db.damaged-'));
    return kept.length === 1 && isThere();
  });
  using((db) => db.exec("INSERT INTO stock_changes (external_id, qty) VALUES ('A-1001-1', 7)"));
  await until('the count is there', () => place.sandbox.control.stockOf(1001, 'sub-1') === 7);
});
