import { hasCode, TillsyncError, whenFree } from '../core/errors.ts';
import type { Clock } from '../core/time.ts';
import { ORDER_ID_LENGTH_MAX, type OrderEvent } from '../orders/order.ts';
import { type Cli, EXIT, printable, readAll, writeJsonLine } from './cli.ts';
import { command, group, JSON_LINES, refuseEndless, whole, withParts, withReaders } from './command.ts';
import { findOrder } from './order.ts';

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
  limit?: number | undefined;
}

/** The change feed, in order and without a gap, also while it is being written. */
export async function* feed(options: FeedOptions): AsyncGenerator<OrderEvent> {
  const { mirror, clock, signal, follow } = options;
  let { after, limit: left = Number.POSITIVE_INFINITY } = options;
  while (!signal.aborted && left > 0) {
    const page = () => mirror.eventsAfter(after, Math.min(PAGE, left));
    const events = await whenFree(clock, page, undefined, signal);
    for (const event of events) {
      if (signal.aborted) return;
      yield event;
      after = event.seq;
      left -= 1;
    }
    if (events.length > 0) continue;
    if (!follow) return;
    await clock.sleep(POLL_MS, signal);
  }
}

/** One event as a line for a person. */
export function eventLine({ seq, observedAt, source, orderId, status, previousStatus }: OrderEvent): string {
  const change = previousStatus === null ? (status ?? '-') : `${previousStatus} -> ${status ?? '-'}`;
  return `${seq}  ${observedAt}  ${source.padEnd(7)}  ${orderId}  ${change}`;
}

const TAIL = 20;

const tail = command({
  description: 'Print the change feed, and follow it',
  examples: [
    'feed tail --follow',
    'feed tail --after 1200 --limit 100 --json',
    'feed tail --follow --json lines | jq .orderId',
  ],
  options: {
    '--after <seq>': whole(
      `events after this one; without it the last ${TAIL}, or as many as --limit says`,
      0,
    ),
    '--limit <n>': whole('at most this many', 1),
    '-f, --follow': 'go on with new events until Ctrl-C',
    '--json [lines]': JSON_LINES,
  },
  async run(call) {
    const { cli, options } = call;
    const { limit, follow = false, json } = options;
    refuseEndless('A feed that is followed', options);
    return withReaders(call, async ({ mirror }) => {
      const newestSeq = mirror.newestSeq();
      const tail = follow ? TAIL : (limit ?? TAIL);
      const after = options.after ?? Math.max(0, newestSeq - tail);
      const trimmedTo = mirror.trimmedTo();
      if (after < trimmedTo && !json) {
        cli.stderr.write(
          `Up to ${trimmedTo} earlier events of orders that ended long ago are deleted; the newest of each order is there.\n`,
        );
      }
      const { clock, signal, stdout } = cli;
      const events: OrderEvent[] = [];
      for await (const event of feed({ mirror, clock, signal, after, follow, limit })) {
        if (json === 'lines') writeJsonLine(cli, event);
        else if (json) events.push(event);
        else stdout.write(`${printable(eventLine(event))}\n`);
      }
      return { json: { events, newestSeq, trimmedTo } };
    });
  },
});

const CHUNK = 500;

const ack = command({
  description: 'Tell that the POS has booked orders, so that its stock counts include them',
  examples: ['feed ack 1005', 'feed ack 64f0c2a9e1', 'feed ack < booked-orders.txt'],
  argument: [
    '[orders...]',
    "numbers of orders, such as 1005, or the platform's ids; without any, or with -, ids, one a line from standard input",
  ],
  more: '\nHand the new counts over first, then acknowledge.',
  async run(call) {
    const { cli, argument: words } = call;
    const fromInput = words.length === 0 || (words.length === 1 && words[0] === '-');
    if (words.length === 0 && cli.stdin.isTTY) {
      throw new TillsyncError('usage', 'No order is named. Give ids, or - to type them one a line.');
    }
    const given = fromInput ? await readOrderIds(cli.stdin) : checkOrderIds(words, 'id');
    return withParts(call, async ({ parts, config, progress }) => {
      const idOf = (word: string) => findOrder(parts.mirror, word, config.orders.timezone)?.orderId ?? word;
      const orderIds = fromInput ? given : given.map(idOf);
      const results = [];
      for (let start = 0; start < orderIds.length; start += CHUNK) {
        const some = orderIds.slice(start, start + CHUNK);
        results.push(...(await parts.outbox.acknowledge(some, 'cli', cli.who)));
        progress.count('orders acknowledged', results.length, orderIds.length);
      }
      progress.end();
      const unheard = results.filter(({ state }) => state === 'unheard');
      for (const { orderId } of unheard) {
        cli.stderr.write(`${printable(orderId)}: noted, though the mirror has no such order yet.\n`);
      }
      const fresh = results.filter(({ state }) => state === 'new').length;
      const before = results.length - fresh - unheard.length;
      const noted = unheard.length === 0 ? '' : `, ${unheard.length} noted that the mirror does not have yet`;
      return {
        json: { results },
        text: `${fresh} orders acknowledged, ${before} were before${noted}.\n`,
        exit: unheard.length === 0 ? EXIT.done : EXIT.partial,
      };
    });
  },
});

const INPUT_MAX_BYTES = 16 * 1024 * 1024;

/** Order ids from a stream: one a line, or one JSON array of texts. Throws `usage` naming the first bad one. */
async function readOrderIds(stdin: Cli['stdin']): Promise<string[]> {
  const input = await readAll(stdin, INPUT_MAX_BYTES, (found) => bad(`${found} came`));
  const text = input.replace(/^\ufeff/, '').trim();
  if (text === '') throw bad('nothing came on standard input');
  if (text.startsWith('[')) {
    try {
      return checkOrderIds(JSON.parse(text), 'index');
    } catch (error) {
      // A fault of the JSON itself would repeat the input.
      throw hasCode(error, 'usage') ? error : bad('what came looks like a JSON array and is none');
    }
  }
  const lines = text.split('\n').map((line) => line.trim());
  return checkOrderIds(
    lines.filter((line) => line !== ''),
    'id',
  );
}

/** Ids as they may stand in the mirror. */
function checkOrderIds(ids: readonly unknown[], place: 'index' | 'id'): string[] {
  return ids.map((id, i) => {
    const text = typeof id === 'string' ? id.trim() : '';
    const isSound = text !== '' && text.length <= ORDER_ID_LENGTH_MAX && !/[\0\ufffd]/.test(text);
    if (isSound && text.isWellFormed()) return text;
    throw bad(
      `${place} ${place === 'index' ? i : i + 1} is no order id: ${JSON.stringify(id)?.slice(0, 60)}`,
    );
  });
}

function bad(found: string): TillsyncError {
  return new TillsyncError('usage', `No order was acknowledged: ${found}.`, {
    hint: 'Give ids as arguments, or one a line on standard input: {tillsync} feed ack < FILE',
  });
}

export const feedCommands = group('Read the change feed, and acknowledge what was booked', { tail, ack });
