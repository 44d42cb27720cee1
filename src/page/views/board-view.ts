import { html, nothing, svg, type TemplateResult } from 'lit-html';
import { repeat } from 'lit-html/directives/repeat.js';
import type { BoardOrder } from '../../orders/mirrored-order.ts';
import type { Actions } from '../actions.ts';
import { byStage, type PageState, STAGES, type Stage } from '../state.ts';
import { statusWord } from '../words/language.ts';

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

/** Orders of one column at first. */
const SHOWN = 6;
const SHOWN_NARROW = 3;

/** The orders under way, by where they are. */
export function boardView(state: PageState, actions: Actions): TemplateResult {
  const { speech, status, board } = state;
  const stages = byStage(board.orders.values());
  const open = status?.counts.openOrders;
  const shown = STAGES.reduce((sum, stage) => sum + (stage === 'ended' ? 0 : stages[stage].length), 0);
  return html`
    <section class="board" aria-labelledby="board">
      <h2 id="board">
        ${speech.say('board.title')}
        ${open === undefined ? nothing : html`<small>${speech.say('board.open', { count: speech.format.number(open) })}</small>`}
      </h2>
      ${
        open !== undefined && open > shown && shown >= 200
          ? html`<p class="hint">${speech.say('board.newest', { count: speech.format.number(shown) })}</p>`
          : nothing
      }
      <div class="stages">
        ${STAGES.map((stage) => stageView(stage, stages[stage], state, actions))}
      </div>
    </section>
  `;
}

function stageView(
  stage: Stage,
  orders: readonly BoardOrder[],
  state: PageState,
  actions: Actions,
): TemplateResult {
  const { speech, expanded } = state;
  const isWhole = expanded.has(stage);
  const few = state.isNarrow ? SHOWN_NARROW : SHOWN;
  const shown = isWhole ? orders : orders.slice(0, few);
  const hidden = orders.length - shown.length;
  return html`
    <section class="stage stage-${stage} ${orders.length === 0 ? 'empty' : ''}" aria-labelledby="stage-${stage}">
      <h3 id="stage-${stage}">${speech.say(`stage.${stage}`)} <span class="count">${speech.format.number(orders.length)}</span></h3>
      ${orders.length === 0 ? html`<p class="none">${speech.say('board.none')}</p>` : nothing}
      <ul class=${isWhole ? 'whole' : ''}>
        ${repeat(
          shown,
          ({ orderId }) => orderId,
          (order) => html`<li>${card(order, state, actions)}</li>`,
        )}
      </ul>
      ${
        hidden > 0 || (isWhole && orders.length > few)
          ? html`<button type="button" class="quiet more" aria-expanded=${isWhole} @click=${() => actions.expand(stage)}>
            ${isWhole ? speech.say('board.less') : speech.say('board.more', { count: speech.format.number(hidden) })}
          </button>`
          : nothing
      }
    </section>
  `;
}

function card(order: BoardOrder, state: PageState, actions: Actions): TemplateResult {
  const { speech, nowMs, board } = state;
  const { code, orderId, deliveryType, status, createdAt } = order;
  const way = deliveryType === 'delivery' || deliveryType === 'pickup' ? deliveryType : null;
  const name = [order.customerFirstName, order.customerLastName].filter(Boolean).join(' ');
  return html`
    <button
      type="button"
      class="card ${board.fresh.has(orderId) ? 'fresh' : ''} status-${status ?? 'none'}"
      @click=${() => actions.showOrder(orderId)}
    >
      <span class="line"><strong>#${code ?? orderId}</strong><span class="amount">${speech.format.amount(order.amountToPay)}</span></span>
      <span class="line name">${name || order.storeExternalId || '–'}</span>
      <span class="line foot">
        <span class="way">${way ? html`${icon(way)}${speech.say(way)}` : deliveryType}</span>
        <time datetime=${createdAt ?? ''} title=${speech.format.moment(createdAt)}>${speech.format.age(createdAt, nowMs)}</time>
      </span>
      <span class="status">${statusWord(status, speech)}</span>
    </button>
  `;
}
