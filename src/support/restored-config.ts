import { existsSync, readFileSync } from 'node:fs';
import { dirname } from 'node:path';
import { serviceUserOf } from '../app/installation.ts';
import { type ConfigOptions, loadConfig, readConfig } from '../config/config.ts';
import type { Config } from '../config/config-type.ts';
import { configError, configPath, isSetUp } from '../config/source.ts';
import { TillsyncError } from '../core/errors.ts';
import { replaceText } from '../core/files.ts';
import type { Clock } from '../core/time.ts';
import { makeDirectory, storing } from '../db/sqlite.ts';
import { CONFIG_FILE, readBackup } from './backup.ts';

/** Readable by the service's group alone; addresses in it may carry passwords. */
const MODE = 0o640;

/**
 * - `kept`: the machine has one, and the backup has the same or none
 * - `differs`: the machine has one, which stays; that of the backup is another
 * - `restored`: that of the backup, since the machine had none
 * - `replaced`: that of the backup, as it was asked for
 * - `set-up`: that of the backup, since the one here was never set up
 */
export type ConfigOrigin = 'kept' | 'differs' | 'restored' | 'replaced' | 'set-up';

export interface ConfigForRestore {
  /** What is in force after the restore. */
  config: Config;
  file: string;
  origin: ConfigOrigin;
  /**
   * Puts that of the backup in its place, if it is the one that counts. Returns where the one before is kept; null:
   * nothing was replaced. Throws `storage-…`.
   */
  write(): string | null;
}

export interface ConfigForRestoreOptions extends ConfigOptions {
  /** Path and descriptor of the backup. */
  backup: string;
  descriptor: number;
  /** Whether that of the backup takes the place of the machine's own. */
  takesIt: boolean;
  clock: Clock;
  signal?: AbortSignal | undefined;
}

/**
 * The configuration that a restore follows: the machine's own, or that of the backup where it is asked for, or the
 * machine has none that was set up. Writes nothing. Throws `config-invalid` and what readBackup throws.
 */
export async function configForRestore(options: ConfigForRestoreOptions): Promise<ConfigForRestore> {
  const { backup, descriptor, takesIt, clock, signal, env } = options;
  const file = configPath(options.file, env);
  const { text } = await readBackup(backup, { file: descriptor, text: CONFIG_FILE, signal });
  const isThere = existsSync(file);
  if (text === undefined && (takesIt || !isThere)) throw nothingToTake(file, isThere);
  const own = isThere && !takesIt ? loadConfig({ file, env }) : undefined;
  const isSame = text === undefined || (isThere && text === readFileSync(file, 'utf8'));
  if (isSame) return { config: own ?? loadConfig({ file, env }), file, origin: 'kept', write: () => null };
  if (own !== undefined && isSetUp(own)) {
    return { config: own, file, origin: 'differs', write: () => null };
  }
  const result = readConfig({ file, env, text });
  if ('faults' in result) throw configError(result.faults);
  const { config } = result;
  const origin = takesIt && isThere ? 'replaced' : isThere ? 'set-up' : 'restored';
  const write = () =>
    storing(() => {
      makeDirectory(dirname(file), 0o755);
      const owner = { mode: MODE, uid: 0, gid: serviceUserOf(file)?.gid ?? 0 };
      return replaceText({ path: file, text, owner, nowMs: clock.nowMs() }).keptAt;
    });
  return { config, file, origin, write };
}

function nothingToTake(file: string, isThere: boolean): TillsyncError {
  if (isThere) {
    return new TillsyncError('usage', 'The backup has no configuration. Nothing was changed.', {
      hint: 'Restore it without --with-config.',
    });
  }
  return new TillsyncError('config-invalid', `There is no configuration ${file}, and none in the backup.`, {
    hint: 'Write one ({tillsync} init), then restore again. Nothing was changed.',
  });
}
