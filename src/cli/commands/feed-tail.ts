import { type Command, Option } from 'commander';
import { TillsyncError } from '../../domain/errors.ts';
import type { OrderEvent } from '../../domain/order/order.ts';
import type { Cli } from '../cli.ts';
import { eventLine, feed } from '../feed.ts';
import { type GlobalOptions, newCommand, wholeNumberOption } from '../new-command.ts';
import { writeJson, writeJsonLine } from '../output.ts';
import { printable } from '../texts/printable.ts';
import { withReaders } from '../with-readers.ts';

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
