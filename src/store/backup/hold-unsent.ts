import type Database from 'better-sqlite3';
import type { Guard } from '../../domain/change/guard-rails.ts';
import { OutboxLine } from '../outbox/outbox-line.ts';
import { LINE_COLUMNS, type LineRow } from '../outbox/outbox-row.ts';

const MESSAGE = 'From a restored backup: the platform may have a newer value, so a person decides.';
const RESTORED: Guard = 'restored';

/**
 * Holds every change that a restored mirror had not sent, or not heard back of, one for each target as in the line:
 * sent by themselves they would put older values over what the platform has by now. Returns how many are held.
 * Within the caller's transaction.
 */
export function holdUnsent(db: Database.Database, at: string): number {
  const line = new OutboxLine(db);
  line.begin();
  const rows = (where: string) =>
    db.prepare<[], LineRow>(`SELECT ${LINE_COLUMNS} FROM outbox WHERE ${where} ORDER BY version DESC`).all();
  for (const row of rows("state = 'sending'")) line.putBack(row, MESSAGE, at);
  // A change that a guard rail held stays held by it, whatever it is joined with.
  const guards = new Map<number, Guard>();
  const heldBefore = rows("state = 'pending' AND held_guard IS NOT NULL");
  for (const row of heldBefore) {
    guards.set(row.changeId, row.heldGuard ?? RESTORED);
    line.release(row, MESSAGE, at);
  }
  const hold = db.prepare('UPDATE outbox SET held_guard = ?, message = ? WHERE change_id = ?');
  const waiting = rows("state = 'pending' AND held_guard IS NULL");
  for (const { changeId } of waiting) hold.run(guards.get(changeId) ?? RESTORED, MESSAGE, changeId);
  return waiting.length;
}
