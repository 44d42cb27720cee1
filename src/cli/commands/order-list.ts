import type { Command } from 'commander';
import { TillsyncError } from '../../domain/errors.ts';
import { isoUtc } from '../../domain/time/clock.ts';
import type { Cli } from '../cli.ts';
import { type GlobalOptions, type JsonOption, newResultCommand, wholeNumberOption } from '../new-command.ts';
import { writeJson } from '../output.ts';
import { orderTable } from '../texts/order-text.ts';
import { withReaders } from '../with-readers.ts';

interface OrderListOptions extends GlobalOptions, JsonOption {
  status?: string;
  open?: boolean;
  limit: number;
  before?: string;
}

/** `order list`: the newest orders of the mirror. */
export function orderListCommand(cli: Cli): Command {
  return newResultCommand('list', 'List orders of the mirror, the newest first', [
    'order list --open',
    'order list --status ready --limit 5 --json',
  ])
    .option('--status <status>', 'only orders in this status')
    .option('--open', 'only orders whose life has not ended')
    .option('--limit <n>', 'at most this many', wholeNumberOption('--limit', 1), 20)
    .option('--before <time>', 'only orders created before this time (ISO 8601, UTC)', timeOption)
    .action((_options, command: Command) => list(cli, command.optsWithGlobals()));
}

/** As the mirror writes times, so that they compare as text. */
function timeOption(text: string): string {
  const ms = /^\d{4}-\d{2}-\d{2}/.test(text) ? Date.parse(text) : Number.NaN;
  if (!Number.isNaN(ms)) return isoUtc(ms);
  throw new TillsyncError(
    'usage',
    `--before: found "${text}"; allowed: a time such as 2026-03-01 or 2026-03-01T12:00:00Z.`,
  );
}

function list(cli: Cli, options: OrderListOptions): Promise<void> {
  const { status, open, limit, before } = options;
  return withReaders(cli, options, ({ mirror }, config) => {
    const orders = mirror.orders({
      limit,
      ...(status === undefined ? {} : { status }),
      ...(open === undefined ? {} : { open }),
      ...(before === undefined ? {} : { createdBefore: before }),
    });
    if (options.json) writeJson(cli, { orders });
    else if (orders.length > 0) cli.stdout.write(orderTable(orders, config.orders.timezone));
    else cli.stderr.write('The mirror has no such orders.\n');
  });
}
