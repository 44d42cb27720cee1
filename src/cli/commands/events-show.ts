import type { Command } from 'commander';
import { TillsyncError } from '../../domain/errors.ts';
import type { Cli } from '../cli.ts';
import { type GlobalOptions, type JsonOption, newResultCommand } from '../new-command.ts';
import { writeReceived } from '../texts/received-text.ts';
import { whenIn } from '../texts/when.ts';
import { withReaders } from '../with-readers.ts';

interface EventsShowOptions extends GlobalOptions, JsonOption {
  payload?: boolean;
}

/** `events show`: one thing that was received, whole. */
export function eventsShowCommand(cli: Cli): Command {
  return newResultCommand('show', 'Show one thing that was received, exactly as it came', [
    'events show p12',
    'events show q3 --payload > received.json',
  ])
    .argument('<id>', 'as in `events list`')
    .option('--payload', 'print what was received alone, exactly as it came')
    .action((id: string, _options, command: Command) => show(cli, id, command.optsWithGlobals()));
}

function show(cli: Cli, id: string, options: EventsShowOptions): Promise<void> {
  return withReaders(cli, options, async ({ mirror }, config) => {
    const { getEvent } = await import('../../daemon/received/received-events.ts');
    const found = getEvent(mirror, id);
    if (found === undefined) {
      throw new TillsyncError('not-found', `Nothing that was received has the id "${id}", or no longer.`, {
        hint: 'A payload gets another id when a newer one takes its place. See the ids with: {tillsync} events list',
      });
    }
    writeReceived(cli, options, found, [
      ['id', found.id],
      ['order', found.orderId],
      ['from', found.source],
      ['received', whenIn(found.receivedAt, config.orders.timezone)],
      ['status', found.status],
      ['is', found.state],
    ]);
  });
}
