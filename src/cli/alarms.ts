import type { Command } from 'commander';
import {
  type Cli,
  EXIT,
  type GlobalOptions,
  type JsonOption,
  newResultCommand,
  printable,
  writeJson,
} from './cli.ts';

/** `alarms test`: whether alarms would reach the configured command and address. */
export function alarmsTestCommand(cli: Cli): Command {
  return newResultCommand('test', 'Send a test alarm to the configured command and address', [
    'alarms test',
    'alarms test --json',
  ]).action((_options, command: Command) => test(cli, command.optsWithGlobals()));
}

async function test(cli: Cli, options: GlobalOptions & JsonOption): Promise<void> {
  const { configPath } = await import('../config/source.ts');
  const { becomeStorageUser } = await import('../app/installation.ts');
  const { loadSetup } = await import('../config/config.ts');
  const { runningTest, testAlarms } = await import('../app/alarm-test.ts');
  const { config, secrets } = loadSetup({ file: options.config, env: cli.env });
  const { clock, signal } = cli;
  const configFile = configPath(options.config, cli.env);
  becomeStorageUser({ directory: config.storage.directory, configFile, writes: false });
  const byDaemon = await runningTest({ config, clock, signal });
  const results = byDaemon ?? (await testAlarms({ config, secrets, env: cli.env, clock, signal }));
  if (results.some(({ ok }) => !ok)) cli.endWith(EXIT.failed);
  if (options.json) {
    writeJson(cli, { ok: results.every(({ ok }) => ok), by: byDaemon ? 'daemon' : 'command', results });
    return;
  }
  for (const { description, ok, message } of results) {
    const words = ok ? 'a test alarm was taken' : message;
    cli.stdout.write(`${ok ? 'ok    ' : 'FAILED'}  ${printable(`${description}: ${words}`)}\n`);
  }
  cli.stderr.write(
    byDaemon
      ? 'The running tillsync sent it, as it sends its alarms.\n'
      : 'tillsync is not running, so this command sent it, with the rights of this user.\n',
  );
}
