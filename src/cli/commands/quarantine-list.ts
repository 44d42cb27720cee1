import type { Command } from 'commander';
import type { Cli } from '../cli.ts';
import { type GlobalOptions, type JsonOption, newResultCommand, wholeNumberOption } from '../new-command.ts';
import { instantOption } from '../options/instant-option.ts';
import { writeJson } from '../output.ts';
import { table } from '../texts/table.ts';
import { timeTitle, when } from '../texts/when.ts';
import { withReaders } from '../with-readers.ts';

interface QuarantineListOptions extends GlobalOptions, JsonOption {
  limit: number;
  since?: string;
}

/** `quarantine list`: what nobody could read. */
export function quarantineListCommand(cli: Cli): Command {
  return newResultCommand('list', 'List what came in and could not be read, the newest first', [
    'quarantine list',
    'quarantine list --limit 100 --json',
  ])
    .option('--since <time>', 'received on this day or since this time, such as 2026-03-01T18:30')
    .option('--limit <n>', 'at most this many', wholeNumberOption('--limit', 1), 20)
    .action((_options, command: Command) => list(cli, command.optsWithGlobals()));
}

function list(cli: Cli, options: QuarantineListOptions): Promise<void> {
  return withReaders(cli, options, async ({ mirror }, config) => {
    const since = await instantOption('--since', options.since, {
      timeZone: config.orders.timezone,
      end: false,
    });
    const newest = mirror.quarantineList(options.limit);
    const entries = since === undefined ? newest : newest.filter(({ receivedAt }) => receivedAt >= since);
    if (options.json) return writeJson(cli, { quarantine: entries });
    if (entries.length === 0) return void cli.stderr.write('Nothing is in quarantine.\n');
    cli.stdout.write(
      table<(typeof entries)[number]>(
        [
          { title: 'ID', cell: (entry) => entry.quarantineId, align: 'right' },
          { title: 'FROM', cell: (entry) => entry.source },
          {
            title: timeTitle('RECEIVED', config.orders.timezone),
            cell: (entry) => when(entry.receivedAt, config.orders.timezone),
          },
          { title: 'SEEN', cell: (entry) => entry.seen, align: 'right' },
          { title: 'BYTES', cell: (entry) => entry.bytes, align: 'right' },
          { title: 'WHY', cell: (entry) => entry.reason },
        ],
        entries,
      ),
    );
  });
}
