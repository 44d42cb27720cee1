import type { Services } from '../app/services.ts';
import { branchName, namedBranch } from '../catalog/product.ts';
import type { SweepReport } from '../catalog/sweep.ts';
import { sweepNow } from '../catalog/sweep.ts';
import { counted, TillsyncError, typedWords } from '../core/errors.ts';
import { unreadListsText } from '../orders/receiving/order-poll.ts';
import { EXIT, printable } from './cli.ts';
import { command, WAIT, withPlatform } from './command.ts';
import { productSteps } from './diff.ts';
import { notNow, windowOf } from './options.ts';

export const orders = command({
  description: 'Fetch orders now',
  examples: ['sync orders', 'sync orders --from 2026-03-01 --to 2026-03-07', 'sync orders --wide --json'],
  options: {
    '--no-wait': WAIT,
    '--from <day>': "First day, YYYY-MM-DD in the company's time zone",
    '--to <day>': 'Last day (default: the first day)',
    '--wide': 'Go back to the oldest open order; days before orders.wide_days take two minutes each',
  },
  async run(context) {
    const { from, to, wide, wait } = context.options;
    const window = windowOf(from, to);
    if (window && wide) {
      throw new TillsyncError('usage', '--wide chooses the days itself, so it stands without --from.');
    }
    return withPlatform(context, async ({ services, progress, note, call }) => {
      progress.step('asking the platform for orders');
      const report = await services.orderPoll.poll({
        ...call,
        ...(window && { window }),
        ...(wide && { wide }),
        onProgress: (done, total) => progress.count('orders', done, total),
      });
      const reports = [report];
      // Each window of old days has to wait for the rate limit.
      const older = wide && wait ? services.orderPoll.oldWindows() : [];
      for (const days of older) {
        progress.step(`asking the platform for orders of ${days.startDate} to ${days.endDate}`);
        reports.push(await services.orderPoll.poll({ ...call, window: days, isOld: true }));
      }
      if (window || wide) {
        for (const { window: days, created, changed } of reports) {
          const detail = `${created} new, ${changed} changed`;
          await note({ action: 'sync.orders', subject: `${days.startDate} to ${days.endDate}`, detail });
        }
      }
      const isPartial = reports.some(
        ({ unreadable, morePages, unreadLists }) =>
          unreadable > 0 || morePages || unreadLists.some(({ mayBeOrders }) => mayBeOrders),
      );
      const json = older.length === 0 ? report : { ...report, older: reports.slice(1) };
      return { json, text: reports.map(ordersText).join(''), exit: isPartial ? EXIT.partial : EXIT.done };
    });
  },
});

function ordersText(report: Awaited<ReturnType<Services['orderPoll']['poll']>>): string {
  const { records, repeated, created, changed, confirmed, superseded, unreadable, window, codes } = report;
  const { startDate, endDate } = window;
  const days = startDate === endDate ? startDate : `${startDate} to ${endDate}`;
  const lines = [
    `${counted(records - repeated, 'order')} of ${days}: ${created} new, ${changed} changed, ${confirmed} as they were.`,
  ];
  if (codes) lines.push(`Numbers: ${codes.min === codes.max ? codes.min : `${codes.min} to ${codes.max}`}.`);
  if (superseded > 0) lines.push(`${superseded} kept as a newer callback had put them.`);
  if (unreadable > 0) lines.push(unreadableLine(unreadable));
  const lists = unreadListsText(report.unreadLists);
  if (lists !== null) lines.push(printable(lists));
  if (report.morePages) {
    lines.push('The answer speaks of further pages; name their parameter in platform.quirks.page_parameter.');
  }
  return `${lines.join('\n')}\n`;
}

function unreadableLine(count: number): string {
  return `${count} could not be read and are kept: ${typedWords().tillsync} quarantine list`;
}

export const catalog = command({
  description: 'Fetch the catalogue now',
  examples: ['sync catalog', 'sync catalog --branch B1 --json'],
  options: {
    '--no-wait': WAIT,
    '--branch <id>': 'Only this branch (either ID; default: all)',
  },
  run: (context) =>
    withPlatform(context, async ({ services, progress, call }) => {
      const { branch, wait } = context.options;
      if (services.branches.length === 0) {
        throw new TillsyncError(
          'config-invalid',
          'No branches are configured, so there is no catalogue to read.',
          { hint: 'Name each branch in a [[branches]] section; the API cannot list them.' },
        );
      }
      const reports = await sweepNow(services, {
        ...call,
        ...productSteps(progress),
        branch: branch === undefined ? undefined : namedBranch(services.branches, branch),
        onBusy: () => {
          if (!wait) throw notNow('another process is reading the catalogue');
          progress.step('another process is reading the catalogue; waiting until it has ended');
        },
      });
      const isPartial = reports.some(({ unreadable, doubted }) => unreadable > 0 || doubted > 0);
      return {
        json: { branches: reports },
        text: reports.map(productsText).join(''),
        exit: isPartial ? EXIT.partial : EXIT.done,
      };
    }),
});

function productsText(report: SweepReport): string {
  const { branch, products, pages, written, vanished, doubted, unreadable } = report;
  const read = `${counted(products, 'product')} on ${counted(pages, 'page')}`;
  const lines = [`${branchName(branch)}: ${read}, ${written} new or changed.`];
  if (vanished > 0) lines.push(`${vanished} no longer listed.`);
  if (doubted > 0) {
    lines.push(
      `${counted(doubted, 'product')} missing from the list, most of those known. They are kept until the next scheduled reading lacks them too.`,
    );
  }
  if (unreadable > 0) lines.push(unreadableLine(unreadable));
  return `${lines.map(printable).join('\n')}\n`;
}
