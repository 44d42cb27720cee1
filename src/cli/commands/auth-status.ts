import type { Command } from 'commander';
import { whenFree } from '../../domain/busy.ts';
import { authReport } from '../auth-text.ts';
import type { Cli } from '../cli.ts';
import { EXIT } from '../exit-code.ts';
import { type GlobalOptions, type JsonOption, newResultCommand } from '../new-command.ts';
import { writeJson } from '../output.ts';
import { withReaders } from '../with-readers.ts';

/** `auth status`: what may be told of the tokens; ends with 4 when a person has to bring new ones. */
export function authStatusCommand(cli: Cli): Command {
  return newResultCommand('status', 'Tell how the tokens fare, without showing them', [
    'auth status',
    'auth status --json',
  ]).action((_options, command: Command) => status(cli, command.optsWithGlobals()));
}

function status(cli: Cli, options: GlobalOptions & JsonOption): Promise<void> {
  return withReaders(cli, options, async (readers) => {
    const report = authReport(await whenFree(cli.clock, () => readers.tokens()), cli.clock.nowMs());
    if (report.state !== 'ok') cli.endWith(EXIT.authRequired);
    if (options.json) writeJson(cli, report);
    else cli.stdout.write(`${report.message}\n`);
  });
}
