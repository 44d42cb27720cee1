import { existsSync } from 'node:fs';
import { openKeeper } from '../../store/mirror/open-connection.ts';
import { failed, type Outcome, warned } from './check.ts';

export interface MirrorFilesOptions {
  mirrorPath: string;
  /** null when it is not known. */
  running: boolean | null;
}

/**
 * The mirror's -wal and -shm, without which a POS of another user cannot read it while tillsync is stopped: whoever
 * closes last and may delete them does, such as a root sqlite3. Made anew where nothing runs; undefined when all
 * are there.
 */
export function mendMirrorFiles({ mirrorPath, running }: MirrorFilesOptions): Outcome | undefined {
  if (!existsSync(mirrorPath)) return undefined;
  const missing = [`${mirrorPath}-wal`, `${mirrorPath}-shm`].filter((path) => !existsSync(path));
  if (missing.length === 0) return undefined;
  const [which, was] = [missing.join(' and '), missing.length > 1 ? 'were' : 'was'];
  const facts = { missing };
  if (running !== false) {
    const message = `${which} ${was} deleted while tillsync runs, so what it wrote last may be lost at its next stop.`;
    return failed(message, 'Restart the service: {restart}', facts);
  }
  try {
    openKeeper(mirrorPath).close();
  } catch {
    // The next line tells.
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
