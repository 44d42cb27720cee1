import { accessSync, constants, lstatSync } from 'node:fs';
import { whenFree } from '../../domain/busy.ts';
import { hasCode } from '../../domain/errors.ts';
import { formatBytes } from '../../domain/health/disk-space.ts';
import type { Clock } from '../../domain/time/clock.ts';
import { type DatabaseHealth, databaseHealth } from '../../store/database-health.ts';
import type { InboxHealth } from '../../store/inbox/inbox-message.ts';
import { lookIntoInbox } from '../storage/look-into-inbox.ts';
import type { StoragePaths } from '../storage/storage-directory.ts';
import { type Check, type CheckId, failed, hidden, type Outcome, skipped, warned, well } from './check.ts';

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
  state: `${LOOK_AGAIN}stop tillsync, move state.db away, start it and hand in new tokens with: {tillsync} auth set`,
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
    return hidden(`You do not have permission to read ${path}.`, { path });
  }
}

/** Whether each database is sound and of this version. */
export function databaseChecks(paths: StoragePaths, clock: Clock, signal: AbortSignal): Check[] {
  const look = {
    mirror: () => whenFree(clock, () => databaseHealth(paths.mirror, 'mirror')),
    state: () => whenFree(clock, () => databaseHealth(paths.state, 'state')),
    inbox: () => lookIntoInbox({ path: paths.inbox, clock, signal }, (ask) => ask({ do: 'health' })),
  };
  return (['mirror', 'state', 'inbox'] as const).map((kind) => ({
    id: IDS[kind],
    run: () => judge(kind, paths[kind], look[kind]),
  }));
}

async function judge(
  kind: Kind,
  path: string,
  look: () => Promise<DatabaseHealth | InboxHealth>,
): Promise<Outcome> {
  const away = lockedAway(path);
  if (away) return away;
  if (!lstatSync(path, { throwIfNoEntry: false })) {
    return skipped(`There is no ${path} yet.`, 'Start tillsync, which makes it.', { path });
  }
  let health: DatabaseHealth | InboxHealth;
  try {
    health = await look();
  } catch (error) {
    if (!hasCode(error, 'storage-corrupt')) throw error;
    return failed(error.message, MAKES_IT_ANEW[kind], { path });
  }
  const { bytes, damage, readThrough } = health;
  const schema = 'schema' in health ? health.schema : null;
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
    return warned(message, 'Restart the service, which brings it up to date: {restart}', facts);
  }
  const sound = readThrough ? 'sound' : 'too large to be read through in a moment';
  return well(`${path}: ${size}, ${sound}.`, facts);
}
