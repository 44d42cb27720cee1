import type { Config } from '../config/config-type.ts';
import type { Parts } from '../daemon/parts.ts';
import type { Log } from '../domain/log.ts';
import type { Cli } from './cli.ts';
import type { GlobalOptions } from './new-command.ts';
import { Progress } from './progress.ts';

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
  const { loadSetup } = await import('../config/setup.ts');
  const { openParts } = await import('../daemon/parts.ts');
  const { createLogger } = await import('../daemon/log/logger.ts');
  const { clock, random, signal, stderr } = cli;
  const { config, secrets } = loadSetup({ file: options.config, env: cli.env });
  const progress = new Progress({ stream: stderr, clock });
  const { log, registerSecret } = createLogger({
    level: 'error',
    pretty: true,
    stream: { isTTY: stderr.isTTY, write: (text) => progress.note(text.trimEnd()) },
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
  } finally {
    progress.end();
    await parts.close();
  }
}
