import type { Command } from 'commander';
import { TillsyncError } from '../../domain/errors.ts';
import type { Cli } from '../cli.ts';
import { type GlobalOptions, type JsonOption, newResultCommand } from '../new-command.ts';
import { checkOrderIds, readOrderIds } from '../options/order-ids.ts';
import { writeJson } from '../output.ts';
import { printable } from '../texts/printable.ts';
import { withParts } from '../with-parts.ts';

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
