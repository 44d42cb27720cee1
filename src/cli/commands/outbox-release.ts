import { type Command, Option } from 'commander';
import type { Guard } from '../../domain/change/guard-rails.ts';
import { counted } from '../../domain/counted.ts';
import { TillsyncError } from '../../domain/errors.ts';
import type { Cli } from '../cli.ts';
import { changeIds, decideEach } from '../decide.ts';
import { type GlobalOptions, type JsonOption, newResultCommand } from '../new-command.ts';
import { writeJson } from '../output.ts';
import { withParts } from '../with-parts.ts';

interface OutboxReleaseOptions extends GlobalOptions, JsonOption {
  guard?: Guard;
  all?: boolean;
}

/** `outbox release`: lets changes go that a guard rail holds. */
export function outboxReleaseCommand(cli: Cli): Command {
  return newResultCommand('release', 'Let changes go that a guard rail holds for a person', [
    'outbox release 1204 1207',
    'outbox release --guard missing-share',
    'outbox release --all',
  ])
    .argument('[changes...]', 'as in `outbox list --state held`')
    .addOption(
      new Option('--guard <guard>', 'every change that this guard rail holds').choices([
        'zero-items',
        'price-factor',
        'missing-share',
        'restored',
      ]),
    )
    .option('--all', 'every held change')
    .action((words: string[], _options, command: Command) => release(cli, words, command.optsWithGlobals()));
}

async function release(cli: Cli, words: readonly string[], options: OutboxReleaseOptions): Promise<void> {
  const ways = [words.length > 0, options.guard !== undefined, options.all === true].filter(Boolean);
  if (ways.length !== 1) {
    throw new TillsyncError(
      'usage',
      'Name changes by their ids, or a guard rail with --guard, or take --all.',
    );
  }
  const ids = changeIds(words);
  await withParts(cli, options, async ({ parts: { changeDesk } }) => {
    if (ids.length > 0) {
      await decideEach(cli, options, ids, async (changeId) => {
        await changeDesk.release({ changeId });
        return `Change ${changeId} was released.`;
      });
      return;
    }
    const released = await changeDesk.release({ guard: options.guard ?? null });
    if (options.json) writeJson(cli, { released });
    else cli.stdout.write(`${counted(released, 'change')} released.\n`);
  });
}
