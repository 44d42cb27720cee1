import { cpSync, mkdirSync, mkdtempSync, readdirSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { pathToFileURL } from 'node:url';
import Database from 'better-sqlite3';
import { afterEach, expect, it } from 'vitest';
import { migrate } from '../../src/db/migrate.ts';
import { openDatabase } from '../../src/db/sqlite.ts';
import { ROOT, type Workplace } from '../support/workplace.ts';
import { integrityOf, openFaultPlace, rowsOf } from './support/fault-place.ts';
import { faultyDisk } from './support/faulty-disk.ts';

const MIGRATIONS = path.join(ROOT, 'src/db/mirror/migrations');
const ORDER =
  "INSERT INTO order_events (order_id, status, source, observed_at) VALUES ('o1', 'ready', 'poll', '2026-01-01T00:00:00.000Z')";

let place: Workplace;
afterEach(() => place.close());

/** A mirror as the first version left it, with one event in it. */
function oldMirror(directory: string): string[] {
  const steps = mkdtempSync(path.join(tmpdir(), 'tillsync-steps-'));
  const names = readdirSync(MIGRATIONS)
    .filter((name) => name.endsWith('.sql'))
    .sort();
  cpSync(path.join(MIGRATIONS, names[0] as string), path.join(steps, names[0] as string));
  const file = path.join(directory, 'mirror.db');
  const db = openDatabase({ path: file, mode: 0o640, busyTimeoutMs: 50, pragmas: { journal_mode: 'wal' } });
  migrate(db, { directory: pathToFileURL(`${steps}/`), name: 'mirror.db' });
  db.exec(ORDER);
  db.close();
  rmSync(steps, { recursive: true });
  return names.map((name) => name.replace('.sql', ''));
}

it('an upgrade killed at any step leaves the old schema or the new one, and is done by the next start', async () => {
  place = await openFaultPlace();
  const disk = faultyDisk(place);
  const source = path.join(place.directory, 'old');
  mkdirSync(source);
  const names = oldMirror(source);
  expect(names.length).toBeGreaterThan(2);
  const applied = () =>
    rowsOf<{ name: string }>(place, 'SELECT name FROM schema_migrations ORDER BY number').map(
      ({ name }) => name,
    );
  const seen = new Set<number>();
  let step = 1;
  for (let killed = true; killed; step += step < 8 ? 1 : Math.ceil(step / 4)) {
    for (const name of readdirSync(place.storage).filter((each) => each.startsWith('mirror.db'))) {
      rmSync(path.join(place.storage, name));
    }
    cpSync(source, place.storage, { recursive: true });
    disk.begin('kill-at-step', `${step} mirror.db`);
    const { code } = await place.command('sync', 'orders');
    killed = code === null;
    const [first, ...rest] = applied();
    expect([first, ...rest]).toEqual(names.slice(0, rest.length + 1));
    expect([1, names.length]).toContain(rest.length + 1);
    seen.add(rest.length + 1);
    expect(integrityOf(place)).toBe('ok');
    expect(rowsOf(place, 'SELECT order_id FROM order_events')).toEqual([{ order_id: 'o1' }]);
    for (const name of readdirSync(place.storage).filter((each) => each.endsWith('.before-upgrade'))) {
      const copy = new Database(path.join(place.storage, name), { readonly: true });
      expect(copy.prepare('SELECT order_id FROM order_events').pluck().all()).toEqual(['o1']);
      copy.close();
    }
    disk.end('kill-at-step');
    if (!killed) break;
    expect(await place.command('sync', 'orders')).toMatchObject({ code: 0 });
    expect(applied()).toEqual(names);
    expect(rowsOf(place, 'SELECT order_id FROM order_events')).toEqual([{ order_id: 'o1' }]);
  }
  expect(step).toBeGreaterThan(10);
  expect([...seen].toSorted()).toEqual([1, names.length]);
}, 120_000);
