import { existsSync } from 'node:fs';
import { type LockHolder, namesOf } from '../../db/file-locks.ts';
import { openKeeper } from '../../db/mirror-connection.ts';
import { WAL_BYTES_MAX } from '../../db/wal.ts';
import { formatBytes } from '../../health/facts.ts';
import { FINDINGS } from '../../health/findings.ts';
import { type CheckOutcome, failed, hidden, warned, well } from './check.ts';

/**
 * Restores a stopped mirror's -wal and -shm, without which a POS of another user cannot read it. The last process that
 * closes the mirror deletes them if it may, for example root's sqlite3. `running` says whether the daemon runs; null if
 * unknown. Returns undefined if no file is missing.
 */
export function mendMirrorFiles(mirrorPath: string, running: boolean | null): CheckOutcome | undefined {
  if (!existsSync(mirrorPath)) return undefined;
  const missing = [`${mirrorPath}-wal`, `${mirrorPath}-shm`].filter((path) => !existsSync(path));
  if (missing.length === 0) return undefined;
  const [which, was] = [missing.join(' and '), missing.length > 1 ? 'were' : 'was'];
  const facts = { missing };
  if (running === null) {
    return hidden(`${which} ${was} deleted. You do not have permission to see whether tillsync runs.`, facts);
  }
  if (running) {
    const message = `${which} ${was} deleted while tillsync runs, so what it wrote last may be lost at its next stop.`;
    return failed(message, 'Restart the service: {restart}', facts);
  }
  try {
    openKeeper(mirrorPath).close();
  } catch {
    // The check below reports a missing file.
  }
  if (missing.some((path) => !existsSync(path))) {
    const message = `Without ${which} a POS of another user cannot read the mirror while tillsync is stopped.`;
    return failed(message, 'Start tillsync, or run this as root: both make them anew.', facts);
  }
  return warned(
    `${which} ${was} missing, so a POS of another user could not read the mirror; that was made anew just now.`,
    'Look into a stopped mirror with sqlite3 -readonly, and not as root: whoever closes last deletes these files.',
    { ...facts, madeAnew: true },
  );
}

/** Reports the programs with an open read of the mirror (`held`). `logBytes` is the size of -wal. */
export function readersOutcome(held: readonly LockHolder[], logBytes: number): CheckOutcome {
  const facts = { logBytes, logMaxBytes: WAL_BYTES_MAX, readers: held };
  const names = namesOf(held);
  const log = `write log: ${formatBytes(logBytes)}`;
  if (held.length === 0) return well(`No program is blocking the database (${log}).`, facts);
  if (logBytes <= WAL_BYTES_MAX) {
    const message = `Reading the database now: ${names} (${log}). That does no harm unless it takes long.`;
    return well(message, facts);
  }
  const { message, remedy } = FINDINGS['mirror.reader-holds-wal'];
  return warned(`${message} It is held by ${names} (${log}).`, remedy, facts);
}
