import type { Command } from 'commander';
import type { Parts } from '../app/parts.ts';
import type { SweepReport } from '../app/sweep-now.ts';
import { counted, TillsyncError, typedWords } from '../core/errors.ts';
import {
  type Cli,
  EXIT,
  type GlobalOptions,
  type JsonOption,
  newResultCommand,
  printable,
  writeJson,
} from './cli.ts';
import { type NoWaitOption, notNow, patienceOf, windowOption, withNoWait } from './options.ts';
import { withParts } from './with-parts.ts';

type PollReport = Awaited<ReturnType<Parts['orderPoll']['poll']>>;

interface SyncOrdersOptions extends GlobalOptions, JsonOption, NoWaitOption {
  from?: string;
  to?: string;
  wide?: boolean;
}

/** `syncOrders orders`: one complete poll now, under the same budget as the daemon's. */
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
    .action((_options, command: Command) => syncOrders(cli, command.optsWithGlobals()));
}

async function syncOrders(cli: Cli, options: SyncOrdersOptions): Promise<void> {
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
    else cli.stdout.write(ordersText(report));
  });
}

function ordersText(report: PollReport): string {
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

interface SyncProductsOptions extends GlobalOptions, JsonOption, NoWaitOption {
  branch?: string;
}

/** `syncProducts products`: reads the whole catalogue now, one process at a time. */
export function syncProductsCommand(cli: Cli): Command {
  return withNoWait(
    newResultCommand('products', 'Read the catalogue now and mirror it', [
      'sync products',
      'sync products --branch B1 --json',
    ]),
  )
    .option('--branch <id>', 'only this branch, by its subsidiary_id or external_id; else every one')
    .action((_options, command: Command) => syncProducts(cli, command.optsWithGlobals()));
}

async function syncProducts(cli: Cli, options: SyncProductsOptions): Promise<void> {
  const { branchName, namedBranch, sweepNow } = await import('../app/sweep-now.ts');
  await withParts(cli, options, async ({ parts, progress, call }) => {
    if (parts.branches.length === 0) {
      throw new TillsyncError(
        'config-invalid',
        'No branches are configured, so there is no catalogue to read.',
        {
          hint: 'Name each branch in a [[branches]] section; the API cannot list them.',
        },
      );
    }
    const branch = options.branch === undefined ? undefined : namedBranch(parts.branches, options.branch);
    let of = '';
    const reports = await sweepNow(parts, {
      ...patienceOf(call, options),
      branch,
      onBranch: (each) => {
        of = branchName(each);
        progress.step(`asking the platform for the products of ${of}`);
      },
      onBusy: () => {
        if (!options.wait) throw notNow('another process is reading the catalogue');
        progress.step('another process is reading the catalogue; waiting until it has ended');
      },
      onProgress: (done, total) => progress.count(`products of ${of}`, done, total ?? undefined),
    });
    progress.end();
    if (reports.some((report) => report.unreadable > 0)) cli.endWith(EXIT.partial);
    if (options.json) writeJson(cli, { branches: reports });
    else for (const report of reports) cli.stdout.write(productsText(branchName(report.branch), report));
  });
}

function productsText(name: string, report: SweepReport): string {
  const { products, pages, written, vanished, unreadable } = report;
  const lines = [
    `${name}: ${counted(products, 'product')} on ${counted(pages, 'page')}, ${written} new or changed.`,
  ];
  if (vanished > 0) lines.push(`${vanished} no longer listed.`);
  if (unreadable > 0)
    lines.push(`${unreadable} could not be read and are kept: ${typedWords().tillsync} quarantine list`);
  return `${lines.map(printable).join('\n')}\n`;
}
