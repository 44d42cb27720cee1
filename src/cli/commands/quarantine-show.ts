import type { Command } from 'commander';
import { TillsyncError } from '../../domain/errors.ts';
import type { Cli } from '../cli.ts';
import { type GlobalOptions, type JsonOption, newResultCommand, wholeNumberOption } from '../new-command.ts';
import { writeReceived } from '../texts/received-text.ts';
import { whenIn } from '../texts/when.ts';
import { withReaders } from '../with-readers.ts';

interface QuarantineShowOptions extends GlobalOptions, JsonOption {
  payload?: boolean;
}

/** `quarantine show`: one entry with its payload. */
export function quarantineShowCommand(cli: Cli): Command {
  return newResultCommand('show', 'Show an entry of the quarantine with what was received', [
    'quarantine show 12',
    'quarantine show 12 --payload > received.json',
  ])
    .argument('<id>', 'as in `quarantine list`', wholeNumberOption('ID', 1))
    .option('--payload', 'print what was received alone, exactly as it came')
    .action((id: number, _options, command: Command) => show(cli, id, command.optsWithGlobals()));
}

/** For an id that nothing lies under. */
export function noSuchEntry(id: number): TillsyncError {
  return new TillsyncError('not-found', `Nothing lies in quarantine under ${id}.`, {
    hint: 'See what does with: {tillsync} quarantine list',
  });
}

function show(cli: Cli, id: number, options: QuarantineShowOptions): Promise<void> {
  return withReaders(cli, options, ({ mirror }, config) => {
    const entry = mirror.quarantineGet(id);
    if (entry === undefined) throw noSuchEntry(id);
    writeReceived(cli, options, entry, [
      ['id', entry.quarantineId],
      ['from', entry.source],
      ['received', whenIn(entry.receivedAt, config.orders.timezone)],
      ['seen', entry.seen],
      ['bytes', entry.bytes],
      ['why', entry.reason],
    ]);
  });
}
