import { bar, px, svg, text } from '../report-plots.ts';
import type { Scenario } from './csv.ts';
import { sumOf } from './figures.ts';
import type { PlayedStrategy } from './play-all.ts';

/** A bar is cut at this many times the optimum's number of pieces. */
const CUT_AT = 12;

/**
 * Draws a bar for each strategy. The red part at the right end of a bar stands for pieces that were offered wrongly.
 */
export function soldPlot(title: string, played: readonly PlayedStrategy[]): string {
  const [rowPx, topPx, leftPx, fullPx] = [30, 40, 230, 520];
  const best = played.find(({ name }) => name === 'optimum')?.days ?? [];
  const most = Math.max(1, CUT_AT * sumOf(best, 'atsale'));
  const widthOf = (count: number) => (Math.min(count, most) / most) * fullPx;
  const rows = played.map(({ name, days }, n) => {
    const y = topPx + n * rowPx;
    const sold = sumOf(days, 'atsale');
    const width = widthOf(sold);
    const wrong = sold === 0 ? 0 : (width * sumOf(days, 'outside')) / sold;
    const shown = `${Math.round(sold).toLocaleString('en-US')}${sold > most ? ' (cut)' : ''}`;
    return (
      text(leftPx - 10, y + 15, name, name === 'tillsync' ? 'strong' : '', 'end') +
      bar(leftPx, y, Math.max(1, width - wrong), 20, 'good') +
      (wrong > 0 ? bar(leftPx + width - wrong, y, wrong, 20, 'bad') : '') +
      text(leftPx + width + 8, y + 15, shown)
    );
  });
  const lineX = leftPx + widthOf(sumOf(best, 'atsale'));
  const line = `<line class="limit" x1="${px(lineX)}" y1="${topPx - 4}" x2="${px(lineX)}" y2="${topPx + played.length * rowPx - 6}"/>`;
  const heading = text(0, 18, `${title}; red: offered wrongly; line: the optimum`, 'strong');
  return svg(title, topPx + played.length * rowPx, heading + rows.join('') + line);
}

const LINES: Readonly<Record<string, { colour: string; dashes: string }>> = {
  'push each change': { colour: 'bad', dashes: '' },
  'inventory every 15 min': { colour: 'bad', dashes: '6 4' },
  'tillsync by polling, with looks': { colour: 'good', dashes: '6 4' },
  tillsync: { colour: 'good', dashes: '' },
  optimum: { colour: 'ink', dashes: '2 4' },
};

/** The strategies that are played with other parameters too. */
export const SWEPT_STRATEGIES = Object.keys(LINES).reverse();

/** Draws a line for each strategy over the values of one parameter, which stand at equal distances. */
export function sweepPlot(
  title: string,
  scenarios: readonly Scenario[],
  label: (scenario: Scenario) => string,
): string {
  const [topPx, heightPx, leftPx, fullPx] = [130, 240, 60, 780];
  const valuesOf = (name: string) =>
    scenarios.map(({ played }) => sumOf(played.find((each) => each.name === name)?.days ?? [], 'atsale'));
  const daysCount = scenarios[0]?.played[0]?.days.length ?? 0;
  const most = Math.max(1, ...Object.keys(LINES).flatMap(valuesOf));
  const x = (n: number) => leftPx + (n / Math.max(1, scenarios.length - 1)) * fullPx;
  const y = (value: number) => topPx + heightPx * (1 - value / most);
  const grid = [0, 0.25, 0.5, 0.75, 1].map((share) => {
    const at = px(y(share * most));
    return (
      `<line class="grid" x1="${leftPx}" y1="${at}" x2="${leftPx + fullPx}" y2="${at}"/>` +
      text(leftPx - 8, y(share * most) + 4, Math.round(share * most).toLocaleString('en-US'), 'soft', 'end')
    );
  });
  const names = scenarios.map((scenario, n) =>
    text(x(n), topPx + heightPx + 20, label(scenario), 'soft', 'middle'),
  );
  const lines = Object.entries(LINES).map(([name, { colour, dashes }], n) => {
    const stroke = `style="fill: none; stroke: var(--${colour}); stroke-width: 2" stroke-dasharray="${dashes}"`;
    const points = valuesOf(name).map((value, at) => `${px(x(at))},${px(y(value))}`);
    const keyY = 36 + n * 16;
    return (
      `<polyline points="${points.join(' ')}" ${stroke}/>` +
      `<line x1="${leftPx}" y1="${keyY}" x2="${leftPx + 40}" y2="${keyY}" ${stroke}/>` +
      text(leftPx + 50, keyY + 4, name)
    );
  });
  const heading = text(0, 18, `${title}: pieces sold that were not free, on ${daysCount} days`, 'strong');
  return svg(title, topPx + heightPx + 30, heading + grid.join('') + names.join('') + lines.join(''));
}
