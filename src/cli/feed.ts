import { type Command, Option } from 'commander';
import { TillsyncError, whenFree } from '../core/errors.ts';
import type { Clock } from '../core/time.ts';
import type { OrderEvent } from '../orders/order.ts';
import {
  type Cli,
  type GlobalOptions,
  type JsonOption,
  newCommand,
  newResultCommand,
  printable,
  wholeNumberOption,
  writeJson,
  writeJsonLine,
} from './cli.ts';
import { checkOrderIds, readOrderIds } from './options.ts';
import { withParts, withReaders } from './with-parts.ts';

const POLL_MS = 250;
const PAGE = 500;

export interface FeedOptions {
  mirror: { eventsAfter(seq: number, limit: number): OrderEvent[] };
  clock: Clock;
  /** Events with a higher seq come. */
  after: number;
  /** Goes on waiting for new ones until the signal. */
  follow: boolean;
  signal: AbortSignal;
  /** At most this many in all. */
  limit?: number;
}

/** The change feed, in order and without a gap, also while it is being written. */
export async function* feed(options: FeedOptions): AsyncGenerator<OrderEvent> {
  const { mirror, clock, signal } = options;
  let { after } = options;
  let left = options.limit ?? Number.POSITIVE_INFINITY;
  while (!signal.aborted && left > 0) {
    const events = await whenFree(
      clock,
      () => mirror.eventsAfter(after, Math.min(PAGE, left)),
      undefined,
      signal,
    );
    for (const event of events) {
      if (signal.aborted) return;
      yield event;
      after = event.seq;
      left -= 1;
    }
    if (events.length > 0) continue;
    if (!options.follow) return;
    await clock.sleep(POLL_MS, signal);
  }
}

/** One event as a line for a person. */
export function eventLine({ seq, observedAt, source, orderId, status, previousStatus }: OrderEvent): string {
  const change = previousStatus === null ? (status ?? '-') : `${previousStatus} -> ${status ?? '-'}`;
  return `${seq}  ${observedAt}  ${source.padEnd(7)}  ${orderId}  ${change}`;
}

interface FeedTailOptions extends GlobalOptions {
  after?: number;
  limit?: number;
  follow?: boolean;
  /** `true`: one document; `lines`: one document a line. */
  json?: boolean | 'lines';
}

const TAIL = 20;

/** `feed tail`: the change feed as a POS reads it. */
export function feedTailCommand(cli: Cli): Command {
  return newCommand('tail', 'Print the change feed, and follow it', [
    'feed tail --follow',
    'feed tail --after 1200 --limit 100 --json',
    'feed tail --follow --json lines | jq .orderId',
  ])
    .option(
      '--after <seq>',
      `events after this one; without it the last ${TAIL}, or as many as --limit says`,
      wholeNumberOption('--after', 0),
    )
    .option('--limit <n>', 'at most this many', wholeNumberOption('--limit', 1))
    .option('-f, --follow', 'go on with new events until Ctrl-C')
    .addOption(
      new Option('--json [lines]', 'print one JSON document, or with `lines` one a line').choices(['lines']),
    )
    .action((_options, command: Command) => tail(cli, command.optsWithGlobals()));
}

function tail(cli: Cli, options: FeedTailOptions): Promise<void> {
  const { limit, follow = false, json } = options;
  if (follow && json === true) {
    throw new TillsyncError('usage', 'A feed that is followed has no end, so it is no single document.', {
      hint: 'Use --json lines for one document a line.',
    });
  }
  return withReaders(cli, options, async ({ mirror }) => {
    const newestSeq = mirror.newestSeq();
    const tail = follow ? TAIL : (limit ?? TAIL);
    const after = options.after ?? Math.max(0, newestSeq - tail);
    const trimmedTo = mirror.trimmedTo();
    if (after < trimmedTo && !json) {
      cli.stderr.write(
        `Up to ${trimmedTo} earlier events of orders that ended long ago are deleted; the newest of each order is there.\n`,
      );
    }
    const events: OrderEvent[] = [];
    for await (const event of feed({
      mirror,
      clock: cli.clock,
      signal: cli.signal,
      after,
      follow,
      ...(limit === undefined ? {} : { limit }),
    })) {
      if (json === 'lines') writeJsonLine(cli, event);
      else if (json) events.push(event);
      else cli.stdout.write(`${printable(eventLine(event))}\n`);
    }
    if (json === true) writeJson(cli, { events, newestSeq, trimmedTo });
  });
}

const CHUNK = 500;

/** `feed ack`: the POS has booked these orders, so its counts include them from now on. */
export function feedAckCommand(cli: Cli): Command {
  return newResultCommand(
    'ack',
    'Tell that the POS has booked orders, so that its stock counts include them',
    ['feed ack 64f0c2a9e1', 'feed ack < booked-orders.txt'],
  )
    .argument('[orders...]', "the platform's ids; without any, or with -, one a line from standard input")
    .addHelpText('after', '\nHand the new counts over first, then acknowledge.')
    .action((words: string[], _options, command: Command) => ack(cli, words, command.optsWithGlobals()));
}

async function ack(cli: Cli, words: readonly string[], options: GlobalOptions & JsonOption): Promise<void> {
  const fromInput = words.length === 0 || (words.length === 1 && words[0] === '-');
  if (fromInput && words.length === 0 && cli.stdin.isTTY) {
    throw new TillsyncError('usage', 'No order is named. Give ids, or - to type them one a line.');
  }
  const orderIds = fromInput ? await readOrderIds(cli.stdin) : checkOrderIds(words, 'id');
  await withParts(cli, options, async ({ parts, progress }) => {
    const results = [];
    for (let start = 0; start < orderIds.length; start += CHUNK) {
      results.push(...(await parts.changeDesk.acknowledge(orderIds.slice(start, start + CHUNK), 'cli')));
      progress.count('orders acknowledged', results.length, orderIds.length);
    }
    progress.end();
    for (const { orderId, state } of results) {
      if (state !== 'unheard') continue;
      cli.stderr.write(`${printable(orderId)}: noted, though the mirror has no such order yet.\n`);
    }
    if (options.json) return writeJson(cli, { results });
    const fresh = results.filter(({ state }) => state !== 'known').length;
    cli.stdout.write(`${fresh} orders acknowledged, ${results.length - fresh} were before.\n`);
  });
}
