import type { Command } from 'commander';
import { TillsyncError } from '../core/errors.ts';
import type { RetryReport } from '../orders/replay.ts';
import {
  type Cli,
  EXIT,
  type GlobalOptions,
  type JsonOption,
  newResultCommand,
  printable,
  wholeNumberOption,
  writeJson,
} from './cli.ts';
import { writeReceived } from './events.ts';
import { instantOption } from './options.ts';
import { table, timeTitle, when, whenIn } from './table.ts';
import { type CommandTools, withParts, withReaders } from './with-parts.ts';

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

interface QuarantineRetryOptions extends GlobalOptions, JsonOption {
  all?: boolean;
}

const ALL_MAX = 10_000;

/** `quarantine retry`: reads entries again, after the configuration or tillsync has learnt more. */
export function quarantineRetryCommand(cli: Cli): Command {
  return newResultCommand('retry', 'Read entries again, and mirror the orders that can be read now', [
    'quarantine retry 12',
    'quarantine retry --all',
  ])
    .argument('[id]', 'as in `quarantine list`', wholeNumberOption('ID', 1))
    .option('--all', 'every entry')
    .action((id: number | undefined, _options, command: Command) =>
      retry(cli, id, command.optsWithGlobals()),
    );
}

async function retry(cli: Cli, id: number | undefined, options: QuarantineRetryOptions): Promise<void> {
  if ((id === undefined) === !options.all) {
    throw new TillsyncError('usage', 'Name one entry by its id, or take every one with --all.');
  }
  await withParts(cli, options, async (tools) => {
    // The oldest first, as they came in.
    const ids = id === undefined ? idsOf(tools).reverse() : [id];
    const results: ({ quarantineId: number } & RetryReport)[] = [];
    for (const [done, quarantineId] of ids.entries()) {
      if (cli.signal.aborted) break;
      tools.progress.count('entries read again', done, ids.length);
      const report = await retryOne(tools, quarantineId);
      results.push({ quarantineId, ...report });
      if (!options.json) tools.progress.note(entryText(quarantineId, report));
    }
    tools.progress.end();
    if (results.some((result) => result.unreadable.length > 0) || results.length < ids.length) {
      cli.endWith(EXIT.partial);
    }
    if (options.json) writeJson(cli, { results });
    else cli.stdout.write(`${sum(results, 'kept')} orders were mirrored from ${results.length} entries.\n`);
  });
}

function idsOf({ parts }: CommandTools): number[] {
  return parts.mirror.quarantineList(ALL_MAX).map((entry) => entry.quarantineId);
}

async function retryOne({ parts, config }: CommandTools, quarantineId: number): Promise<RetryReport> {
  const { retryQuarantined } = await import('../orders/replay.ts');
  const { compileSpellings } = await import('../orders/spellings.ts');
  const { mirror } = parts;
  const entry = mirror.quarantineGet(quarantineId);
  if (entry === undefined) throw noSuchEntry(quarantineId);
  const spellings = compileSpellings(config.orders.fields);
  const report = await retryQuarantined(entry, mirror, { spellings, listPath: config.orders.listPath });
  if (report.unreadable.length === 0) await mirror.quarantineRemove(quarantineId);
  return report;
}

function entryText(quarantineId: number, { kept, overtaken, unreadable }: RetryReport): string {
  const parts = [
    ...(kept.length > 0 ? [`${kept.length} orders mirrored`] : []),
    ...(overtaken.length > 0 ? [`${overtaken.length} already known newer`] : []),
    ...(unreadable.length > 0 ? [`stays: ${unreadable[0]}`] : []),
  ];
  return printable(`${quarantineId}: ${parts.join(', ') || 'holds no orders'}`);
}

function sum(results: readonly RetryReport[], what: 'kept'): number {
  return results.reduce((total, result) => total + result[what].length, 0);
}
