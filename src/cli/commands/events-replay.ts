import type { Command } from 'commander';
import type { EventsReplayReport, OrderReplayReport } from '../../daemon/received/events-replay.ts';
import { TillsyncError } from '../../domain/errors.ts';
import type { Cli } from '../cli.ts';
import { EXIT } from '../exit-code.ts';
import { type GlobalOptions, type JsonOption, newResultCommand } from '../new-command.ts';
import { type ReceivedOptions, receivedFilter, withReceivedOptions } from '../options/received-options.ts';
import { writeJson } from '../output.ts';
import { printable } from '../texts/printable.ts';
import { withParts } from '../with-parts.ts';

interface EventsReplayOptions extends GlobalOptions, JsonOption, ReceivedOptions {
  all?: boolean;
  dryRun?: boolean;
}

/** `events replay`: reads what was received again, after the configuration or tillsync has learnt more. */
export function eventsReplayCommand(cli: Cli): Command {
  return withReceivedOptions(
    newResultCommand(
      'replay',
      "Read what was received again, by today's rules: fields that have a name now appear, and what lies in quarantine " +
        'is mirrored. The feed gets an event for each order that changes; no order goes back in its life.',
      [
        'events replay --all --dry-run',
        'events replay --since 2026-03-03 --until 2026-03-03',
        'events replay --order 64f0c2a9e1',
        'events replay --quarantined',
      ],
    ),
  )
    .option('--all', 'everything that is kept')
    .option('--dry-run', 'only show what would change')
    .action((_options, command: Command) => replay(cli, command.optsWithGlobals()));
}

async function replay(cli: Cli, options: EventsReplayOptions): Promise<void> {
  const { order, since, until, source, quarantined = false, all = false, dryRun = false } = options;
  const selects = [order, since, until, source].some((each) => each !== undefined) || quarantined;
  if (selects === all) {
    throw new TillsyncError('usage', 'Say what to read again, or take everything with --all alone.');
  }
  await withParts(cli, options, async ({ parts, config, progress }) => {
    const { replayEvents } = await import('../../daemon/received/events-replay.ts');
    const { compileSpellings } = await import('../../domain/order/spelling-tree.ts');
    const { fields, listPath, timezone } = config.orders;
    const report = await replayEvents({
      mirror: parts.mirror,
      clock: cli.clock,
      spellings: compileSpellings(fields),
      listPath,
      filter: await receivedFilter(options, timezone),
      quarantinedOnly: quarantined,
      dryRun,
      signal: cli.signal,
      onOrder(each, done) {
        progress.count('orders read again', done);
        if (!options.json && each.outcome !== 'unchanged') progress.note(orderText(each, dryRun));
      },
    });
    progress.end();
    const isPartial = !report.isComplete || report.stay.length > 0 || report.unreadable > 0;
    if (isPartial) cli.endWith(EXIT.partial);
    if (options.json) writeJson(cli, report);
    else cli.stdout.write(summary(report));
  });
}

function orderText({ orderId, outcome, fields }: OrderReplayReport, dryRun: boolean): string {
  const what = outcome === 'created' ? 'new' : fields.map(fieldText).join(', ');
  return printable(`${orderId}: ${dryRun ? 'would become ' : ''}${what}`);
}

function fieldText({ field, before, after }: OrderReplayReport['fields'][number]): string {
  return field === 'items'
    ? `${after} as read now`
    : `${field} ${JSON.stringify(before)} -> ${JSON.stringify(after)}`;
}

function summary(report: EventsReplayReport): string {
  const { orders, payloads, created, changed, held, unreadable, released, stay, dryRun } = report;
  const would = dryRun ? 'would be ' : '';
  return [
    `${payloads} payloads of ${orders} orders were read again: ${created} orders ${would}new, ${changed} ${would}changed.`,
    ...(held > 0 ? [`${held} would take an order back, so a poll decides.`] : []),
    ...(unreadable > 0 ? [`${unreadable} kept payloads cannot be read as their order any more.`] : []),
    ...(released > 0 ? [`${released} entries ${dryRun ? 'would leave' : 'left'} the quarantine.`] : []),
    ...stay.map(({ quarantineId, reasons }) => printable(`q${quarantineId} stays: ${reasons[0]}`)),
    ...(report.isComplete ? [] : ['Stopped before the end; what was read until then is kept.']),
    '',
  ].join('\n');
}
