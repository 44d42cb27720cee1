import Database from 'better-sqlite3';
import { tempMirror } from '../../outbox/outbox-fixture.ts';

/** Opens the mirror with its schema in memory, because nothing here is about the disk. */
export function inMemory(): Database.Database {
  const made = tempMirror();
  made.pragma('journal_mode = delete');
  // Pages are small, because the changes of a step are copied back page by page.
  made.pragma('page_size = 1024');
  made.exec('VACUUM');
  const db = new Database(made.serialize());
  db.pragma('recursive_triggers = on');
  return db;
}
