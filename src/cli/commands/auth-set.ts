import type { Command } from 'commander';
import { asTillsyncError, hasCode, TillsyncError } from '../../domain/errors.ts';
import type { Cli } from '../cli.ts';
import { type GlobalOptions, type JsonOption, newResultCommand } from '../new-command.ts';
import { writeJson } from '../output.ts';
import { authReport } from '../texts/auth-text.ts';
import { readTokenInput } from '../token-input.ts';
import { withParts } from '../with-parts.ts';

interface SetOptions extends GlobalOptions, JsonOption {
  untried?: boolean;
}

/** `auth set`: new tokens from standard input; they count at once, for a running daemon, too. */
export function authSetCommand(cli: Cli): Command {
  return newResultCommand(
    'set',
    'Hand over tokens on standard input: the refresh token, or the pair as JSON. While the tokens in use are good, ' +
      'others take their place only once the platform has taken them',
    ['auth set < refresh-token.txt', 'auth set < pair.json', 'auth set --untried < refresh-token.txt'],
  )
    .option('--untried', 'replace good tokens without a try, as while the platform cannot be reached')
    .action((_options, command: Command) => set(cli, command.optsWithGlobals()));
}

async function set(cli: Cli, options: SetOptions): Promise<void> {
  const tokens = await readTokenInput(cli.stdin);
  await withParts(cli, options, async ({ parts }) => {
    const { tokens: keeper } = parts.platform;
    const mayLose = keeper.describe().state === 'ok' && !options.untried;
    const outcome = mayLose ? await tried(keeper.tryOut(tokens.refreshToken)) : 'stored';
    if (outcome === 'stored') await keeper.set(tokens);
    const { alarms, freshnessBoard } = parts.mirror;
    if (outcome !== 'known') {
      alarms.lower('auth.locked-out');
      alarms.lower('auth.none');
      freshnessBoard.report(
        'auth',
        'waiting',
        'New tokens were handed over and are used with the next call.',
      );
    }
    if (options.json) writeJson(cli, authReport(keeper.describe(), cli.clock.nowMs()));
    else cli.stdout.write(`${TOLD[outcome]}\n`);
  });
}

const TOLD = {
  stored: 'The tokens are stored; a running tillsync takes them up by itself.',
  adopted: 'The platform took the tokens; a running tillsync takes them up by itself.',
  known: 'These tokens were handed over before and led to those in use: nothing was changed.',
};

/** Says of a try that failed that nothing is lost, and what to do. */
async function tried(trial: Promise<'adopted' | 'known'>): Promise<'adopted' | 'known'> {
  try {
    return await trial;
  } catch (error) {
    if (hasCode(error, 'auth-required', 'aborted')) throw error;
    const { code, message } = asTillsyncError(error);
    throw new TillsyncError(code, `The tokens could not be tried, and those in use were kept: ${message}`, {
      cause: error,
      hint: 'Try it again in a while, or add --untried to replace the tokens in use without a try.',
    });
  }
}
