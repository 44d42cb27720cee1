import { Command, CommanderError } from 'commander';
import { programVersion } from '../app/installation.ts';
import { asTillsyncError, setInstallation, TillsyncError } from '../core/errors.ts';
import { alarmsTestCommand } from './alarms.ts';
import { authRefreshCommand, authSetCommand, authStatusCommand } from './auth.ts';
import { backupCommand, restoreCommand } from './backup.ts';
import { bundleCommand } from './bundle.ts';
import { callbacksTailCommand } from './callbacks.ts';
import {
  type Cli,
  EXIT,
  type ExitCode,
  exitCodeOf,
  failureDocument,
  type GlobalOptions,
  tellFailure,
  writeJson,
} from './cli.ts';
import { configCheckCommand } from './config.ts';
import { demoCommand, sandboxCommand } from './demo.ts';
import { diffCommand, productShowCommand } from './diff.ts';
import { doctorCommand } from './doctor.ts';
import { eventsListCommand, eventsReplayCommand, eventsShowCommand } from './events.ts';
import { feedAckCommand, feedTailCommand } from './feed.ts';
import { initCommand } from './init/init.ts';
import { keyCommand } from './key.ts';
import { orderListCommand, orderShowCommand } from './order.ts';
import { outboxDropCommand, outboxListCommand, outboxReleaseCommand, outboxRetryCommand } from './outbox.ts';
import { pushProductsCommand, pushStockCommand } from './push.ts';
import { quarantineListCommand, quarantineRetryCommand, quarantineShowCommand } from './quarantine.ts';
import { runCommand } from './run.ts';
import { productSetCommand, stockSetCommand } from './set.ts';
import { statusCommand } from './status.ts';
import { syncOrdersCommand, syncProductsCommand } from './sync.ts';
import {
  webhookRotateSecretCommand,
  webhookSetCommand,
  webhookShowCommand,
  webhookTestCommand,
} from './webhook.ts';

type MakeCommand = (cli: Cli) => Command;

/** By first word, in the order of the help. */
const COMMANDS: ReadonlyMap<string, MakeCommand> = new Map<string, MakeCommand>([
  ['run', runCommand],
  ['demo', demoCommand],
  ['sandbox', sandboxCommand],
  ['init', initCommand],
  group('config', 'Check the configuration', [configCheckCommand]),
  ['key', keyCommand],
  ['status', statusCommand],
  ['doctor', doctorCommand],
  group('auth', 'Hand over tokens and see how they fare', [
    authSetCommand,
    authStatusCommand,
    authRefreshCommand,
  ]),
  group('sync', 'Ask the platform now', [syncOrdersCommand, syncProductsCommand]),
  ['diff', diffCommand],
  group('order', 'Look at orders of the mirror', [orderListCommand, orderShowCommand]),
  group('product', 'Look at products and change them', [productShowCommand, productSetCommand]),
  group('stock', 'Change stock', [stockSetCommand]),
  group('push', 'Hand over many changes from a file', [pushStockCommand, pushProductsCommand]),
  group('outbox', 'Look at changes on their way to the platform, and decide about them', [
    outboxListCommand,
    outboxRetryCommand,
    outboxDropCommand,
    outboxReleaseCommand,
  ]),
  group('webhook', 'Look after the webhook at the platform', [
    webhookShowCommand,
    webhookSetCommand,
    webhookRotateSecretCommand,
    webhookTestCommand,
  ]),
  group('callbacks', 'Look at the last callbacks', [callbacksTailCommand]),
  group('feed', 'Read the change feed, and acknowledge what was booked', [feedTailCommand, feedAckCommand]),
  group('alarms', 'Try who is told when something needs a person', [alarmsTestCommand]),
  group('quarantine', 'Look at what could not be read', [
    quarantineListCommand,
    quarantineShowCommand,
    quarantineRetryCommand,
  ]),
  group('events', 'Look at what was received of orders, and read it again', [
    eventsListCommand,
    eventsShowCommand,
    eventsReplayCommand,
  ]),
  ['backup', backupCommand],
  ['restore', restoreCommand],
  ['bundle', bundleCommand],
]);

