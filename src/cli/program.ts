import { Command, CommanderError, Help } from 'commander';
import { findInstallation, programVersion } from '../app/installation.ts';
import { isOfChain } from '../config/source.ts';
import { asTillsyncError, setInstallation, TillsyncError, TRIED_AGAIN } from '../core/errors.ts';
import { testAlarms } from './alarms.ts';
import { audit } from './audit.ts';
import { auth } from './auth.ts';
import { backup, restore } from './backup.ts';
import { branch } from './branch.ts';
import { bundle } from './bundle.ts';
import { log } from './callbacks.ts';
import { type Cli, EXIT, type ExitCode, exitCodeOf, failureDocument, tellFailure, writeJson } from './cli.ts';
import { type CommonOptions, group, type MakeCommand, OF_CHAIN } from './command.ts';
import * as config from './config.ts';
import { conform } from './conform.ts';
import { customer } from './customer.ts';
import { demo, sandbox } from './demo.ts';
import { diff } from './diff.ts';
import { doctor } from './doctor.ts';
import { ack, events } from './feed.ts';
import { hooks } from './hooks.ts';
import { hub } from './hub.ts';
import { init } from './init/init.ts';
import { key } from './key.ts';
import * as order from './order.ts';
import { outbox } from './outbox.ts';
import * as product from './product.ts';
import { push } from './push.ts';
import { quarantine } from './quarantine.ts';
import { received, replay } from './received.ts';
import { run } from './run.ts';
import { status } from './status.ts';
import { stock } from './stock.ts';
import * as sync from './sync.ts';
import * as webhook from './webhook.ts';

/** Commands by the headings of the help, in its order. */
const COMMANDS: Readonly<Record<string, Record<string, MakeCommand>>> = {
  'Everyday:': {
    status,
    order: group('List, show, explain or acknowledge orders', {
      list: order.list,
      show: order.show,
      explain: order.explain,
      ack,
      events,
      received,
      replay,
    }),
    product: group('Show or change products; list those without a POS ID', {
      list: product.list,
      show: product.show,
      set: product.set,
    }),
    stock,
    push,
    outbox,
    sync: group('Fetch orders or the catalogue now; compare them with the platform', {
      orders: sync.orders,
      catalog: sync.catalog,
      diff,
    }),
  },
  'Set up:': {
    init,
    config: group('Check, show or change the configuration; test the alarms', {
      check: config.check,
      show: config.show,
      set: config.set,
      apply: config.apply,
      'test-alarms': testAlarms,
    }),
    auth,
    key,
    webhook: group('Register and test the callback address; show recent callbacks', {
      show: webhook.show,
      set: webhook.set,
      'rotate-secret': webhook.rotateSecret,
      test: webhook.test,
      log,
    }),
    hooks,
    backup,
    restore,
  },
  'Support:': { doctor, bundle, audit, quarantine, customer },
  // Commands of a chain always run, but the help of a single store does not list them.
  [OF_CHAIN]: { hub, branch },
  'Developers:': { demo, sandbox, conform, run },
};

/**
 * Makes the command line. If `words` name a command, it makes only that command, because making all of them takes a
 * tenth of the start time. Commander's exits become errors, so that only main.ts ends the process.
 */
export function createProgram(cli: Cli, words: readonly string[] = []): Command {
  const program = new Command('tillsync')
    .usage('[options] <command>')
    .description('Keep online orders, prices and stock in sync with your point of sale (POS)')
    .version(programVersion(), '--version', 'Show the version')
    .option(
      '--config <file>',
      'Configuration file (default: $TILLSYNC_CONFIG, then /etc/tillsync/config.toml)',
    )
    .addHelpText(
      'after',
      "\nRun 'tillsync <command> --help' for details and examples, 'tillsync help --all' for every command.\n" +
        'Exit codes: 0 success, 1 error, 2 usage or configuration, 3 partly done, 4 new tokens needed, 130 interrupted',
    );
  const all = Object.entries(COMMANDS).flatMap(([heading, commands]) =>
    Object.entries(commands).map(([name, make]) => ({ heading, name, make })),
  );
  const typed = withoutGlobals(words);
  const [first] = typed;
  const named = all.filter(({ name }) => name === first);
  for (const { heading, name, make } of named.length > 0 ? named : all) {
    program.addCommand(make(name, cli).helpGroup(heading));
  }
  program.hook('preAction', (_program, command) => {
    const { config } = command.optsWithGlobals<CommonOptions>();
    const find = () => findInstallation(config, cli.env);
    // The demo's store ends with the demo, so no service of this machine is meant.
    const inDemo = () => ({ ...find(), needsSudo: false, configFile: null, unit: null, runs: 'demo' });
    setInstallation(first === 'demo' ? inDemo : find, typed);
  });
  prepare(program, cli, shownAt(program, cli, words));
  return program;
}

