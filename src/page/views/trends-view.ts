import { html, nothing, type TemplateResult } from 'lit-html';
import type { TrendHour } from '../../domain/health/trends.ts';
import { axis, durationAxis } from '../plot.ts';
import type { PageState } from '../state.ts';
import type { Speech } from '../words/language.ts';
import { plotView } from './plot-view.ts';

/** A word under every sixth bar. */
const LABEL_EVERY = 6;

/** Orders per hour, and how long changes took. */
export function trendsView({ trends, speech }: PageState): TemplateResult | typeof nothing {
  if (trends.length === 0) return nothing;
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
  const words = say('trends.orders.say', { total: format.number(total), most: format.number(most) });
  const bars = trends.map(({ from, orders }, i) => ({
    label: i % LABEL_EVERY === 0 ? format.hour(from) : '',
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
    label: i % LABEL_EVERY === 0 ? format.hour(from) : '',
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
