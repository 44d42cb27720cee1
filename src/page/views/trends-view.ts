import { html, nothing, svg, type TemplateResult } from 'lit-html';
import type { TrendHour } from '../../orders/merging/mirrored-order.ts';
import type { PageState } from '../state.ts';
import type { Speech } from '../words/language.ts';
import { axis, durationAxis, sinceFirst } from './axes.ts';

interface Bar {
  /** Label under the bar; empty for none. */
  label: string;
  /** Text shown when a person points at the bar. */
  title: string;
  /** Heights in the axis's unit. The bars are drawn over each other, the last one in front. */
  values: readonly number[];
}

interface PlotOptions {
  bars: readonly Bar[];
  /** Ticks of the axis, evenly spaced from zero. */
  ticks: readonly number[];
  tickText: (value: number) => string;
  /** Description for people who cannot see the drawing. */
  label: string;
}

const WIDTH = 240;
const HEIGHT = 100;
const GAP = 0.22;

/** Draws bars over hours. Labels are HTML text, so that they keep their size when the drawing is stretched. */
function plotView({ bars, ticks, tickText, label }: PlotOptions): TemplateResult {
  const top = ticks.at(-1) ?? 1;
  const step = WIDTH / Math.max(bars.length, 1);
  const lines = ticks.map((_, i) => HEIGHT - (i / Math.max(ticks.length - 1, 1)) * HEIGHT);
  return html`
    <div class="plot">
      <div class="ticks" aria-hidden="true">${ticks.toReversed().map((tick) => html`<span>${tickText(tick)}</span>`)}</div>
      <svg viewBox="0 0 ${WIDTH} ${HEIGHT}" preserveAspectRatio="none" role="img" aria-label=${label}>
        ${lines.map((y) => svg`<line class="grid" x1="0" x2=${WIDTH} y1=${y} y2=${y} vector-effect="non-scaling-stroke" />`)}
        ${bars.map(
          (bar, i) => svg`<g>
          <title>${bar.title}</title>
          <rect class="reach" x=${i * step} y="0" width=${step} height=${HEIGHT} />
          ${bar.values.map((value, layer) => barShape(value / top, { x: i * step, step, layer }))}
        </g>`,
        )}
      </svg>
      <div class="hours" aria-hidden="true">
        ${bars.map(({ label: text }) => (text === '' ? nothing : html`<span>${text}</span>`))}
      </div>
    </div>
  `;
}

function barShape(share: number, place: { x: number; step: number; layer: number }) {
  const height = Math.min(share, 1) * HEIGHT;
  return svg`<rect class="bar layer-${place.layer}" x=${place.x + (place.step * GAP) / 2} y=${HEIGHT - height}
    width=${place.step * (1 - GAP)} height=${height} />`;
}

/** Returns how many bars share a label: six for a whole day. */
const labelEvery = ({ length }: readonly TrendHour[]): number => Math.ceil(length / 4);

/** Shows orders per hour, and how long changes took to be accepted. */
export function trendsView({ trends: hours, speech }: PageState): TemplateResult | typeof nothing {
  if (hours.length === 0) return nothing;
  const trends = sinceFirst(hours);
  return html`
    <section class="trends" aria-labelledby="trends">
      <h2 id="trends">${speech.say('trends.title')}</h2>
      <div class="pair">${ordersPlot(trends, speech)} ${pushPlot(trends, speech)}</div>
      ${table(trends, speech)}
    </section>
  `;
}

function ordersPlot(trends: readonly TrendHour[], { say, format }: Speech): TemplateResult {
  const most = Math.max(...trends.map(({ orders }) => orders));
  const total = trends.reduce((sum, { orders }) => sum + orders, 0);
  const words =
    total === 0
      ? say('trends.orders.none')
      : say('trends.orders.say', { total: format.number(total), most: format.number(most) });
  const bars = trends.map(({ from, orders }, i) => ({
    label: i % labelEvery(trends) === 0 ? format.hour(from) : '',
    title: `${format.hour(from)}: ${format.number(orders)}`,
    values: [orders],
  }));
  const ticks = axis(Math.max(most, 4)).map((tick) => Math.round(tick));
  return html`
    <figure>
      <figcaption><h3>${say('trends.orders')}</h3><p>${words}</p></figcaption>
      ${total === 0 ? nothing : plotView({ bars, ticks, tickText: format.number, label: `${say('trends.orders')}: ${words}` })}
    </figure>
  `;
}

function pushPlot(trends: readonly TrendHour[], { say, format }: Speech): TemplateResult {
  const total = trends.reduce((sum, { pushed }) => sum + pushed, 0);
  const last = trends.findLast(({ pushMedianMs }) => pushMedianMs !== null);
  const words =
    last?.pushMedianMs == null
      ? say('trends.push.none')
      : say('trends.push.say', { total: format.number(total), median: format.duration(last.pushMedianMs) });
  const bars = trends.map(({ from, pushMedianMs, pushP95Ms }, i) => ({
    label: i % labelEvery(trends) === 0 ? format.hour(from) : '',
    title:
      pushMedianMs === null
        ? format.hour(from)
        : `${format.hour(from)}: ${say('trends.median')} ${format.duration(pushMedianMs)}, ${say('trends.p95')} ${format.duration(pushP95Ms ?? 0)}`,
    values: [pushP95Ms ?? 0, pushMedianMs ?? 0],
  }));
  const ticks = durationAxis(Math.max(...trends.map(({ pushP95Ms }) => pushP95Ms ?? 0)));
  return html`
    <figure>
      <figcaption>
        <h3>${say('trends.push')}</h3>
        <p>${words}</p>
        ${total === 0 ? nothing : html`<p class="legend"><span class="dot layer-1"></span>${say('trends.median')}<span class="dot layer-0"></span>${say('trends.p95')}</p>`}
      </figcaption>
      ${total === 0 ? nothing : plotView({ bars, ticks, tickText: (ms) => (ms === 0 ? '0' : format.duration(ms)), label: `${say('trends.push')}: ${words}` })}
    </figure>
  `;
}

function table(trends: readonly TrendHour[], { say, format }: Speech): TemplateResult {
  const duration = (ms: number | null) => (ms === null ? '–' : format.duration(ms));
  return html`
    <details>
      <summary>${say('trends.table')}</summary>
      <div class="scroll" tabindex="0" role="region" aria-label=${say('trends.table')}>
        <table>
          <thead>
            <tr>
              <th scope="col">${say('trends.hour')}</th><th scope="col">${say('trends.count')}</th>
              <th scope="col">${say('trends.sent')}</th><th scope="col">${say('trends.median')}</th>
              <th scope="col">${say('trends.p95')}</th>
            </tr>
          </thead>
          <tbody>
            ${trends.toReversed().map(
              (hour) => html`<tr>
                <th scope="row">${format.hour(hour.from)}</th><td>${format.number(hour.orders)}</td>
                <td>${format.number(hour.pushed)}</td><td>${duration(hour.pushMedianMs)}</td>
                <td>${duration(hour.pushP95Ms)}</td>
              </tr>`,
            )}
          </tbody>
        </table>
      </div>
    </details>
  `;
}
