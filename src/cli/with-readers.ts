import type { Config } from '../config/config-type.ts';
import type { Readers } from '../daemon/reading/readers.ts';
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
  const { openReaders } = await import('../daemon/reading/readers.ts');
  const config = loadConfig({ file: options.config, env: cli.env });
  const readers = await openReaders({ config, clock: cli.clock });
  try {
    return await use(readers, config);
  } finally {
    await readers.close();
  }
}
