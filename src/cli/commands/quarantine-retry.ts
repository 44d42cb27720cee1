import type { Command } from 'commander';
import type { RetryReport } from '../../daemon/received/quarantine-retry.ts';
import { TillsyncError } from '../../domain/errors.ts';
import type { Cli } from '../cli.ts';
import { EXIT } from '../exit-code.ts';
import { type GlobalOptions, type JsonOption, newResultCommand, wholeNumberOption } from '../new-command.ts';
import { writeJson } from '../output.ts';
import { printable } from '../texts/printable.ts';
import { type CommandTools, withParts } from '../with-parts.ts';
import { noSuchEntry } from './quarantine-show.ts';

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
  const { retryInto, retryQuarantined } = await import('../../daemon/received/quarantine-retry.ts');
  const { compileSpellings } = await import('../../domain/order/spelling-tree.ts');
  const { mirror } = parts;
  const entry = mirror.quarantineGet(quarantineId);
  if (entry === undefined) throw noSuchEntry(quarantineId);
  const spellings = compileSpellings(config.orders.fields);
  const report = await retryQuarantined(
    entry,
    retryInto(mirror, { spellings, listPath: config.orders.listPath }),
  );
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
