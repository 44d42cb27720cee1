import type { Command } from 'commander';
import { Option } from 'commander';
import type { OrderSource } from '../../domain/order/order.ts';
import { instantOption } from './instant-option.ts';

/** Options that say which of what was received is meant. */
export interface ReceivedOptions {
  order?: string;
  since?: string;
  until?: string;
  source?: OrderSource;
  quarantined?: boolean;
}

/** Adds the options to a command. */
export function withReceivedOptions(command: Command): Command {
  return command
    .option('--order <id>', 'of this order')
    .option(
      '--since <time>',
      'received on this day or since this time, such as 2026-03-01 or 2026-03-01T18:30',
    )
    .option('--until <time>', 'received until the end of this day, or before this time')
    .addOption(new Option('--source <source>', 'how it came').choices(['webhook', 'poll']))
    .option('--quarantined', 'only what could not be read');
}

/** The filter the options stand for; days and times without a zone are the company's. Throws `usage`. */
export async function receivedFilter({ order, since, until, source }: ReceivedOptions, timeZone: string) {
  return {
    orderId: order,
    source,
    since: await instantOption('--since', since, { timeZone, end: false }),
    until: await instantOption('--until', until, { timeZone, end: true }),
  };
}
