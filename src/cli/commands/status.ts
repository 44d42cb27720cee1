import type { Command } from 'commander';
import type { Config } from '../../config/config-type.ts';
import type { Readers, TokenStatus } from '../../daemon/reading/readers.ts';
import { shopName } from '../../daemon/shop-name.ts';
import { whenFree } from '../../domain/busy.ts';
import { hasCode, TillsyncError } from '../../domain/errors.ts';
import { isoUtc } from '../../domain/time/clock.ts';
import type { Cli } from '../cli.ts';
import { type GlobalOptions, type JsonOption, newResultCommand } from '../new-command.ts';
import { writeJson } from '../output.ts';
import { authReport } from '../texts/auth-text.ts';
import { type StatusReport, statusText } from '../texts/status-text.ts';
import { withReaders } from '../with-readers.ts';

interface StatusOptions extends GlobalOptions, JsonOption {
  watch?: boolean;
}

const WATCH_EVERY_MS = 2000;
const CLEAR_SCREEN = '\u001b[H\u001b[2J';

/** `status`: how every flow fares, from what is stored; the daemon need not run. */
export function statusCommand(cli: Cli): Command {
  return newResultCommand('status', 'Tell how fresh the data is, what is wrong and what is waited for', [
    'status',
    'status --watch',
    'status --json',
  ])
    .option('--watch', 'show it anew every two seconds until Ctrl-C')
    .action((_options, command: Command) => status(cli, command.optsWithGlobals()));
}

function status(cli: Cli, options: StatusOptions): Promise<void> {
  if (options.json && options.watch) {
    throw new TillsyncError('usage', '--json prints one document, so it cannot be watched.');
  }
  return withReaders(cli, options, async (readers, config) => {
    const { storedVerdict } = await import('../../daemon/reading/stored-verdict.ts');
    for (;;) {
      const report = await whenFree(
        cli.clock,
        () => statusOf(cli, readers, config, storedVerdict),
        undefined,
        cli.signal,
      );
      if (options.json) writeJson(cli, report);
      else cli.stdout.write((options.watch && cli.stdout.isTTY ? CLEAR_SCREEN : '') + statusText(report));
      if (!options.watch) return;
      await cli.clock.sleep(WATCH_EVERY_MS, cli.signal);
      if (cli.signal.aborted) return;
      if (!cli.stdout.isTTY) cli.stdout.write('\n');
    }
  });
}

type Judge = typeof import('../../daemon/reading/stored-verdict.ts').storedVerdict;

function statusOf(cli: Cli, readers: Readers, config: Config, judge: Judge): StatusReport {
  const { mirror } = readers;
  const { clock } = cli;
  const nowMs = clock.nowMs();
  const { tokens, stateFault, ...state } = tokensAndWaits(readers, nowMs);
  return {
    at: isoUtc(nowMs),
    shop: shopName(config),
    storage: config.storage.directory,
    ...judge({ readers, config, clock, tokens, stateFault, running: state.running }),
    freshness: mirror.freshness(),
    alarms: readers.alarms(),
    ...state,
    counts: readers.counts(),
  };
}

/** state.db belongs to the daemon's user alone; the rest is told without it. */
function tokensAndWaits(
  readers: Readers,
  nowMs: number,
): Pick<StatusReport, 'running' | 'auth' | 'authFault' | 'waits'> & {
  tokens: TokenStatus | null;
  stateFault: string | null;
} {
  try {
    const running = readers.isRunning();
    const tokens = readers.tokens();
    return { running, tokens, stateFault: null, auth: authReport(tokens, nowMs), waits: readers.waits() };
  } catch (error) {
    if (!(error instanceof TillsyncError) || error.code === 'storage-busy') throw error;
    const { message } = error;
    // What another user may not look into is no fault.
    const stateFault = hasCode(error, 'storage-corrupt', 'storage-newer') ? message : null;
    return { running: null, tokens: null, stateFault, auth: null, authFault: message, waits: [] };
  }
}
