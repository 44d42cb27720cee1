import type { Command } from 'commander';
import type { Readers } from '../../daemon/reading/readers.ts';
import { TillsyncError } from '../../domain/errors.ts';
import type { MirroredOrder } from '../../domain/order/mirrored-order.ts';
import type { Cli } from '../cli.ts';
import { type GlobalOptions, type JsonOption, newResultCommand } from '../new-command.ts';
import { orderCode } from '../options/order-code.ts';
import { writeJson } from '../output.ts';
import { historyText, orderDetails } from '../texts/order-text.ts';
import { writePayload } from '../texts/received-text.ts';
import { whenIn } from '../texts/when.ts';
import { withReaders } from '../with-readers.ts';

interface OrderShowOptions extends GlobalOptions, JsonOption {
  payload?: boolean;
}

/** Several orders with one number are rare; a person who sees these will name another. */
const SAME_CODE_MAX = 10;

/** `order show`: everything the mirror has of one order, and what became of it. */
export function orderShowCommand(cli: Cli): Command {
  return newResultCommand('show', 'Show every field of an order, its statuses and whether the POS has it', [
    'order show 1005',
    'order show 64f0c2a9e1 --payload',
  ])
    .argument('<order>', "the order's number, such as 1005, or the platform's id of it")
    .option('--payload', 'print what the platform sent, exactly as received')
    .action((word: string, _options, command: Command) => show(cli, word, command.optsWithGlobals()));
}

function show(cli: Cli, word: string, options: OrderShowOptions): Promise<void> {
  return withReaders(cli, options, ({ mirror }, config) => {
    const { timezone } = config.orders;
    const order = mirror.order(word) ?? withCode(mirror, word, timezone);
    if (order === undefined) {
      throw new TillsyncError('not-found', `The mirror has no order "${word}".`, {
        hint: 'See those it has with: {tillsync} order list. To ask the platform again: {tillsync} sync orders --from DAY --to DAY',
      });
    }
    const payload = mirror.orderPayload(order.orderId) ?? null;
    const history = mirror.orderHistory(order.orderId);
    if (options.json) writeJson(cli, { order, ...history, payload });
    else if (options.payload) writePayload(cli, `${payload ?? ''}\n`);
    else cli.stdout.write(orderDetails(order, timezone) + historyText(history, timezone));
  });
}

/** The one order with this number; undefined: none. Throws `usage` where there are several. */
function withCode(mirror: Readers['mirror'], word: string, timeZone: string): MirroredOrder | undefined {
  const code = orderCode(word);
  if (code === undefined) return undefined;
  const orders = mirror.orders({ code, limit: SAME_CODE_MAX });
  if (orders.length < 2) return orders[0];
  const each = orders.map(
    ({ orderId, createdAt, storeExternalId }) =>
      `  ${orderId}  ${whenIn(createdAt, timeZone) ?? '-'}  branch ${storeExternalId ?? '-'}`,
  );
  throw new TillsyncError('usage', `${orders.length} orders have the number ${code}:\n${each.join('\n')}`, {
    hint: `Name one by its id: {tillsync} order show ${orders[0]?.orderId}`,
  });
}
