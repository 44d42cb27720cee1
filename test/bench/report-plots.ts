import { type BenchResult, type Comparison, verdictOf } from './bench-result.ts';

const WIDTH = 900;

/** Draws each ratio as a share of what its bound allows. A bar that goes beyond the line has missed its bound. */
export function ratiosPlot(results: readonly BenchResult[]): string {
  const [rowPx, topPx, fullPx] = [40, 44, 600];
  const farthest = 1.3;
  const lineX = fullPx / farthest;
  const rows = results.map((result, n) => {
    const y = topPx + n * rowPx;
    const width = Math.max(2, (Math.min(shareOf(result), farthest) / farthest) * fullPx);
    const missed = verdictOf(result) === 'MISS';
    const shown = `${figure(result.ratio ?? 0)} (${result.bound.replace('>=', '≥').replace('<=', '≤')})`;
    return (
      text(0, y, result.name) +
      bar(0, y + 5, width, 14, missed ? 'bad' : 'good') +
      `<line class="limit" x1="${px(lineX)}" y1="${y + 2}" x2="${px(lineX)}" y2="${y + 22}"/>` +
      text(fullPx + 16, y + 17, missed ? `${shown} missed` : shown, 'strong')
    );
  });
  const heightPx = topPx + results.length * rowPx;
  const heading = text(lineX, 18, 'bound', 'soft', 'middle');
  return svg('Ratios against their bounds', heightPx, heading + rows.join(''));
}

/** Draws a bar of requests a second for each way. */
export function ratesPlot({ title, ways }: Comparison): string {
  const [rowPx, topPx, leftPx, fullPx] = [30, 40, 180, 600];
  const most = Math.max(...ways.map(({ perSecond }) => perSecond));
  const rows = ways.map(({ label, perSecond }, n) => {
    const y = topPx + n * rowPx;
    const width = Math.max(1, (perSecond / most) * fullPx);
    return (
      text(leftPx - 10, y + 15, label, n === 0 ? 'strong' : '', 'end') +
      bar(leftPx, y, width, 20, n === 0 ? 'good' : 'other') +
      text(leftPx + width + 8, y + 15, `${Math.round(perSecond).toLocaleString('en-US')}/s`)
    );
  });
  const heading = `Callbacks a second: ${title}`;
  return svg(heading, topPx + ways.length * rowPx, text(0, 18, heading, 'strong') + rows.join(''));
}

/** Draws the range from the 50th to the 99th percentile of each way's latency, on a logarithmic scale. */
export function latenciesPlot({ title, ways }: Comparison): string {
  const [rowPx, topPx, leftPx, fullPx] = [36, 58, 180, 640];
  const all = ways.flatMap(({ p50Ms, p99Ms }) => [p50Ms, p99Ms]).filter((ms) => ms > 0);
  const low = Math.floor(Math.log10(Math.min(...all)));
  const high = Math.max(low + 1, Math.ceil(Math.log10(Math.max(...all))));
  const x = (ms: number) => leftPx + ((Math.log10(Math.max(ms, 10 ** low)) - low) / (high - low)) * fullPx;
  const bottomPx = topPx + ways.length * rowPx;
  const decades = Array.from({ length: high - low + 1 }, (_, n) => 10 ** (low + n));
  const grid = decades.map(
    (ms) =>
      `<line class="grid" x1="${px(x(ms))}" y1="${topPx - 14}" x2="${px(x(ms))}" y2="${bottomPx - 8}"/>` +
      text(x(ms), topPx - 20, ms < 1000 ? `${ms} ms` : `${ms / 1000} s`, 'soft', 'middle'),
  );
  const rows = ways.map(({ label, p50Ms, p99Ms }, n) => {
    const y = topPx + n * rowPx + 12;
    const kind = n === 0 ? 'good' : 'other';
    return (
      text(leftPx - 10, y + 4, label, n === 0 ? 'strong' : '', 'end') +
      bar(x(p50Ms), y - 3, Math.max(1, x(p99Ms) - x(p50Ms)), 6, kind) +
      `<circle class="${kind}" cx="${px(x(p50Ms))}" cy="${y}" r="5"/><circle class="${kind}" cx="${px(x(p99Ms))}" cy="${y}" r="5"/>` +
      text((x(p50Ms) + x(p99Ms)) / 2, y + 16, `${figure(p50Ms)} – ${figure(p99Ms)} ms`, 'soft', 'middle')
    );
  });
  const heading = `Time to the answer, 50th to 99th percentile: ${title}`;
  return svg(heading, bottomPx, text(0, 18, heading, 'strong') + grid.join('') + rows.join(''));
}

