import type { Command } from 'commander';
import type { Parts } from '../../daemon/parts.ts';
import { TillsyncError } from '../../domain/errors.ts';
import type { Cli } from '../cli.ts';
import { EXIT } from '../exit-code.ts';
import { type GlobalOptions, type JsonOption, newResultCommand } from '../new-command.ts';
import { writeJson } from '../output.ts';
import { withParts } from '../with-parts.ts';

type PollReport = Awaited<ReturnType<Parts['orderPoll']['poll']>>;

interface SyncOrdersOptions extends GlobalOptions, JsonOption {
  from?: string;
  to?: string;
  wide?: boolean;
}

/** `sync orders`: one complete poll now, under the same budget as the daemon's. */
export function syncOrdersCommand(cli: Cli): Command {
  return newResultCommand('orders', 'Poll the orders now and mirror them', [
    'sync orders',
    'sync orders --from 2026-03-01 --to 2026-03-07',
    'sync orders --wide --json',
  ])
    .option('--from <day>', 'first day to ask for, YYYY-MM-DD in the calendar of the company')
    .option('--to <day>', 'last day to ask for; without it the first day')
    .option('--wide', 'reach back to the oldest order whose life has not ended')
    .action((_options, command: Command) => sync(cli, command.optsWithGlobals()));
}

async function sync(cli: Cli, options: SyncOrdersOptions): Promise<void> {
  const window = windowOf(options);
  await withParts(cli, options, async ({ parts, progress, call }) => {
    progress.step('asking the platform for orders');
    const report = await parts.orderPoll.poll({
      ...call,
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

function windowOf({ from, to, wide }: SyncOrdersOptions): { startDate: string; endDate: string } | undefined {
  if (from === undefined && to === undefined) return undefined;
  if (from === undefined) throw new TillsyncError('usage', '--to needs --from, the first day to ask for.');
  if (wide) throw new TillsyncError('usage', '--wide chooses the days itself, so it stands without --from.');
  const window = { startDate: dayOption('--from', from), endDate: dayOption('--to', to ?? from) };
  if (window.endDate < window.startDate) {
    throw new TillsyncError('usage', `--to ${window.endDate} lies before --from ${window.startDate}.`);
  }
  return window;
}

function dayOption(name: string, text: string): string {
  const ms = /^\d{4}-\d{2}-\d{2}$/.test(text) ? Date.parse(`${text}T00:00:00Z`) : Number.NaN;
  if (!Number.isNaN(ms) && new Date(ms).toISOString().startsWith(text)) return text;
  throw new TillsyncError('usage', `${name}: found "${text}"; allowed: a day such as 2026-03-01.`);
}

function reportText(report: PollReport): string {
  const { records, created, changed, confirmed, superseded, unreadable, window } = report;
  const days =
    window.startDate === window.endDate ? window.startDate : `${window.startDate} to ${window.endDate}`;
  const lines = [
    `${records} orders of ${days}: ${created} new, ${changed} changed, ${confirmed} as they were.`,
  ];
  if (superseded > 0) lines.push(`${superseded} were left as a newer callback had put them.`);
  if (unreadable > 0) lines.push(`${unreadable} could not be read and are kept: tillsync quarantine list`);
  if (report.morePages) {
    lines.push('The answer speaks of further pages; name their parameter in orders.page_parameter.');
  }
  return `${lines.join('\n')}\n`;
}
