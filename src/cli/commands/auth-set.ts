import type { Command } from 'commander';
import { asTillsyncError, hasCode, TillsyncError } from '../../domain/errors.ts';
import type { Cli } from '../cli.ts';
import { type GlobalOptions, type JsonOption, newResultCommand } from '../new-command.ts';
import { writeJson } from '../output.ts';
import { authReport } from '../texts/auth-text.ts';
import { parseTokenInput, readTokenInput, type TokenInput } from '../token-input.ts';
import { type CommandTools, withParts } from '../with-parts.ts';

interface SetOptions extends GlobalOptions, JsonOption {
  untried?: boolean;
  otherCompany?: boolean;
}

/** `auth set`: new tokens from a hidden prompt or standard input; they count at once, for a running daemon, too. */
export function authSetCommand(cli: Cli): Command {
  return newResultCommand(
    'set',
    'Hand over new tokens: asks for the refresh token, or reads it or the pair as JSON from standard input. They take ' +
      'the place of those in use only once the platform has taken them',
    ['auth set', 'auth set < pair.json', 'auth set --untried < refresh-token.txt'],
  )
    .option('--untried', 'store the tokens without a try, as while the platform cannot be reached')
    .option('--other-company', 'take tokens of another company than the one this store is of')
    .action((_options, command: Command) => set(cli, command.optsWithGlobals()));
}

async function set(cli: Cli, options: SetOptions): Promise<void> {
  const tokens = cli.stdin.isTTY ? await askForTokens(cli) : await readTokenInput(cli.stdin);
  await withParts(cli, options, async (tools) => {
    const { tokens: keeper } = tools.parts.platform;
    const handedIn = { ...tokens, otherCompany: options.otherCompany === true };
    const outcome = options.untried ? await stored(tools, handedIn) : await tried(tools, handedIn);
    if (handedIn.otherCompany) await tools.parts.mirror.beginOtherCompany();
    const company = tools.parts.state.tokens.company();
    if (options.json) writeJson(cli, authReport(keeper.describe(), cli.clock.nowMs()));
    else cli.stdout.write(`${TOLD[outcome]}${company === null ? '' : ` Company: ${company}.`}\n`);
  });
}

const TOLD = {
  stored: 'The tokens are stored, and nobody has tried them yet; a running tillsync does with its next call.',
  adopted: 'The platform took the tokens; a running tillsync takes them up by itself.',
  known: 'These tokens were handed over before and led to those in use: nothing was changed.',
};

async function askForTokens(cli: Cli): Promise<TokenInput> {
  const { Terminal } = await import('../init/terminal.ts');
  const terminal = new Terminal(cli);
  try {
    return parseTokenInput(
      await terminal.secret({ label: 'Paste the new refresh token, then press Enter:' }),
    );
  } finally {
    terminal.close();
  }
}

type OfferedTokens = TokenInput & { otherCompany: boolean };

/** Nothing proves that these are good, so no alarm is lowered. */
async function stored({ parts }: CommandTools, tokens: OfferedTokens): Promise<'stored'> {
  await parts.platform.tokens.set(tokens);
  parts.mirror.freshnessBoard.report('auth', 'waiting', 'New tokens were handed over and are not tried yet.');
  return 'stored';
}

/** Says of a try that failed that nothing is lost, and what to do. */
async function tried(
  { parts, progress, call }: CommandTools,
  { refreshToken, otherCompany }: OfferedTokens,
): Promise<'adopted' | 'known'> {
  const { alarms, freshnessBoard } = parts.mirror;
  progress.step('trying the new tokens');
  try {
    const outcome = await parts.platform.tokens.tryOut(refreshToken, call.onWait, otherCompany);
    if (outcome === 'known') return outcome;
    freshnessBoard.ok('auth');
    alarms.lower('auth.locked-out');
    alarms.lower('auth.none');
    return outcome;
  } catch (error) {
    if (hasCode(error, 'auth-required', 'aborted', 'usage')) throw error;
    const { code, message } = asTillsyncError(error);
    throw new TillsyncError(code, `The tokens could not be tried, so nothing was changed: ${message}`, {
      cause: error,
      hint: 'Try it again in a while, or add --untried to store them without a try.',
    });
  } finally {
    progress.end();
  }
}