/** Returns the ratio as a share of what its bound allows; more than 1 means that the bound is missed. */
export function shareOf({ ratio, bound }: BenchResult): number {
  const limit = Number(/[\d.]+$/.exec(bound)?.[0]);
  if (ratio === null) return Number.NaN;
  if (bound.startsWith('>=')) return limit / ratio;
  return limit === 0 ? (ratio <= 0 ? 0 : Number.POSITIVE_INFINITY) : ratio / limit;
}

/** Formats a number as short as it stays readable: 0.57, 12.3, 4,210. */
export function figure(value: number): string {
  if (Number.isInteger(value) || Math.abs(value) >= 100) return Math.round(value).toLocaleString('en-US');
  return value.toFixed(Math.abs(value) >= 10 ? 1 : 2);
}

// Colours with enough contrast in light and dark schemes; the background is drawn, because not every viewer has one.
const STYLE = `
  svg { --ground: #ffffff; --ink: #1f2328; --soft: #59636e; --good: #1a7f37; --bad: #cf222e; --other: #7d8590; --grid: #d1d9e0; }
  @media (prefers-color-scheme: dark) {
    svg { --ground: #0d1117; --ink: #f0f6fc; --soft: #9198a1; --good: #3fb950; --bad: #f85149; --other: #7d8590; --grid: #3d444d; }
  }
  .ground { fill: var(--ground); }
  text { font: 13px system-ui, sans-serif; fill: var(--ink); }
  .strong { font-weight: 600; } .soft { fill: var(--soft); font-size: 11px; }
  .good { fill: var(--good); } .bad { fill: var(--bad); } .other { fill: var(--other); }
  .grid { stroke: var(--grid); } .limit { stroke: var(--ink); stroke-width: 2; }`;

const MARGIN = 16;

export function svg(title: string, heightPx: number, content: string): string {
  const [width, height] = [WIDTH + 2 * MARGIN, Math.ceil(heightPx) + 2 * MARGIN];
  return `<svg xmlns="http://www.w3.org/2000/svg" width="${width}" height="${height}" viewBox="0 0 ${width} ${height}" role="img">
<title>${escapeXml(title)}</title>
<style>${STYLE}
</style>
<rect class="ground" width="${width}" height="${height}" rx="6"/>
<g transform="translate(${MARGIN} ${MARGIN})">
${content.replaceAll('/><', '/>\n<').replaceAll('</text><', '</text>\n<')}
</g>
</svg>
`;
}

export function text(x: number, y: number, words: string, kind = '', anchor = 'start'): string {
  const names = kind === '' ? '' : ` class="${kind}"`;
  const at = anchor === 'start' ? '' : ` text-anchor="${anchor}"`;
  return `<text x="${px(x)}" y="${px(y)}"${names}${at}>${escapeXml(words)}</text>`;
}

export function bar(x: number, y: number, width: number, height: number, kind: string): string {
  return `<rect class="${kind}" x="${px(x)}" y="${px(y)}" width="${px(width)}" height="${height}" rx="2"/>`;
}

export const px = (value: number) => String(Math.round(value * 10) / 10);

const escapeXml = (words: string) =>
  words.replaceAll('&', '&amp;').replaceAll('<', '&lt;').replaceAll('>', '&gt;');
