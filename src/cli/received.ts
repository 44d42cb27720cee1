import type { ReadOnlyServices } from '../app/read-only-services.ts';
import type { Config } from '../config/config-type.ts';
import { counted, TillsyncError } from '../core/errors.ts';
import { compileSpellings } from '../orders/merging/field-aliases.ts';
import { getReceived, listReceived } from '../orders/reading/order-queries.ts';
import { type EventsReplayReport, type OrderReplayReport, replayEvents } from '../orders/receiving/replay.ts';
import { type Cli, EXIT, printable, printableLines } from './cli.ts';
import {
  type Call,
  choice,
  command,
  LIMIT,
  type Result,
  type Values,
  withReaders,
  withServices,
} from './command.ts';
import { instant } from './options.ts';
import { fields, table, when, whenIn } from './table.ts';

/** Description of `--payload`. */
export const PAYLOAD = 'Print only the received data, unchanged';

/**
 * Returns one received payload and the facts about it; with `--payload`, writes only the payload's bytes. In JSON, a
 * payload that is no text is `payloadBase64`.
 */
export function receivedResult(
  { cli, options }: Call<{ payload?: boolean | undefined }>,
  { payload, ...known }: { payload: string | Uint8Array },
  rows: Readonly<Record<string, unknown>>,
): Result {
  if (options.payload && !options.json) return writePayload(cli, payload);
  const shown =
    typeof payload === 'string' ? { payload } : { payloadBase64: Buffer.from(payload).toString('base64') };
  return {
    json: { ...known, ...shown },
    text: () => `${fields(rows)}\n${printable(Buffer.from(payload).toString('utf8'))}\n`,
  };
}

/** Writes the payload exactly as received. Only on a terminal, control characters are made visible. */
export function writePayload({ stdout }: Pick<Cli, 'stdout'>, payload: string | Uint8Array): Result {
  if (stdout.isTTY) stdout.write(`${printableLines(Buffer.from(payload).toString('utf8').trimEnd())}\n`);
  else stdout.write(payload);
  return {};
}

/** Options that select received payloads. */
const RECEIVED = {
  '--order <id>': 'Only of this order (ID)',
  '--since <time>': 'Received from this day or time (example: 2026-03-01T18:30)',
  '--until <time>': 'Received until the end of this day, or before this time',
  '--source <source>': choice('Only data received this way', ['webhook', 'poll']),
  '--quarantined': 'Only unreadable data',
};

/**
 * Returns the filter that the options describe. Days and times without a zone are in the company's time zone. Throws
 * `usage`.
 */
function filterOf({ order, since, until, source }: Values<typeof RECEIVED>, timeZone: string) {
  return {
    orderId: order,
    source,
    since: instant('--since', since, timeZone),
    until: instant('--until', until, timeZone, 'end'),
  };
}

/** Lists what was received, or shows one of its entries. */
export const received = command({
  description: 'List received order data, or show one entry',
  examples: [
    'order received --since 2026-03-03 --until 2026-03-03',
    'order received --order 64f0c2a9e1 --json',
    'order received p12',
    'order received q3 --payload > received.json',
  ],
  argument: ['[id]', 'Entry to show, as in the list'],
  options: { ...RECEIVED, '--limit <n>': LIMIT, '--payload': PAYLOAD },
  run: (call) =>
    withReaders(call, ({ mirror }, config) =>
      call.argument === undefined ? listResult(call, mirror, config) : entryResult(call, mirror, config),
    ),
});

type ReceivedCall = Call<
  Values<typeof RECEIVED> & { limit: number; payload?: boolean | undefined },
  string | undefined
>;
type Readers = Pick<ReadOnlyServices['mirror'], 'read'>;

function listResult({ options }: ReceivedCall, mirror: Readers, { orders: { timezone } }: Config): Result {
  const { limit, quarantined = false } = options;
  const filter = filterOf(options, timezone);
  const received = mirror.read((db) => listReceived(db, filter, { limit, quarantinedOnly: quarantined }));
  if (received.length === 0) return { json: { received }, above: 'No received data matches.\n' };
  const columns = {
    ID: 'id',
    [`RECEIVED (${timezone})`]: (each: (typeof received)[number]) => when(each.receivedAt, timezone),
    ...({ FROM: 'source', ORDER: 'orderId', STATUS: 'status', IS: 'state' } as const),
  } as const;
  return { json: { received }, text: table(received, columns) };
}

function entryResult(call: ReceivedCall, mirror: Readers, { orders: { timezone } }: Config): Result {
  const id = call.argument ?? '';
  const found = mirror.read((db) => getReceived(db, id));
  if (found === undefined) {
    throw new TillsyncError('not-found', `There is no received data with the ID "${id}".`, {
      hint: 'The ID changes when newer data of the order arrives. To list the IDs, run: {tillsync} order received',
    });
  }
  return receivedResult(call, found, {
    id: found.id,
    order: found.orderId,
    from: found.source,
    received: whenIn(found.receivedAt, timezone),
    status: found.status,
    is: found.state,
  });
}

export const replay = command({
  description: 'Process received order data again with the current settings',
  examples: [
    'order replay --all --dry-run',
    'order replay --since 2026-03-03 --until 2026-03-03',
    'order replay --order 64f0c2a9e1',
    'order replay --quarantined',
  ],
  options: {
    ...RECEIVED,
    '--all': 'All stored data',
    '--dry-run': 'Show what would change; change nothing',
  },
  async run(call) {
    const { cli, options } = call;
    const { order, since, until, source, quarantined = false, all = false, dryRun = false } = options;
    const selects = [order, since, until, source].some((each) => each !== undefined) || quarantined;
    if (selects === all) {
      throw new TillsyncError('usage', 'Say what to read again, or take everything with --all alone.');
    }
    return withServices(call, async ({ services, config, progress, note }) => {
      const { fields, statuses, timezone } = config.orders;
      const { listPath } = config.quirks;
      const report = await replayEvents({
        mirror: services.mirror,
        clock: cli.clock,
        spellings: compileSpellings(fields, timezone, statuses),
        listPath,
        filter: filterOf(options, timezone),
        quarantinedOnly: quarantined,
        dryRun,
        signal: cli.signal,
        onOrder(each, done) {
          progress.count('orders read again', done);
          if (!options.json && each.outcome !== 'unchanged') progress.note(orderText(each, dryRun));
        },
      });
      if (!dryRun) {
        const detail = `${report.created} orders new, ${report.changed} changed, ${report.released} left the quarantine`;
        await note({ action: 'order.replay', subject: counted(report.payloads, 'payload'), detail });
      }
      const isPartial = !report.isComplete || report.stay.length > 0 || report.unreadable > 0;
      return { json: report, text: summary(report), exit: isPartial ? EXIT.partial : EXIT.done };
    });
  },
});

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
