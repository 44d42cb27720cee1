import type { Command } from 'commander';
import type { Parts } from '../../daemon/parts.ts';
import { counted } from '../../domain/counted.ts';
import { TillsyncError } from '../../domain/errors.ts';
import { typedWords } from '../../domain/installation.ts';
import type { Cli } from '../cli.ts';
import { EXIT } from '../exit-code.ts';
import { type GlobalOptions, type JsonOption, newResultCommand } from '../new-command.ts';
import { type NoWaitOption, patienceOf, withNoWait } from '../options/no-wait-option.ts';
import { windowOption } from '../options/window-option.ts';
import { writeJson } from '../output.ts';
import { withParts } from '../with-parts.ts';

type PollReport = Awaited<ReturnType<Parts['orderPoll']['poll']>>;

interface SyncOrdersOptions extends GlobalOptions, JsonOption, NoWaitOption {
  from?: string;
  to?: string;
  wide?: boolean;
}

/** `sync orders`: one complete poll now, under the same budget as the daemon's. */
export function syncOrdersCommand(cli: Cli): Command {
  return withNoWait(
    newResultCommand('orders', 'Poll the orders now and mirror them', [
      'sync orders',
      'sync orders --from 2026-03-01 --to 2026-03-07',
      'sync orders --wide --json',
    ]),
  )
    .option('--from <day>', 'first day to ask for, YYYY-MM-DD in the calendar of the company')
    .option('--to <day>', 'last day to ask for; without it the first day')
    .option('--wide', 'reach back to the oldest order whose life has not ended')
    .action((_options, command: Command) => sync(cli, command.optsWithGlobals()));
}

async function sync(cli: Cli, options: SyncOrdersOptions): Promise<void> {
  const window = windowOption(options);
  if (window && options.wide) {
    throw new TillsyncError('usage', '--wide chooses the days itself, so it stands without --from.');
  }
  await withParts(cli, options, async ({ parts, progress, call }) => {
    progress.step('asking the platform for orders');
    const report = await parts.orderPoll.poll({
      ...patienceOf(call, options),
      ...(window === undefined ? {} : { window }),
      ...(options.wide ? { wide: true } : {}),
      onProgress: (done, total) => progress.count('orders', done, total),
    });
    progress.end();
    if (report.unreadable > 0 || report.morePages) cli.endWith(EXIT.partial);
    if (options.json) writeJson(cli, report);
    else cli.stdout.write(reportText(report));
  });
}

function reportText(report: PollReport): string {
  const { records, created, changed, confirmed, superseded, unreadable, window } = report;
  const days =
    window.startDate === window.endDate ? window.startDate : `${window.startDate} to ${window.endDate}`;
  const lines = [
    `${counted(records, 'order')} of ${days}: ${created} new, ${changed} changed, ${confirmed} as they were.`,
  ];
  if (superseded > 0) lines.push(`${superseded} kept as a newer callback had put them.`);
  if (unreadable > 0)
    lines.push(`${unreadable} could not be read and are kept: ${typedWords().tillsync} quarantine list`);
  if (report.morePages) {
    lines.push('The answer speaks of further pages; name their parameter in orders.page_parameter.');
  }
  return `${lines.join('\n')}\n`;
}
