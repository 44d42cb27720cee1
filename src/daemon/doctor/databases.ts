import { accessSync, constants, existsSync } from 'node:fs';
import { whenFree } from '../../domain/busy.ts';
import { hasCode } from '../../domain/errors.ts';
import { formatBytes } from '../../domain/health/disk-space.ts';
import type { Clock } from '../../domain/time/clock.ts';
import { type DatabaseHealth, databaseHealth } from '../../store/database-health.ts';
import type { StoragePaths } from '../storage/storage-directory.ts';
import { type Check, type CheckId, failed, type Outcome, skipped, warned, well } from './check.ts';

type Kind = 'mirror' | 'state' | 'inbox';

const IDS: Record<Kind, CheckId> = {
  mirror: 'storage.mirror',
  state: 'storage.state',
  inbox: 'storage.inbox',
};
const NAMES: Record<Kind, string> = { mirror: 'mirror.db', state: 'state.db', inbox: 'inbox.db' };
/** SQLite tells a disk that cannot be read for a moment as damage, too. */
const LOOK_AGAIN =
  'A failing disk looks the same: see to it first (dmesg), and run doctor again. If it stays: ';
const MAKES_IT_ANEW: Record<Kind, string> = {
  mirror: `${LOOK_AGAIN}stop tillsync, move mirror.db with its -wal and -shm away, and start it: it reads orders and catalogue anew.`,
  state: `${LOOK_AGAIN}stop tillsync, move state.db away, start it and hand in new tokens with: tillsync auth set`,
  inbox:
    'Nothing to do: a running tillsync moves it away and makes a new one. Hand over what the POS wrote last again.',
};

/** Whether this user may look into the file; else why not. */
export function lockedAway(path: string): Outcome | undefined {
  try {
    accessSync(path, constants.R_OK);
    return undefined;
  } catch (error) {
    const code = error instanceof Error && 'code' in error ? error.code : undefined;
    if (code !== 'EACCES' && code !== 'EPERM') return undefined;
    return skipped(
      `${path} belongs to another user, and this one may not look into it.`,
      'Run it as root, or as the user of the service: sudo -u tillsync tillsync doctor',
      { path },
    );
  }
}

/** Whether each database is sound and of this version. */
export function databaseChecks(paths: StoragePaths, clock: Clock): Check[] {
  return (['mirror', 'state', 'inbox'] as const).map((kind) => ({
    id: IDS[kind],
    run: () => judge(kind, paths[kind], clock),
  }));
}

async function judge(kind: Kind, path: string, clock: Clock): Promise<Outcome> {
  const away = lockedAway(path);
  if (away) return away;
  if (!existsSync(path)) {
    return skipped(`There is no ${path} yet.`, 'Start tillsync, which makes it.', { path });
  }
  let health: DatabaseHealth;
  try {
    health = await whenFree(clock, () => databaseHealth(path, kind));
  } catch (error) {
    if (!hasCode(error, 'storage-corrupt')) throw error;
    return failed(error.message, MAKES_IT_ANEW[kind], { path });
  }
  const { bytes, schema, damage, readThrough } = health;
  const facts = { path, ...health };
  if (damage !== null) {
    return failed(`${path} is damaged: ${damage}. It was left as it is.`, MAKES_IT_ANEW[kind], facts);
  }
  const size = formatBytes(bytes);
  if (schema && schema.applied > schema.known) {
    const message = `${NAMES[kind]} was written by a newer tillsync, and this one leaves it alone.`;
    return failed(
      message,
      'Install the newer tillsync again, or restore the copy kept before the upgrade.',
      facts,
    );
  }
  if (schema && schema.applied < schema.known) {
    const message = `${NAMES[kind]} is still as an older tillsync made it.`;
    return warned(
      message,
      'Restart the service, which brings it up to date: systemctl restart tillsync',
      facts,
    );
  }
  const sound = readThrough ? 'sound' : 'too large to be read through in a moment';
  return well(`${path}: ${size}, ${sound}.`, facts);
}
