import type { Parts } from '../app/parts.ts';
import type { Readers } from '../app/readers.ts';
import type { Config } from '../config/config-type.ts';
import { hasCode } from '../core/errors.ts';
import type { Log } from '../core/log.ts';
import type { Cli, GlobalOptions } from './cli.ts';
import { Progress } from './progress.ts';

/** For commands that only look: opens what is stored, lets `use` look, and closes it whatever happens. */
export async function withReaders<T>(
  cli: Cli,
  options: GlobalOptions,
  use: (readers: Readers, config: Config) => Promise<T> | T,
): Promise<T> {
  // Loaded here, so that help and usage faults come at once.
  const { loadConfig } = await import('../config/config.ts');
  const { isSetUp, notSetUp } = await import('../config/source.ts');
  const { openReaders } = await import('../app/readers.ts');
  const { becomeStorageUser } = await import('../app/installation.ts');
  const { configPath } = await import('../config/source.ts');
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

/** What a command that calls the platform works with. */
export interface CommandTools {
  parts: Parts;
  config: Config;
  progress: Progress;
  /** What the parts log to; warnings are for the daemon's log, errors show above the progress line. */
  log: Log;
  /** Ends waits and calls at Ctrl-C, and shows on the progress line what is waited for. */
  call: { signal: AbortSignal; onWait: Progress['wait'] };
}

/**
 * For commands that change something or call the platform: builds the daemon's own parts, so that the same
 * budget, token pair and merge hold beside a running daemon. Warnings of the parts go to standard error.
 */
export async function withParts<T>(
  cli: Cli,
  options: GlobalOptions,
  use: (tools: CommandTools) => Promise<T>,
): Promise<T> {
  const { secretValues } = await import('../config/secrets.ts');
  const { isSetUp, notSetUp } = await import('../config/source.ts');
  const { loadSetup } = await import('../config/config.ts');
  const { openParts } = await import('../app/parts.ts');
  const { becomeStorageUser } = await import('../app/installation.ts');
  const { requireRights } = await import('../app/installation.ts');
  const { configPath } = await import('../config/source.ts');
  const { createLogger } = await import('../core/logger.ts');
  const { clock, random, signal, stderr } = cli;
  const { config, secrets } = loadSetup({ file: options.config, env: cli.env });
  if (!isSetUp(config)) throw notSetUp();
  const configFile = configPath(options.config, cli.env);
  becomeStorageUser({ directory: config.storage.directory, configFile, writes: true });
  requireRights(config.storage.directory, 'write');
  const progress = new Progress({ stream: stderr, clock });
  const noted: string[] = [];
  const { log, registerSecret } = createLogger({
    level: 'error',
    pretty: false,
    stream: { write: (line) => noted.push(noteOf(line)) },
    clock,
    secrets: secretValues(secrets),
  });
  const parts = await openParts({ config, secrets, clock, random, log, onSecret: registerSecret });
  try {
    return await use({
      parts,
      config,
      progress,
      log,
      call: { signal, onWait: (wait) => progress.wait(wait) },
    });
  } catch (error) {
    // The error itself is told by whoever catches it.
    if (error instanceof Error) remove(noted, error.message);
    throw error;
  } finally {
    for (const note of noted) progress.note(note);
    progress.end();
    await parts.close();
  }
}

/** What a person reads of a line of the log. */
function noteOf(line: string): string {
  const { msg, err } = JSON.parse(line) as { msg?: string; err?: { message?: string } };
  return [msg, err?.message].filter((part) => part !== undefined).join(' ');
}

function remove(notes: string[], told: string): void {
  const at = notes.indexOf(told);
  if (at >= 0) notes.splice(at, 1);
}
