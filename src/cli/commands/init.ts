import type { Command } from 'commander';
import { TillsyncError } from '../../domain/errors.ts';
import type { Cli } from '../cli.ts';
import { branchOption, type InitOptions } from '../init/init-options.ts';
import { newResultCommand } from '../new-command.ts';

/** `init`: the guided set-up, for a person at a terminal and for scripts. */
export function initCommand(cli: Cli): Command {
  return newResultCommand(
    'init',
    'Set tillsync up: ask, try each answer against the platform, write the file',
    [
      'init',
      'init --yes --base-url https://api.example.com --branch sub-1,B1 --token-stdin < refresh-token.txt',
      'init --yes --timezone America/Lima --callback-url https://shop.example.com/webhook --json',
    ],
  )
    .option('--base-url <url>', "address of the platform's API")
    .option(
      '--branch <ids>',
      'a branch as SUBSIDIARY, SUBSIDIARY,EXTERNAL or ,EXTERNAL; once for each, in place of those in the file',
      branchOption,
    )
    .option('--callback-url <url>', 'public address for callbacks; "" leaves polling alone')
    .option('--webhook-listen <address>', 'where callbacks arrive on this machine, as host:port')
    .option('--local-listen <address>', 'where status page and local API are, as host:port')
    .option('--timezone <zone>', 'whose calendar order dates are in, such as America/Santiago')
    .option('--directory <path>', 'storage directory')
    .option('--group <name>', 'Unix group of the point of sale')
    .option('--token-stdin', 'read the refresh token from standard input (else TILLSYNC_REFRESH_TOKEN)')
    .option('--offline', 'ask nothing of the platform, so try nothing')
    .option('--no-start', 'leave the service as it is')
    .option('-y, --yes', 'ask nothing: what is not given stays, or gets its default')
    .action((_options, command: Command) => init(cli, command.optsWithGlobals()));
}

async function init(cli: Cli, options: InitOptions): Promise<void> {
  const isAtTerminal = cli.stdin.isTTY === true && cli.stderr.isTTY === true;
  const isAsking = options.yes !== true && isAtTerminal && options.tokenStdin !== true;
  if (!isAsking && options.yes !== true) {
    throw new TillsyncError('usage', 'There is no terminal to ask at; nothing was changed.', {
      hint: 'Add --yes, and give the answers as options: {tillsync} init --help',
    });
  }
  // Loaded here, so that help and usage faults come at once.
  const { runInit } = await import('../init/run-init.ts');
  await runInit(cli, options, isAsking);
}
