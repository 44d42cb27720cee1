import type { Command } from 'commander';
import type { Cli } from '../cli.ts';
import { changeIds, decideEach } from '../decide.ts';
import { type GlobalOptions, type JsonOption, newResultCommand } from '../new-command.ts';
import { withParts } from '../with-parts.ts';

/** `outbox drop`: gives changes up that have not left. */
export function outboxDropCommand(cli: Cli): Command {
  return newResultCommand('drop', 'Give up changes that wait, are held or were rejected', [
    'outbox drop 1204',
    'outbox drop 1204 1207 --json',
  ])
    .argument('<changes...>', 'as in `outbox list`')
    .action((words: string[], _options, command: Command) =>
      drop(cli, changeIds(words), command.optsWithGlobals()),
    );
}

function drop(cli: Cli, ids: readonly number[], options: GlobalOptions & JsonOption): Promise<void> {
  return withParts(cli, options, ({ parts: { changeDesk } }) =>
    decideEach(cli, options, ids, async (changeId) => {
      await changeDesk.drop(changeId);
      return `Change ${changeId} was dropped.`;
    }),
  );
}
