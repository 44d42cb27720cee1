import { Command } from 'commander';
import { programVersion } from '../daemon/version.ts';
import { setInstallation } from '../domain/installation.ts';
import type { Cli } from './cli.ts';
import { alarmsTestCommand } from './commands/alarms-test.ts';
import { authRefreshCommand } from './commands/auth-refresh.ts';
import { authSetCommand } from './commands/auth-set.ts';
import { authStatusCommand } from './commands/auth-status.ts';
import { backupCommand } from './commands/backup.ts';
import { bundleCommand } from './commands/bundle.ts';
import { callbacksTailCommand } from './commands/callbacks-tail.ts';
import { configCheckCommand } from './commands/config-check.ts';
import { demoCommand } from './commands/demo.ts';
import { diffCommand } from './commands/diff.ts';
import { doctorCommand } from './commands/doctor.ts';
import { eventsListCommand } from './commands/events-list.ts';
import { eventsReplayCommand } from './commands/events-replay.ts';
import { eventsShowCommand } from './commands/events-show.ts';
import { feedAckCommand } from './commands/feed-ack.ts';
import { feedTailCommand } from './commands/feed-tail.ts';
import { initCommand } from './commands/init.ts';
import { keyCommand } from './commands/key.ts';
import { orderListCommand } from './commands/order-list.ts';
import { orderShowCommand } from './commands/order-show.ts';
import { outboxDropCommand } from './commands/outbox-drop.ts';
import { outboxListCommand } from './commands/outbox-list.ts';
import { outboxReleaseCommand } from './commands/outbox-release.ts';
import { outboxRetryCommand } from './commands/outbox-retry.ts';
import { productSetCommand } from './commands/product-set.ts';
import { productShowCommand } from './commands/product-show.ts';
import { pushProductsCommand, pushStockCommand } from './commands/push.ts';
import { quarantineListCommand } from './commands/quarantine-list.ts';
import { quarantineRetryCommand } from './commands/quarantine-retry.ts';
import { quarantineShowCommand } from './commands/quarantine-show.ts';
import { restoreCommand } from './commands/restore.ts';
import { runCommand } from './commands/run.ts';
import { sandboxCommand } from './commands/sandbox.ts';
import { statusCommand } from './commands/status.ts';
import { stockSetCommand } from './commands/stock-set.ts';
import { syncOrdersCommand } from './commands/sync-orders.ts';
import { syncProductsCommand } from './commands/sync-products.ts';
import { webhookRotateSecretCommand } from './commands/webhook-rotate-secret.ts';
import { webhookSetCommand } from './commands/webhook-set.ts';
import { webhookShowCommand } from './commands/webhook-show.ts';
import { webhookTestCommand } from './commands/webhook-test.ts';
import type { GlobalOptions } from './new-command.ts';

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
    const { findInstallation } = await import('../daemon/installation.ts');
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
