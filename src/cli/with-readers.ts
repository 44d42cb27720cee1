import type { Config } from '../config/config-type.ts';
import type { Readers } from '../daemon/reading/readers.ts';
import { hasCode } from '../domain/errors.ts';
import type { Cli } from './cli.ts';
import type { GlobalOptions } from './new-command.ts';

/** For commands that only look: opens what is stored, lets `use` look, and closes it whatever happens. */
export async function withReaders<T>(
  cli: Cli,
  options: GlobalOptions,
  use: (readers: Readers, config: Config) => Promise<T> | T,
): Promise<T> {
  // Loaded here, so that help and usage faults come at once.
  const { loadConfig } = await import('../config/config.ts');
  const { isSetUp, notSetUp } = await import('../config/sample-config.ts');
  const { openReaders } = await import('../daemon/reading/readers.ts');
  const { becomeStorageUser } = await import('../daemon/storage/storage-user.ts');
  const { configPath } = await import('../config/config-source.ts');
  const config = loadConfig({ file: options.config, env: cli.env });
  const configFile = configPath(options.config, cli.env);
  becomeStorageUser({ directory: config.storage.directory, configFile, writes: false });
  const readers = await openReaders({ config, clock: cli.clock }).catch((error: unknown) => {
    throw hasCode(error, 'not-found') && !isSetUp(config) ? notSetUp() : error;
  });
  try {
    return await use(readers, config);
  } finally {
    await readers.close();
  }
}
