import { hasCode, TillsyncError } from '../core/errors.ts';
import { ORDER_ID_LENGTH_MAX, type OrderEvent } from '../orders/merging/order.ts';
import { type Acknowledgement, type AckResult, WITHOUT_MAX } from '../outbox/intake/change.ts';
import { type Cli, EXIT, printable, readAll, writeJsonLine } from './cli.ts';
import {
  command,
  JSON_LINES,
  type Result,
  refuseEndless,
  whole,
  withReaders,
  withServices,
} from './command.ts';
import { refusedBy, throughDaemon } from './daemon-client.ts';
import { eventLine, feed } from './event-feed.ts';
import { findOrder } from './order.ts';

const TAIL = 20;

export const events = command({
  description: 'Show order events',
  examples: [
    'order events --follow',
    'order events --after 1200 --limit 100 --json',
    'order events --follow --json lines | jq .orderId',
  ],
  options: {
    '--after <seq>': whole(`Events after this one (default: the last ${TAIL}, or --limit)`, 0),
    '--limit <n>': whole('Entries to show at most', 1),
    '-f, --follow': 'Follow new events until Ctrl-C',
    '--json [lines]': JSON_LINES,
  },
  async run(call) {
    const { cli, options } = call;
    const { limit, follow = false, json } = options;
    refuseEndless('A feed that is followed', options);
    return withReaders(call, async ({ mirror }) => {
      const newestSeq = mirror.orders.newestSeq();
      const tail = follow ? TAIL : (limit ?? TAIL);
      const after = options.after ?? Math.max(0, newestSeq - tail);
      const trimmedTo = mirror.orders.trimmedTo();
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

export const ack = command({
  description: 'Mark orders as booked by the POS, so that its counts include them',
  examples: ['order ack 1005', 'order ack 64f0c2a9e1 --seq 17', 'order ack < booked-orders.txt'],
  argument: [
    '[orders...]',
    'Order numbers or IDs (default: from standard input, one per line, or a JSON array of IDs and of {"orderId": …, "seq": …, "without": […]})',
  ],
  options: {
    '--seq <seq>': whole('Event up to which they are booked (default: the newest)', 0),
    '--without <lines>': 'Numbers of lines that are not booked (example: 2,3); the order stays on the list',
  },
  more: '\nSend the new counts first, then acknowledge.',
  async run(call) {
    const { cli, argument: words } = call;
    const fromInput = words.length === 0 || (words.length === 1 && words[0] === '-');
    if (words.length === 0 && cli.stdin.isTTY) {
      throw new TillsyncError('usage', 'No order is named. Give ids, or - to type them one a line.');
    }
    const { seq } = call.options;
    const without = call.options.without === undefined ? undefined : linesNamed(call.options.without);
    const given = fromInput ? await readAcks(cli.stdin) : checkAcks(words, 'id');
    const idsBy = (mirror: Parameters<typeof findOrder>[0], timezone: string): Acknowledgement[] =>
      given.flatMap((each) => {
        if ('fault' in each) return [];
        const { orderId: word } = each;
        const orderId = fromInput ? word : (findOrder(mirror, word, timezone)?.orderId ?? word);
        return [{ orderId, seq: each.seq ?? seq, without: each.without ?? without }];
      });
    const guest = throughDaemon(call);
    if (guest) {
      const { timezone } = guest.config.orders;
      const acks = await withReaders(call, ({ mirror }) => idsBy(mirror, timezone));
      const results: AckResult[] = [];
      for (let start = 0; start < acks.length; start += CHUNK) {
        const answer = await guest.client.post('/orders/ack', acks.slice(start, start + CHUNK));
        refusedBy(answer);
        results.push(...answer.body.results);
      }
      return ackResult(cli, given, results);
    }
    return withServices(call, async ({ services, config, progress }) => {
      const acks = idsBy(services.mirror, config.orders.timezone);
      const results: AckResult[] = [];
      for (let start = 0; start < acks.length; start += CHUNK) {
        const some = acks.slice(start, start + CHUNK);
        results.push(...(await services.outbox.acknowledge(some, 'cli', cli.who)));
        progress.count('orders acknowledged', results.length, acks.length);
      }
      progress.end();
      return ackResult(cli, given, results);
    });
  },
});

/** Returns the result of acknowledgements. Writes unknown orders and rejected acknowledgements to standard error. */
function ackResult(cli: Cli, given: readonly NamedAck[], answered: readonly AckResult[]): Result {
  const results = [...answered];
  for (const each of given) {
    if ('fault' in each) results.push({ orderId: each.orderId, state: 'rejected', message: each.fault });
  }
  const ofState = (state: AckResult['state']) => results.filter((each) => each.state === state);
  for (const { orderId } of ofState('unheard')) {
    cli.stderr.write(`${printable(orderId)}: noted, though the mirror has no such order yet.\n`);
  }
  for (const { orderId, message } of ofState('rejected')) {
    cli.stderr.write(`${printable(orderId)}: not acknowledged. ${printable(message ?? '')}\n`);
  }
  const [fresh, before] = [ofState('new').length, ofState('known').length];
  const [unheard, rejected] = [ofState('unheard').length, ofState('rejected').length];
  const noted = unheard === 0 ? '' : `, ${unheard} noted that the mirror does not have yet`;
  const refused = rejected === 0 ? '' : `, ${rejected} refused`;
  return {
    json: { results },
    text: `${fresh} orders acknowledged, ${before} were before${noted}${refused}.\n`,
    exit: unheard + rejected === 0 ? EXIT.done : EXIT.partial,
  };
}

const INPUT_MAX_BYTES = 16 * 1024 * 1024;

/** An acknowledgement as given. `fault` is the reason why it is rejected. */
type NamedAck =
  | { orderId: string; seq?: number | undefined; without?: number[] | undefined }
  | { orderId: string; fault: string };

/**
 * Reads acknowledgements from standard input: one order id per line, or one JSON array. Throws `usage` at the first
 * invalid id.
 */
async function readAcks(stdin: Cli['stdin']): Promise<NamedAck[]> {
  const input = await readAll(stdin, INPUT_MAX_BYTES, (found) => bad(`${found} came`));
  const text = input.replace(/^\ufeff/, '').trim();
  if (text === '') throw bad('nothing came on standard input');
  if (text.startsWith('[')) {
    try {
      return checkAcks(JSON.parse(text), 'index');
    } catch (error) {
      // The message of JSON.parse would repeat the input, which may contain customer data.
      throw hasCode(error, 'usage') ? error : bad('what came looks like a JSON array and is none');
    }
  }
  const lines = text.split('\n').map((line) => line.trim());
  return checkAcks(
    lines.filter((line) => line !== ''),
    'id',
  );
}

/**
 * Checks `given`: order ids or, in a JSON array (`index`), also objects with an id and a `seq`. Throws `usage` for an
 * invalid id; an invalid `seq` is returned as a fault.
 */
function checkAcks(given: readonly unknown[], place: 'index' | 'id'): NamedAck[] {
  return given.map((each, i) => {
    const isItem = place === 'index' && typeof each === 'object' && each !== null && 'orderId' in each;
    const {
      orderId: id,
      seq = undefined,
      without = undefined,
    } = isItem ? (each as { orderId: unknown; seq?: unknown; without?: unknown }) : { orderId: each };
    const orderId = typeof id === 'string' ? id.trim() : '';
    const isSound = orderId !== '' && orderId.length <= ORDER_ID_LENGTH_MAX && !/[\0\ufffd]/.test(orderId);
    if (!isSound || !orderId.isWellFormed()) {
      const where = `${place} ${place === 'index' ? i : i + 1}`;
      throw bad(`${where} is no order id: ${JSON.stringify(each)?.slice(0, 60)}`);
    }
    const isSeq = seq === undefined || (Number.isSafeInteger(seq) && Number(seq) >= 0);
    if (!isSeq) {
      return { orderId, fault: `seq is no whole number of 0 or more: ${JSON.stringify(seq)?.slice(0, 60)}` };
    }
    if (without !== undefined && !areLines(without)) {
      return {
        orderId,
        fault: `without is no list of line numbers: ${JSON.stringify(without)?.slice(0, 60)}`,
      };
    }
    return {
      orderId,
      ...(seq !== undefined && { seq: Number(seq) }),
      ...(without !== undefined && { without }),
    };
  });
}

function areLines(given: unknown): given is number[] {
  return (
    Array.isArray(given) &&
    given.length <= WITHOUT_MAX &&
    given.every((line) => Number.isSafeInteger(line) && line > 0)
  );
}

/** Returns the lines of `--without`. Throws `usage` if it is no list of line numbers. */
function linesNamed(word: string): number[] {
  const lines = word.split(',').map((each) => (each.trim() === '' ? Number.NaN : Number(each)));
  if (areLines(lines)) return lines;
  throw new TillsyncError(
    'usage',
    `--without: found ${word.slice(0, 60)}; allowed: line numbers, such as 2,3.`,
  );
}

function bad(found: string): TillsyncError {
  return new TillsyncError('usage', `No order was acknowledged: ${found}.`, {
    hint: 'Give ids as arguments, or one a line on standard input: {tillsync} order ack < FILE',
  });
}
