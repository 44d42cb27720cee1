import type { Command } from 'commander';
import type { Cli } from '../cli.ts';
import { type GlobalOptions, type JsonOption, newResultCommand } from '../new-command.ts';
import { writeJson } from '../output.ts';
import { authReport } from '../texts/auth-text.ts';
import { readTokenInput } from '../token-input.ts';
import { withParts } from '../with-parts.ts';

/** `auth set`: new tokens from standard input; they count at once, for a running daemon, too. */
export function authSetCommand(cli: Cli): Command {
  return newResultCommand(
    'set',
    'Hand over tokens on standard input: the refresh token, or the pair as JSON',
    ['auth set < refresh-token.txt', 'auth set < pair.json'],
  ).action((_options, command: Command) => set(cli, command.optsWithGlobals()));
}

async function set(cli: Cli, options: GlobalOptions & JsonOption): Promise<void> {
  const tokens = await readTokenInput(cli.stdin);
  await withParts(cli, options, async ({ parts }) => {
    await parts.platform.tokens.set(tokens);
    const { alarms, freshnessBoard } = parts.mirror;
    alarms.lower('auth.locked-out');
    alarms.lower('auth.none');
    freshnessBoard.report('auth', 'waiting', 'New tokens were handed over and are used with the next call.');
    const report = authReport(parts.platform.tokens.describe(), cli.clock.nowMs());
    if (options.json) writeJson(cli, report);
    else cli.stdout.write('The tokens are stored; a running tillsync takes them up by itself.\n');
  });
}
