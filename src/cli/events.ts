import type { Command } from 'commander';
import { TillsyncError } from '../core/errors.ts';
import type { EventsReplayReport, OrderReplayReport } from '../orders/replay.ts';
import {
  type Cli,
  EXIT,
  type GlobalOptions,
  type JsonOption,
  newResultCommand,
  printable,
  printableLines,
  wholeNumberOption,
  writeJson,
} from './cli.ts';
import { type ReceivedOptions, receivedFilter, withReceivedOptions } from './options.ts';
import { fields, table, timeTitle, when, whenIn } from './table.ts';
import { withParts, withReaders } from './with-parts.ts';

export interface ReceivedShown {
  /** Print what was received alone. */
  payload?: boolean;
  json?: boolean;
}

/**
 * Writes one thing that was received: what is known of it and its payload, or with `payload` its bytes alone,
 * exactly as they came. In JSON a payload that is no text is `payloadBase64`.
 */
export function writeReceived(
  cli: Cli,
  options: ReceivedShown,
  { payload, ...known }: { payload: string | Uint8Array },
  rows: Parameters<typeof fields>[0],
): void {
  if (options.json) {
    const shown =
      typeof payload === 'string' ? { payload } : { payloadBase64: Buffer.from(payload).toString('base64') };
    writeJson(cli, { ...known, ...shown });
  } else if (options.payload) {
    writePayload(cli, payload);
  } else {
    cli.stdout.write(fields(rows));
    cli.stdout.write(`\n${printable(Buffer.from(payload).toString('utf8'))}\n`);
  }
}

/** What was received, exactly as it came; on a terminal, which it could steer, with that made visible. */
export function writePayload({ stdout }: Pick<Cli, 'stdout'>, payload: string | Uint8Array): void {
  if (stdout.isTTY) stdout.write(`${printableLines(Buffer.from(payload).toString('utf8').trimEnd())}\n`);
  else stdout.write(payload);
}

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
    const { listReceived } = await import('../orders/order-queries.ts');
    const filter = await receivedFilter(options, timezone);
    const quarantinedOnly = options.quarantined ?? false;
    const received = mirror.read((db) => listReceived(db, filter, { limit: options.limit, quarantinedOnly }));
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
    const { getReceived } = await import('../orders/order-queries.ts');
    const found = mirror.read((db) => getReceived(db, id));
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
    const { replayEvents } = await import('../orders/replay.ts');
    const { compileSpellings } = await import('../orders/spellings.ts');
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
