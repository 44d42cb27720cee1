import { type Command, Option } from 'commander';
import type { OutboxFilter } from '../../daemon/reading/read-stores.ts';
import type { Cli } from '../cli.ts';
import { type GlobalOptions, type JsonOption, newResultCommand, wholeNumberOption } from '../new-command.ts';
import { instantOption } from '../options/instant-option.ts';
import { writeJson } from '../output.ts';
import { outboxTable } from '../texts/change-text.ts';
import { withReaders } from '../with-readers.ts';

interface OutboxListOptions extends GlobalOptions, JsonOption {
  state?: Exclude<OutboxFilter['state'], undefined>;
  kind?: 'stock' | 'product';
  limit: number;
  before?: number;
  since?: string;
  target?: string;
  reference?: string;
}

const STATES = ['pending', 'held', 'sending', 'done', 'rejected', 'superseded'];

/** `outbox list`: the changes on their way to the platform, and what became of them. */
export function outboxListCommand(cli: Cli): Command {
  return newResultCommand('list', 'List changes for the platform, the newest first', [
    'outbox list --state rejected',
    'outbox list --state held --kind stock --json',
  ])
    .addOption(
      new Option(
        '--state <state>',
        'only in this state; `held` is the part of `pending` that waits for a person',
      ).choices(STATES),
    )
    .addOption(new Option('--kind <kind>', 'only of this kind').choices(['stock', 'product']))
    .option('--limit <n>', 'at most this many', wholeNumberOption('--limit', 1), 20)
    .option('--since <time>', 'handed over on this day or since this time, such as 2026-03-01T18:30')
    .option('--target <text>', 'only for products or branches with this in an id')
    .option('--reference <text>', 'only with this reference, as it was handed over')
    .option('--before <change>', 'only changes with a lower id', wholeNumberOption('--before', 1))
    .action((_options, command: Command) => list(cli, command.optsWithGlobals()));
}

function list(cli: Cli, options: OutboxListOptions): Promise<void> {
  const { state, kind, before, limit, target, reference } = options;
  return withReaders(cli, options, async ({ mirror }, config) => {
    const { readStores } = await import('../../daemon/reading/read-stores.ts');
    const since = await instantOption('--since', options.since, {
      timeZone: config.orders.timezone,
      end: false,
    });
    const { changes, counts } = readStores(mirror, config, cli.clock).read(({ queries }) => ({
      changes: queries.list({ state, kind, before, limit, since, target, reference }),
      counts: queries.counts(),
    }));
    if (options.json) return writeJson(cli, { counts, changes });
    const { pending, held, sending, rejected } = counts;
    cli.stderr.write(`${pending} waiting, ${held} held, ${sending} being sent, ${rejected} rejected.\n`);
    if (changes.length > 0) cli.stdout.write(outboxTable(changes, config.orders.timezone));
  });
}
