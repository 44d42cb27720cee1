import { appendFileSync, existsSync, linkSync, readFileSync, rmSync } from 'node:fs';
import { dirname } from 'node:path';
import { type ConfigOptions, loadConfig, readConfig } from '../../config/config.ts';
import { configError } from '../../config/config-fault.ts';
import { DEFAULT_CONFIG_FILE } from '../../config/config-source.ts';
import type { Config } from '../../config/config-type.ts';
import { TillsyncError } from '../../domain/errors.ts';
import { makeDirectory } from '../../store/make-directory.ts';
import { createWithMode, storing, syncPath } from '../../store/sqlite.ts';
import { CONFIG_FILE } from './manifest.ts';
import { readBackup } from './read-backup.ts';

/** Readable by a group that the operator gives it; addresses in it may carry passwords. */
const MODE = 0o640;

export interface ConfigForRestore {
  config: Config;
  file: string;
  /**
   * - `kept`: the machine has one, and the backup has the same or none
   * - `differs`: the machine has one, which stays; that of the backup is another
   * - `restored`: the machine had none
   */
  origin: 'kept' | 'differs' | 'restored';
}

/**
 * The configuration that a restore follows: the machine's own, else that of the backup, which is then written where
 * the machine's belongs. Throws `config-invalid` and what readBackup throws; then nothing was written.
 */
export async function configForRestore(
  options: ConfigOptions & { backup: string; signal?: AbortSignal | undefined },
): Promise<ConfigForRestore> {
  const { backup, signal, env } = options;
  const file = options.file ?? (env.TILLSYNC_CONFIG || DEFAULT_CONFIG_FILE);
  const { text } = await readBackup(backup, { text: CONFIG_FILE, signal });
  if (existsSync(file)) {
    const config = loadConfig({ file, env });
    const isSame = text === undefined || text === readFileSync(file, 'utf8');
    return { config, file, origin: isSame ? 'kept' : 'differs' };
  }
  if (text === undefined) {
    throw new TillsyncError('config-invalid', `There is no configuration ${file}, and none in the backup.`, {
      hint: 'Write one (tillsync init), then restore again. Nothing was changed.',
    });
  }
  return { config: writeConfig(file, text, env), file, origin: 'restored' };
}

/** Under its name only when it is one that tillsync starts with. */
function writeConfig(file: string, text: string, env: ConfigOptions['env']): Config {
  return storing(() => {
    makeDirectory(dirname(file), 0o755);
    const part = `${file}.part-${process.pid}`;
    createWithMode(part, MODE);
    try {
      appendFileSync(part, text);
      const result = readConfig({ file: part, env });
      if ('faults' in result) throw configError(result.faults);
      syncPath(part);
      linkSync(part, file);
      return result.config;
    } finally {
      rmSync(part, { force: true });
      syncPath(dirname(file));
    }
  });
}
