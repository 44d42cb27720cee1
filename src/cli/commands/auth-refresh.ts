import type { Command } from 'commander';
import type { Cli } from '../cli.ts';
import { type GlobalOptions, type JsonOption, newResultCommand } from '../new-command.ts';
import { writeJson } from '../output.ts';
import { authReport } from '../texts/auth-text.ts';
import { withParts } from '../with-parts.ts';

/** `auth refresh`: exchanges the pair for a new one now, which shows whether the tokens are good. */
export function authRefreshCommand(cli: Cli): Command {
  return newResultCommand('refresh', 'Exchange the tokens for new ones now', [
    'auth refresh',
    'auth refresh --json',
  ]).action((_options, command: Command) => refresh(cli, command.optsWithGlobals()));
}

function refresh(cli: Cli, options: GlobalOptions & JsonOption): Promise<void> {
  return withParts(cli, options, async ({ parts, progress, call }) => {
    progress.step('asking the platform for new tokens');
    await parts.platform.tokens.refresh(call);
    parts.mirror.freshnessBoard.ok('auth');
    progress.end();
    const report = authReport(parts.platform.tokens.describe(), cli.clock.nowMs());
    if (options.json) writeJson(cli, report);
    else cli.stdout.write(`${report.message}\n`);
  });
}
