import type { Command } from 'commander';
import type { ChangeDesk } from '../../daemon/changes/change-desk.ts';
import { TillsyncError } from '../../domain/errors.ts';
import type { Cli } from '../cli.ts';
import { changeIds, decideEach } from '../decide.ts';
import { type GlobalOptions, type JsonOption, newResultCommand } from '../new-command.ts';
import { stateOf } from '../texts/change-text.ts';
import { withParts } from '../with-parts.ts';

interface OutboxRetryOptions extends GlobalOptions, JsonOption {
  all?: boolean;
}

const PAGE = 1000;

/** `outbox retry`: hands rejected changes over once more. */
export function outboxRetryCommand(cli: Cli): Command {
  return newResultCommand('retry', 'Hand rejected changes over once more, as new ones', [
    'outbox retry 1204 1207',
    'outbox retry --all',
  ])
    .argument('[changes...]', 'as in `outbox list --state rejected`')
    .option('--all', 'every rejected change')
    .action((words: string[], _options, command: Command) => retry(cli, words, command.optsWithGlobals()));
}

async function retry(cli: Cli, words: readonly string[], options: OutboxRetryOptions): Promise<void> {
  if ((words.length === 0) === !options.all) {
    throw new TillsyncError('usage', 'Name changes by their ids, or take every rejected one with --all.');
  }
  const named = changeIds(words);
  await withParts(cli, options, async ({ parts: { changeDesk } }) => {
    const ids = options.all ? rejectedIds(changeDesk) : named;
    await decideEach(cli, options, ids, async (changeId) => {
      await changeDesk.retry(changeId);
      const by = changeDesk.get(changeId)?.supersededBy ?? null;
      const next = by === null ? undefined : changeDesk.get(by);
      if (next === undefined) return `Change ${changeId} was handed over again.`;
      if (next.state === 'rejected') throw new TillsyncError('usage', `Change ${by}: ${next.message}`);
      return `Change ${changeId} was handed over again as change ${by}, which is ${stateOf(next)}.`;
    });
  });
}

/** The oldest first, so that the newest value for a target comes last. */
function rejectedIds(desk: ChangeDesk): number[] {
  const ids: number[] = [];
  for (let before: number | undefined; ; ) {
    const page = desk.list({ state: 'rejected', before, limit: PAGE });
    ids.push(...page.map(({ changeId }) => changeId));
    before = page.at(-1)?.changeId;
    if (page.length < PAGE || before === undefined) return ids.reverse();
  }
}