/** Removes `--config FILE` from the words, because texts that name a command add it again by themselves. */
function withoutGlobals(words: readonly string[]): string[] {
  return words.filter(
    (word, i) => word !== '--config' && words[i - 1] !== '--config' && !word.startsWith('--config='),
  );
}

/** Returns how a help is made, which shows what only a chain needs if the configuration has a hub or a branch. */
function shownAt(program: Command, { env }: Cli, words: readonly string[]): Partial<Help> {
  // The configuration is read only when a help is shown, because `--config` is known then.
  let isChain: boolean | undefined;
  const isShown = (heading: string | undefined) => {
    if (heading !== OF_CHAIN || words.includes('--all')) return true;
    isChain ??= isOfChain(program.opts<CommonOptions>().config, env);
    return isChain;
  };
  const whole = new Help();
  return {
    visibleCommands: (command) =>
      whole.visibleCommands(command).filter((inner) => isShown(inner.helpGroup()) && inner.name() !== 'help'),
    visibleOptions: (command) =>
      whole.visibleOptions(command).filter(({ helpGroupHeading }) => isShown(helpGroupHeading)),
  };
}

/** Applies settings to a command and its subcommands. Commander does not pass them on to commands made by `new`. */
function prepare(command: Command, cli: Cli, help: Partial<Help>): void {
  command
    .helpOption('-h, --help', 'Show help')
    .exitOverride()
    .configureHelp(help)
    .configureOutput({
      writeOut: (text) => cli.stdout.write(text),
      writeErr: (text) => cli.stderr.write(text),
      getOutHelpWidth: () => cli.stdout.columns ?? 100,
      getErrHelpWidth: () => cli.stderr.columns ?? 100,
    })
    .showHelpAfterError('Help, with examples: add --help');
  if (command.parent !== null) command.addHelpText('after', '\nGlobal option: --config <file>');
  for (const inner of command.commands) prepare(inner, cli, help);
}

const TYPE_AGAIN =
  'What the command had done stays done. Type it again; if it stays, look for a program that holds the file open.';

function ofCommand(error: TillsyncError): TillsyncError {
  if (error.hint !== TRIED_AGAIN) return error;
  return new TillsyncError(error.code, error.message, { cause: error, hint: TYPE_AGAIN });
}

/**
 * Runs one command line (without program and script) and returns its exit code. Never throws. With `--json`, an error
 * is also written as one document to standard output.
 */
export async function runCli(words: readonly string[], cli: Omit<Cli, 'endWith'>): Promise<ExitCode> {
  let code: ExitCode = EXIT.done;
  const endWith = (wanted: ExitCode) => {
    code = wanted;
  };
  const wantsJson = words.includes('--json');
  try {
    // Inherits from `cli` instead of copying it, because a copy would call its getters and so open standard input.
    const own = Object.assign(Object.create(cli) as typeof cli, { endWith });
    await createProgram(own, words).parseAsync(words, { from: 'user' });
    return code;
  } catch (thrown) {
    if (thrown instanceof CommanderError) {
      if (thrown.exitCode === 0) return EXIT.done;
      // Commander has already shown this error to the person.
      const error = new TillsyncError('usage', thrown.message.replace(/^error: /, ''));
      if (wantsJson) writeJson(cli, failureDocument(error));
      return EXIT.usage;
    }
    const error = ofCommand(asTillsyncError(thrown));
    if (wantsJson) writeJson(cli, failureDocument(error));
    tellFailure(cli.stderr, error.code === 'storage-busy' ? error : thrown);
    return exitCodeOf(error.code);
  }
}
