import type { Command } from 'commander';
import { TillsyncError } from '../../domain/errors.ts';
import type { Cli } from '../cli.ts';
import { type GlobalOptions, type JsonOption, newResultCommand } from '../new-command.ts';
import { writeJson } from '../output.ts';
import { orderDetails } from '../texts/order-text.ts';
import { withReaders } from '../with-readers.ts';

interface OrderShowOptions extends GlobalOptions, JsonOption {
  payload?: boolean;
}

/** `order show`: everything the mirror has of one order. */
export function orderShowCommand(cli: Cli): Command {
  return newResultCommand('show', 'Show every field of an order', [
    'order show 64f0c2a9e1',
    'order show 64f0c2a9e1 --payload',
  ])
    .argument('<order>', "the platform's id of the order, as in `order list`")
    .option('--payload', 'print what the platform sent, exactly as received')
    .action((orderId: string, _options, command: Command) => show(cli, orderId, command.optsWithGlobals()));
}

function show(cli: Cli, orderId: string, options: OrderShowOptions): Promise<void> {
  return withReaders(cli, options, ({ mirror }, config) => {
    const order = mirror.order(orderId);
    if (order === undefined) {
      throw new TillsyncError('not-found', `The mirror has no order "${orderId}".`, {
        hint: 'See the ids with: tillsync order list. To ask the platform again: tillsync sync orders --from DAY --to DAY',
      });
    }
    const payload = mirror.orderPayload(orderId) ?? null;
    if (options.json) writeJson(cli, { order, payload });
    else if (options.payload) cli.stdout.write(`${payload ?? ''}\n`);
    else cli.stdout.write(orderDetails(order, config.orders.timezone));
  });
}
