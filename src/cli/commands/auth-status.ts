import type { Command } from 'commander';
import type { Cli } from '../cli.ts';
import { EXIT } from '../exit-code.ts';
import { type GlobalOptions, type JsonOption, newResultCommand } from '../new-command.ts';
import { writeJson } from '../output.ts';
import { authReport } from '../texts/auth-text.ts';

/** `auth status`: what may be told of the tokens; ends with 4 when a person has to bring new ones. */
export function authStatusCommand(cli: Cli): Command {
  return newResultCommand('status', 'Tell how the tokens fare, without showing them', [
    'auth status',
    'auth status --json',
  ]).action((_options, command: Command) => status(cli, command.optsWithGlobals()));
}

async function status(cli: Cli, options: GlobalOptions & JsonOption): Promise<void> {
  const { loadConfig } = await import('../../config/config.ts');
  const { configPath } = await import('../../config/config-source.ts');
  const { becomeStorageUser } = await import('../../daemon/storage/storage-user.ts');
  const { storedTokens } = await import('../../daemon/reading/stored-tokens.ts');
  const config = loadConfig({ file: options.config, env: cli.env });
  const configFile = configPath(options.config, cli.env);
  becomeStorageUser({ directory: config.storage.directory, configFile, writes: false });
  const tokens = await storedTokens({ config, clock: cli.clock });
  const report = authReport(tokens, cli.clock.nowMs());
  if (report.needsNewTokens) cli.endWith(EXIT.authRequired);
  if (options.json) writeJson(cli, report);
  else cli.stdout.write(`${report.message}\n`);
}
