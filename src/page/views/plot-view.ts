import { html, nothing, svg, type TemplateResult } from 'lit-html';

export interface Bar {
  /** Under the plot; empty: none. */
  label: string;
  /** For who points at it. */
  title: string;
  /** Heights in the axis's unit, drawn over each other, the last in front. */
  values: readonly number[];
}

export interface PlotOptions {
  bars: readonly Bar[];
  /** From zero up, evenly spaced. */
  ticks: readonly number[];
  tickText: (value: number) => string;
  /** What it shows, for who cannot see it. */
  label: string;
}

const WIDTH = 240;
const HEIGHT = 100;
const GAP = 0.22;

/** Bars over hours. Words are HTML, so that they keep their size; the drawing stretches. */
export function plotView({ bars, ticks, tickText, label }: PlotOptions): TemplateResult {
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