function group(name: string, description: string, inner: readonly MakeCommand[]): [string, MakeCommand] {
  const make = (cli: Cli) => {
    const parent = new Command(name).description(description);
    for (const command of inner) parent.addCommand(command(cli));
    return parent;
  };
  return [name, make];
}

/**
 * The command line. With the first word given, only the command of that name, if there is one: to make all takes a
 * tenth of the start. Commander's own exits become errors, so that only the process's entry ends it.
 */
export function createProgram(cli: Cli, firstWord?: string): Command {
  const program = new Command('tillsync')
    .description("Keeps a shop's online orders, catalogue and stock in step with its point of sale")
    .version(programVersion(), '--version', 'print the version')
    .option('--config <file>', 'configuration file (else $TILLSYNC_CONFIG, else /etc/tillsync/config.toml)')
    .addHelpText(
      'after',
      '\nExit codes: 0 done, 1 failed, 2 wrong usage or configuration, 3 done in part,\n' +
        '4 the platform asks for new tokens (tillsync auth set), 130 stopped by Ctrl-C.\n' +
        '\nHelp of a command, with examples: tillsync COMMAND --help',
    );
  const named = firstWord === undefined ? undefined : COMMANDS.get(firstWord);
  for (const make of named ? [named] : COMMANDS.values()) program.addCommand(make(cli));
  program.hook('preAction', async (_program, command) => {
    const { findInstallation } = await import('../app/installation.ts');
    const { config } = command.optsWithGlobals<GlobalOptions>();
    setInstallation(() => findInstallation(config, cli.env), [...namesOf(command), ...command.args]);
  });
  prepare(program, cli);
  return program;
}

/** Such as `order`, `show`. */
function namesOf(command: Command): string[] {
  return command.parent === null ? [] : [...namesOf(command.parent), command.name()];
}

/** Settings that commander does not pass on to commands that were made apart from their parent. */
function prepare(command: Command, cli: Cli): void {
  command
    .exitOverride()
    .configureHelp({ showGlobalOptions: true })
    .configureOutput({
      writeOut: (text) => cli.stdout.write(text),
      writeErr: (text) => cli.stderr.write(text),
      getOutHelpWidth: () => cli.stdout.columns ?? 100,
      getErrHelpWidth: () => cli.stderr.columns ?? 100,
    })
    .showHelpAfterError('Help, with examples: add --help');
  for (const inner of command.commands) prepare(inner, cli);
}

/**
 * Runs one command line (without program and script) to its end and gives its exit code; never throws. With
 * `--json` a failure, too, is one document on standard output.
 */
export async function runCli(words: readonly string[], cli: Omit<Cli, 'endWith'>): Promise<ExitCode> {
  let code: ExitCode = EXIT.done;
  const endWith = (wanted: ExitCode) => {
    code = wanted;
  };
  const wantsJson = words.includes('--json');
  try {
    // Not a copy, which would open standard input.
    const own = Object.assign(Object.create(cli) as typeof cli, { endWith });
    await createProgram(own, words[0]).parseAsync(words, { from: 'user' });
    return code;
  } catch (thrown) {
    if (thrown instanceof CommanderError) {
      if (thrown.exitCode === 0) return EXIT.done;
      // Commander has told the person already.
      const error = new TillsyncError('usage', thrown.message.replace(/^error: /, ''));
      if (wantsJson) writeJson(cli, failureDocument(error));
      return EXIT.usage;
    }
    const error = asTillsyncError(thrown);
    if (wantsJson) writeJson(cli, failureDocument(error));
    tellFailure(cli.stderr, thrown);
    return exitCodeOf(error.code);
  }
}
