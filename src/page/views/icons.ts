import { html, svg, type TemplateResult } from 'lit-html';

/** Drawn, so that nobody has to tell the levels by their colour. */
const PATHS = {
  green: svg`<path d="m5 12.5 4.5 4.5L19 7.5" />`,
  amber: svg`<path d="M12 6v7.5M12 17.8v.2" />`,
  red: svg`<path d="m7 7 10 10M17 7 7 17" />`,
  off: svg`<path d="M7 12h10" />`,
  waiting: svg`<path d="M12 7v5.5l3.5 2" />`,
  delivery: svg`<path d="M3 7h10v9H3zM13 10.5h4l3.5 3V16H13zM7 18.5a1.5 1.5 0 1 0 0-3 1.5 1.5 0 0 0 0 3M17 18.5a1.5 1.5 0 1 0 0-3 1.5 1.5 0 0 0 0 3" />`,
  pickup: svg`<path d="M5 8h14l-1 12H6zM9 8V6.5a3 3 0 0 1 6 0V8" />`,
  key: svg`<path d="M14.5 13.5a4.5 4.5 0 1 0-4.1-2.6L4 17.3V20h3v-2h2v-2h1.8l.9-.9M15.5 8.5v.1" />`,
  search: svg`<path d="M10.5 16.5a6 6 0 1 0 0-12 6 6 0 0 0 0 12M15 15l5 5" />`,
} as const;

export type IconName = keyof typeof PATHS;

/** A picture beside words that say the same; never read out. */
export function icon(name: IconName): TemplateResult {
  return html`<svg class="icon" viewBox="0 0 24 24" aria-hidden="true" focusable="false">${PATHS[name]}</svg>`;
}
