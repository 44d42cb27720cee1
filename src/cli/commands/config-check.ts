import type { Command } from 'commander';
import type { Secrets } from '../../config/secrets.ts';
import type { Cli } from '../cli.ts';
import { EXIT } from '../exit-code.ts';
import { type GlobalOptions, type JsonOption, newResultCommand } from '../new-command.ts';
import { fields } from '../texts/table.ts';

/** `config check`: every fault of the configuration at once, and which secrets were handed in. */
export function configCheckCommand(cli: Cli): Command {
  return newResultCommand('check', 'Check configuration and secrets, every fault at once', [
    'config check',
    'config check --config ./config.toml --json',
  ]).action((_options, command: Command) => check(cli, command.optsWithGlobals()));
}

async function check(cli: Cli, options: GlobalOptions & JsonOption): Promise<void> {
  const { configError } = await import('../../config/config-fault.ts');
  const { readSetup } = await import('../../config/setup.ts');
  const result = readSetup({ file: options.config, env: cli.env });
  if ('faults' in result) cli.endWith(EXIT.usage);
  if (options.json) {
    const document =
      'faults' in result
        ? { ok: false, file: result.file, faults: result.faults }
        : {
            ok: true,
            file: result.file,
            faults: [],
            secrets: handedIn(result.secrets),
            config: result.config,
          };
    cli.stdout.write(`${JSON.stringify(document, null, 2)}\n`);
  } else if ('faults' in result) {
    const error = configError(result.faults);
    cli.stderr.write(`${error.message}\n${error.hint}\n`);
  } else {
    cli.stdout.write(`${result.file} is in order.\nSecrets handed in:\n`);
    const entries = Object.entries(handedIn(result.secrets));
    cli.stdout.write(fields(entries.map(([name, there]) => [`  ${name}`, there ? 'yes' : 'no'])));
  }
}

function handedIn(secrets: Secrets): Record<string, boolean> {
  return {
    'refresh-token': secrets.refreshToken !== undefined,
    'access-token': secrets.accessToken !== undefined,
    'webhook-secret': secrets.webhookSecrets.length > 0,
    'local-api-key': secrets.localApiKey !== undefined,
    'alarm-url': secrets.alarmUrl !== undefined,
    'alarm-token': secrets.alarmToken !== undefined,
  };
}
