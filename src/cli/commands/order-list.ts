import type { Command } from 'commander';
import type { Config } from '../../config/config-type.ts';
import { TillsyncError } from '../../domain/errors.ts';
import type { Cli } from '../cli.ts';
import { type GlobalOptions, type JsonOption, newResultCommand, wholeNumberOption } from '../new-command.ts';
import { instantOption } from '../options/instant-option.ts';
import { orderCode } from '../options/order-code.ts';
import { writeJson } from '../output.ts';
import { orderTable } from '../texts/order-text.ts';
import { withReaders } from '../with-readers.ts';

interface OrderListOptions extends GlobalOptions, JsonOption {
  status?: string;
  open?: boolean;
  code?: number;
  day?: string;
  branch?: string;
  customer?: string;
  unbooked?: boolean;
  limit: number;
  before?: string;
}

/** `order list`: the newest orders of the mirror. */
export function orderListCommand(cli: Cli): Command {
  return newResultCommand('list', 'List orders of the mirror, the newest first', [
    'order list --open',
    'order list --day 2026-03-01 --customer soto',
    'order list --unbooked --branch B1 --json',
  ])
    .option('--code <number>', 'only orders with this number', codeOption)
    .option('--day <day>', 'only orders placed on this day, such as 2026-03-01')
    .option('--branch <id>', 'only orders of this branch, by either of its ids')
    .option('--customer <text>', 'only orders whose customer has this in the name, phone number or e-mail')
    .option('--unbooked', 'only paid orders that no POS has acknowledged')
    .option('--status <status>', 'only orders in this status')
    .option('--open', 'only orders whose life has not ended')
    .option('--limit <n>', 'at most this many', wholeNumberOption('--limit', 1), 20)
    .option('--before <time>', 'only orders placed before this day or time, such as 2026-03-01T18:30')
    .action((_options, command: Command) => list(cli, command.optsWithGlobals()));
}

function codeOption(text: string): number {
  const code = orderCode(text);
  if (code !== undefined) return code;
  throw new TillsyncError('usage', `--code: found "${text}"; allowed: an order number such as 1005.`);
}

function list(cli: Cli, options: OrderListOptions): Promise<void> {
  const { status, open, code, day, branch, customer, unbooked, limit, before } = options;
  return withReaders(cli, options, async ({ mirror }, config) => {
    const timeZone = config.orders.timezone;
    const [createdFrom, dayEnd, beforeTime] = [
      await instantOption('--day', day, { timeZone, end: false }),
      await instantOption('--day', day, { timeZone, end: true }),
      await instantOption('--before', before, { timeZone, end: false }),
    ];
    const ends = [dayEnd, beforeTime].filter((end) => end !== undefined);
    const orders = mirror.orders({
      limit,
      ...{ status, open, code, customer, unbooked, createdFrom },
      createdBefore: ends.sort()[0],
      stores: branch === undefined ? undefined : await storesOf(config, branch),
    });
    if (options.json) writeJson(cli, { orders });
    else if (orders.length > 0) cli.stdout.write(orderTable(orders, timeZone));
    else cli.stderr.write('The mirror has no such orders.\n');
  });
}

/** The ids under which orders may name a branch. */
async function storesOf(config: Config, name: string): Promise<string[]> {
  const { namedBranch } = await import('../../daemon/sweep-now.ts');
  const branches = config.branches.map(({ subsidiaryId = null, externalId = null }) => ({
    subsidiaryId,
    externalId,
  }));
  const { subsidiaryId, externalId } = namedBranch(branches, name);
  return [subsidiaryId, externalId].filter((id) => id !== null);
}
