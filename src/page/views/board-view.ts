import { html, nothing, type TemplateResult } from 'lit-html';
import { repeat } from 'lit-html/directives/repeat.js';
import type { BoardOrder } from '../../domain/order/order-board.ts';
import type { Actions } from '../actions.ts';
import { byStage, STAGES, type Stage } from '../stages.ts';
import type { PageState } from '../state.ts';
import { statusWord } from '../words/status-word.ts';
import { icon } from './icons.ts';

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
