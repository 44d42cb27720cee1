import type { Command } from 'commander';
import type { Cli } from '../cli.ts';
import { type GlobalOptions, type JsonOption, newResultCommand, wholeNumberOption } from '../new-command.ts';
import { type ReceivedOptions, receivedFilter, withReceivedOptions } from '../options/received-options.ts';
import { writeJson } from '../output.ts';
import { table } from '../texts/table.ts';
import { timeTitle, when } from '../texts/when.ts';
import { withReaders } from '../with-readers.ts';

interface EventsListOptions extends GlobalOptions, JsonOption, ReceivedOptions {
  limit: number;
}

/** `events list`: what was received of orders, and where it went. */
export function eventsListCommand(cli: Cli): Command {
  return withReceivedOptions(
    newResultCommand('list', 'List what was received of orders, the newest first', [
      'events list --since 2026-03-03 --until 2026-03-03',
      'events list --order 64f0c2a9e1 --json',
      'events list --quarantined',
    ]),
  )
    .option('--limit <n>', 'at most this many', wholeNumberOption('--limit', 1), 20)
    .action((_options, command: Command) => list(cli, command.optsWithGlobals()));
}

function list(cli: Cli, options: EventsListOptions): Promise<void> {
  return withReaders(cli, options, async ({ mirror }, config) => {
    const { timezone } = config.orders;
    const { listEvents } = await import('../../daemon/received/received-events.ts');
    const filter = await receivedFilter(options, timezone);
    const quarantinedOnly = options.quarantined ?? false;
    const received = listEvents(mirror, filter, { limit: options.limit, quarantinedOnly });
    if (options.json) return writeJson(cli, { received });
    if (received.length === 0) return void cli.stderr.write('Nothing that was received matches.\n');
    cli.stdout.write(
      table<(typeof received)[number]>(
        [
          { title: 'ID', cell: (each) => each.id },
          { title: timeTitle('RECEIVED', timezone), cell: (each) => when(each.receivedAt, timezone) },
          { title: 'FROM', cell: (each) => each.source },
          { title: 'ORDER', cell: (each) => each.orderId },
          { title: 'STATUS', cell: (each) => each.status },
          { title: 'IS', cell: (each) => each.state },
        ],
        received,
      ),
    );
  });
}
