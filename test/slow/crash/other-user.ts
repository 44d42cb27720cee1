import { spawnSync } from 'node:child_process';
import { existsSync, statSync } from 'node:fs';
import path from 'node:path';
import { ROOT, type Workplace } from '../../support/workplace.ts';

/** Unix user that may read the mirror only because its process has the group of the storage directory. */
const POS_UID = 61_003;

const READ = `
  const Database = require(${JSON.stringify(path.join(ROOT, 'node_modules/better-sqlite3'))});
  const db = new Database(process.argv[1], { fileMustExist: true, readonly: true });
  db.prepare('SELECT count(*) FROM order_events').get();`;

/** Reads the mirror as a POS with another Unix user; returns the faults. Without root it checks nothing. */
export function otherUserFaults({ storage }: Pick<Workplace, 'storage'>): string[] {
  const mirror = path.join(storage, 'mirror.db');
  if (process.getuid?.() !== 0 || !existsSync(mirror)) return [];
  const { status, stderr, error } = spawnSync(process.execPath, ['-e', READ, mirror], {
    uid: POS_UID,
    gid: statSync(storage).gid,
    encoding: 'utf8',
    cwd: '/',
  });
  return status === 0 ? [] : [`another user cannot read the mirror: ${error ?? stderr}`];
}
