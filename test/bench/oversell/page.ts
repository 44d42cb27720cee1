import { mkdirSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { figure } from '../report-plots.ts';
import type { Scenario } from './csv.ts';
import { pairedDifference, sumOf } from './figures.ts';
import { SWEPT_STRATEGIES, soldPlot, sweepPlot } from './plots.ts';
import { DAY } from './shop-day.ts';
import type { DayOutcome } from './shop-floor.ts';

const daysOf = ({ played }: Scenario, wanted: string): readonly DayOutcome[] =>
  played.find(({ name }) => name === wanted)?.days ?? [];

const grouped = (count: number) => count.toLocaleString('en-US');

/** Source of each parameter of the day, or the reason why there is none. */
const PARAMETERS: readonly (readonly [parameter: string, value: string, source: string])[] = [
  [
    'poll; calls',
    'every 2 minutes; 1 a second, of up to 100 items',
    "the platform's own document, as [the configuration](../../../docs/reference.md) has it under `[limits]`",
  ],
  [
    'from the shelf to the till',
    '1 to 8 minutes, uniform',
    '71 s to choose, 42 s in the queue and 21 s to pay in a small shop ([NACS](https://www.convenience.org/Research/Convenience-Store-Fast-Facts-and-Stats/FactSheets/Convenience)); a fifth stays longer than five minutes ([CSNews](https://csnews.com/c-stores-offer-what-shoppers-are-seeking-time))',
  ],
  [
    'which product is wanted',
    'the n-th with weight 1/n',
    'few products make most of the sales, often by a power law ([Bentley, Ormerod and Madsen](https://arxiv.org/abs/0808.1655)); the exponent 1 is an assumption',
  ],
  [
    'few pieces in the morning',
    '60 % of the products have 1 to 6 pieces, the others up to 29',
    'an assumption, as for fresh goods; 8.3 % of all products are out of stock at any moment in shops of 29 countries ([FMI](https://www.fmi.org/newsroom/news-archive/view/2002/10/14/new-industry-study-explores-root-causes-of-global-out-of-stock-dilemma))',
  ],
  [
    'share of online orders',
    '50 %',
    'an assumption, at which both sides compete most, varied below; supermarkets that sell online had 3.4 to 5.2 % in 2017 ([Brick Meets Click](http://www.theshelbyreport.com/2017/09/01/online-grocery-growth-accelerating/)), small shops 9.3 % by delivery and collection together in 2021 ([Lumina](https://asiantrader.biz/convenience-stores-see-growth-in-average-spend-visit-frequency-and-basket-size))',
  ],
  [
    'until staff book an order',
    '10 minutes on average, exponential',
    'an assumption, varied below: no public figure was found',
  ],
  [
    'customers; pieces each',
    '140 for 20 products in 12 hours; every tenth takes two',
    'an assumption: a small shop has about 1,100 customers a day ([NACS](https://www.convenience.org/Research/Convenience-Store-Fast-Facts-and-Stats/FactSheets/Convenience)) for some thousand products',
  ],
  ['callback', '0.2 to 2 s after the order', 'an assumption: no public figure was found'],
];

/** Writes oversell.md and its plots; returns the page's path. The same days give the same bytes. */
export function writePage(directory: string, scenarios: readonly Scenario[]): string {
  mkdirSync(directory, { recursive: true });
  const put = (name: string, content: string) => {
    writeFileSync(path.join(directory, name), content);
    return name;
  };
  const [ordinary, ...swept] = scenarios;
  if (!ordinary) throw new Error('There is no day to write about.');
  const image = (title: string, file: string) => `![${title}](${file})`;
  const title = `Pieces sold that were not free, on ${grouped(daysOf(ordinary, 'optimum').length)} days`;
  const parts = [
    heading(ordinary),
    image(title, put('oversell.svg', soldPlot(title, ordinary.played))),
    strategyTable(ordinary),
  ];
  if (swept.length > 0) {
    const byBooking = swept.filter(({ onlineShare }) => onlineShare === DAY.onlineShare);
    const byShare = swept.filter(({ bookingS }) => bookingS === DAY.bookingS);
    const booking = sorted([ordinary, ...byBooking], ({ bookingS }) => bookingS);
    const share = sorted([ordinary, ...byShare], ({ onlineShare }) => onlineShare);
    const minutes = ({ bookingS }: Scenario) => `${bookingS / 60} min`;
    const percent = ({ onlineShare }: Scenario) => `${Math.round(100 * onlineShare)} %`;
    const byMinutes = 'By the minutes until staff book, on average';
    const byPercent = 'By the share of online orders';
    parts.push(
      '## With other parameters',
      image(byMinutes, put('oversell-booking.svg', sweepPlot(byMinutes, booking, minutes))),
      sweepTable(booking, 'until booked', minutes),
      image(byPercent, put('oversell-online.svg', sweepPlot(byPercent, share, percent))),
      sweepTable(share, 'online', percent),
    );
  }
  parts.push(
    '## Parameters',
    table(
      ['parameter', 'value', 'source'],
      PARAMETERS.map((row) => [...row]),
    ),
    '## The same figures again',
    `\`npm run bench -- oversell --days ${daysOf(ordinary, 'optimum').length} --seed ${ordinary.seed} --sweep --csv FILE --report DIRECTORY\` gives the same rows and this page, in one part or with \`--resume\`, on one processor or several. The days are drawn and counted with sums, products, quotients and comparisons alone, which every processor rounds the same way, and without a logarithm, whose last bit may differ between versions of V8.`,
  );
  return path.join(directory, put('oversell.md', `${parts.join('\n\n')}\n`));
}

/**
 * Returns the scenarios in the order of `by`, each with as many days as the shortest, so that all have the same
 * customers.
 */
function sorted(scenarios: readonly Scenario[], by: (scenario: Scenario) => number): Scenario[] {
  const count = Math.min(...scenarios.map((each) => daysOf(each, 'optimum').length));
  return scenarios
    .map(({ played, ...rest }) => ({
      ...rest,
      played: played.map((each) => ({ ...each, days: each.days.slice(0, count) })),
    }))
    .sort((a, b) => by(a) - by(b));
}

function heading(ordinary: Scenario): string {
  const own = daysOf(ordinary, 'tillsync');
  const best = daysOf(ordinary, 'optimum');
  const push = daysOf(ordinary, 'push each change');
  return [
    '# Sold twice',
    '',
    `**On ${grouped(own.length)} shop days with ${grouped(sumOf(own, 'orders'))} online orders, tillsync offered ${pieces(sumOf(own, 'outside'))} that the shop could have known to be sold, and missed ${sumOf(own, 'lost') === 0 ? 'no sale' : pieces(sumOf(own, 'lost'))}. A push of each change offered ${pieces(sumOf(push, 'outside'))} of these.**`,
    '',
    `A till and a web shop share a shelf. ${pieces(sumOf(own, 'atsale'))} sold online were not free, ${asManyAs(ratio(own, best))} with the optimum: they lay in baskets between the shelf and the till, where no system sees them. Seed ${ordinary.seed}; every strategy meets the same customers. tillsync is its own intake, ledger and queue over a real mirror. With the real daemon, the sandbox and the published limits, ten days end with the same figures (\`TILLSYNC_SHOP_DAYS=10\`, [simulation](../../../docs/development.md#tests)).`,
  ].join('\n');
}

const pieces = (count: number) =>
  count === 0 ? 'no piece' : count === 1 ? '1 piece' : `${grouped(count)} pieces`;

const asManyAs = (times: number) =>
  times === 1 ? 'exactly as many as' : `${figure(times)} times as many as`;

const ratio = (days: readonly DayOutcome[], best: readonly DayOutcome[]) =>
  sumOf(days, 'atsale') / Math.max(1, sumOf(best, 'atsale'));

function strategyTable(ordinary: Scenario): string {
  const best = daysOf(ordinary, 'optimum');
  const rows = ordinary.played.map(({ name, about, days, fault }) => {
    if (fault !== undefined) return [name, fault];
    const { mean, from, to } = pairedDifference(days, best);
    return [
      `**${name}**: ${about}`,
      figure(ratio(days, best)),
      ...(['atsale', 'outside', 'conflict', 'lost', 'calls'] as const).map((field) =>
        grouped(sumOf(days, field)),
      ),
      `${mean.toFixed(3)} (${from.toFixed(3)} to ${to.toFixed(3)})`,
    ];
  });
  const head = [
    'strategy',
    'ratio to the optimum',
    'not free',
    'of them offered wrongly',
    'taken before staff came',
    'free and not offered',
    'calls',
    'more a day than the optimum (95 %)',
  ];
  const note = `Pieces and calls on ${grouped(best.length)} days. Fewer than with the optimum are sold only where free ones are not offered. The last column is the mean of the paired differences with the middle 95 % of 1,000 resampled means.`;
  return `${table(head, rows)}\n\n${note}`;
}

function sweepTable(
  scenarios: readonly Scenario[],
  parameter: string,
  label: (scenario: Scenario) => string,
): string {
  const names = SWEPT_STRATEGIES;
  const rows = scenarios.map((scenario) => [
    label(scenario),
    grouped(daysOf(scenario, 'optimum').length),
    ...names.map((name) => {
      const days = daysOf(scenario, name);
      return `${grouped(sumOf(days, 'atsale'))} (${grouped(sumOf(days, 'outside'))}; ${grouped(sumOf(days, 'lost'))})`;
    }),
  ]);
  const note = 'Pieces that were not free, in brackets those offered wrongly and those free and not offered.';
  return `${table([parameter, 'days', ...names], rows)}\n\n${note}`;
}

function table(head: readonly string[], rows: readonly (readonly string[])[]): string {
  const line = (cells: readonly string[]) => `| ${cells.join(' | ')} |`;
  return [line(head), `|${head.map(() => '---').join('|')}|`, ...rows.map(line)].join('\n');
}
