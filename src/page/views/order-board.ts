import { html, nothing, svg, type TemplateResult } from 'lit-html';
import { repeat } from 'lit-html/directives/repeat.js';
import type { BoardOrder } from '../../orders/merging/mirrored-order.ts';
import type { Actions } from '../actions.ts';
import { byStage, calledFor, dueAt, type PageState, STAGES, type Stage, stageOf } from '../state.ts';
import { statusWord } from '../words/language.ts';

/**
 * Shapes of the icons. Each level has its own shape, so that people who do not see colours can tell the levels apart.
 */
const PATHS = {
  green: svg`<path d="m5 12.5 4.5 4.5L19 7.5" />`,
  amber: svg`<path d="M12 6v7.5M12 17.8v.2" />`,
  red: svg`<path d="m7 7 10 10M17 7 7 17" />`,
  waiting: svg`<path d="M12 7v5.5l3.5 2" />`,
  off: svg`<path d="M7 12h10" />`,
  bell: svg`<path d="M6 16.5h12l-1.5-2.5v-3.5a4.5 4.5 0 0 0-9 0V14zM10 19a2 2 0 0 0 4 0" />`,
  delivery: svg`<path d="M3 7h10v9H3zM13 10.5h4l3.5 3V16H13zM7 18.5a1.5 1.5 0 1 0 0-3 1.5 1.5 0 0 0 0 3M17 18.5a1.5 1.5 0 1 0 0-3 1.5 1.5 0 0 0 0 3" />`,
  pickup: svg`<path d="M5 8h14l-1 12H6zM9 8V6.5a3 3 0 0 1 6 0V8" />`,
  key: svg`<path d="M14.5 13.5a4.5 4.5 0 1 0-4.1-2.6L4 17.3V20h3v-2h2v-2h1.8l.9-.9M15.5 8.5v.1" />`,
  search: svg`<path d="M10.5 16.5a6 6 0 1 0 0-12 6 6 0 0 0 0 12M15 15l5 5" />`,
} as const;

export type IconName = keyof typeof PATHS;

/** Draws an icon beside words with the same meaning. Screen readers skip it. */
export function icon(name: IconName): TemplateResult {
  return html`<svg class="icon" viewBox="0 0 24 24" aria-hidden="true" focusable="false">${PATHS[name]}</svg>`;
}

/** Number of orders shown in one column at first. */
const SHOWN = 6;
const SHOWN_NARROW = 3;

/** Shows the open orders by stage, or the results of a search. */
export function boardView(state: PageState, actions: Actions): TemplateResult {
  const { speech, status } = state;
  const open = status?.counts.openOrders;
  return html`
    <section class="board" aria-labelledby="board">
      <div class="head">
        <h2 id="board">
          ${speech.say('board.title')}
          ${open === undefined ? nothing : html`<small>${speech.say('board.open', { count: speech.format.number(open) })}</small>`}
        </h2>
        ${searchForm(state, actions)} ${callSwitch(state, actions)}
      </div>
      ${callsView(state, actions)}
      <p class="found" role="status">${foundText(state)}</p>
      ${
        state.search.orders === null
          ? stagesView(state, actions)
          : html`<ul class="found-orders">${cards(state.search.orders, state, actions)}</ul>`
      }
    </section>
  `;
}

function stagesView(state: PageState, actions: Actions): TemplateResult {
  const { speech, status, board } = state;
  const stages = byStage(board.orders.values());
  const open = status?.counts.openOrders;
  const shown = STAGES.reduce((sum, stage) => sum + (stage === 'ended' ? 0 : stages[stage].length), 0);
  // An empty column for scheduled orders is left out, because most shops have none.
  const columns = STAGES.filter((stage) => stage !== 'scheduled' || stages.scheduled.length > 0);
  return html`
    ${
      open !== undefined && open > shown && shown >= 200
        ? html`<p class="hint">${speech.say('board.newest', { count: speech.format.number(shown) })}</p>`
        : nothing
    }
    <div class="stages">${columns.map((stage) => stageView(stage, stages[stage], state, actions))}</div>
  `;
}

function searchForm({ speech, search }: PageState, actions: Actions): TemplateResult {
  const typed = (event: InputEvent) => (event.target as HTMLInputElement).value;
  return html`
    <form role="search" aria-labelledby="board" @submit=${(event: Event) => event.preventDefault()}>
      <label for="order-search" class="unseen">${speech.say('search.label')}</label>
      ${icon('search')}
      <input
        id="order-search"
        type="search"
        autocomplete="off"
        enterkeyhint="search"
        placeholder=${speech.say('search.label')}
        .value=${search.text}
        @input=${(event: InputEvent) => actions.searchOrders({ text: typed(event) })}
      />
      <label for="order-day" class="unseen">${speech.say('search.day')}</label>
      <input
        id="order-day"
        type="date"
        title=${speech.say('search.day')}
        .value=${search.day}
        @input=${(event: InputEvent) => actions.searchOrders({ day: typed(event) })}
      />
    </form>
  `;
}

function foundText({ speech, search: { orders, hasMore, fault } }: PageState): string {
  if (fault !== null) return speech.say('fault.action', { why: fault });
  if (orders === null) return '';
  if (orders.length === 0) return speech.say('catalog.none');
  const count = speech.format.number(orders.length);
  return hasMore ? speech.say('search.more', { count }) : speech.say('catalog.found', { count });
}

function callSwitch({ speech, calls }: PageState, actions: Actions): TemplateResult {
  return html`
    <button
      type="button"
      role="switch"
      class="switch"
      aria-checked=${calls.isOn}
      @click=${() => actions.turnCalls(!calls.isOn)}
    >${icon('bell')}<span>${speech.say('calls.switch')}</span><span class="knob" aria-hidden="true"></span></button>
  `;
}

/** Maximum number of orders that are listed by their numbers. */
const NAMED_MAX = 5;

/** Shows the orders for which the page rings, and the reason if it cannot ring. */
function callsView(state: PageState, actions: Actions): TemplateResult {
  const { speech, calls } = state;
  const due = calledFor(state);
  const codes = due.slice(0, NAMED_MAX).map(({ code, orderId }) => `#${code ?? orderId}`);
  if (due.length > NAMED_MAX) codes.push('…');
  const text = speech.say(due.length === 1 ? 'calls.one' : 'calls.some', {
    count: speech.format.number(due.length),
    codes: codes.join(', '),
  });
  return html`
    <div class="calls ${due.length > 0 ? 'some' : ''}">
      <p role="status">${due.length > 0 ? text : ''}</p>
      ${
        due.length === 0
          ? nothing
          : html`<button type="button" class="primary" @click=${() => actions.markSeen(due.map(({ orderId }) => orderId))}>
            ${speech.say('calls.seen')}
          </button>`
      }
    </div>
    ${calls.isOn && calls.isSilent ? html`<p class="hint" role="status">${speech.say('calls.silent')}</p>` : nothing}
    ${calls.isOn && !calls.canNotify ? html`<p class="hint">${speech.say('calls.no-notices')}</p>` : nothing}
  `;
}

function stageView(
  stage: Stage,
  orders: readonly BoardOrder[],
  state: PageState,
  actions: Actions,
): TemplateResult {
  const { speech, expanded, board } = state;
  const isWhole = expanded.has(stage);
  const few = state.isNarrow ? SHOWN_NARROW : SHOWN;
  const shown = isWhole ? orders : orders.slice(0, few);
  const hidden = orders.length - shown.length;
  return html`
    <section class="stage stage-${stage} ${orders.length === 0 ? 'empty' : ''}" aria-labelledby="stage-${stage}">
      <h3 id="stage-${stage}">${speech.say(`stage.${stage}`)} ${board.isRead ? html`<span class="count">${speech.format.number(orders.length)}</span>` : nothing}</h3>
      ${board.isRead && orders.length === 0 ? html`<p class="none">${speech.say('board.none')}</p>` : nothing}
      <ul class=${isWhole ? 'whole' : ''}>${cards(shown, state, actions)}</ul>
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

function cards(orders: readonly BoardOrder[], state: PageState, actions: Actions) {
  return repeat(
    orders,
    ({ orderId }) => orderId,
    (order) => html`<li>${card(order, state, actions)}</li>`,
  );
}

function card(order: BoardOrder, state: PageState, actions: Actions): TemplateResult {
  const { speech, nowMs, board, status } = state;
  const { code, orderId, deliveryType, createdAt, waitingSince } = order;
  const way = deliveryType === 'delivery' || deliveryType === 'pickup' ? deliveryType : null;
  const name = [order.customerFirstName, order.customerLastName].filter(Boolean).join(' ');
  const due = stageOf(order.status) === 'ended' ? null : dueAt(order);
  return html`
    <button
      type="button"
      class="card ${board.fresh.has(orderId) ? 'fresh' : ''} ${waitingSince === null ? '' : 'waits'} status-${order.status ?? 'none'}"
      @click=${() => actions.showOrder(orderId)}
    >
      <span class="line"><strong>#${code ?? orderId}</strong><span class="amount">${speech.format.money(order.amountToPay, status?.currency ?? null)}</span></span>
      <span class="line name">${name || order.storeExternalId || '–'}</span>
      ${due === null ? nothing : html`<span class="line due"><time datetime=${due}>${speech.say('board.due', { when: speech.format.near(due, nowMs) })}</time></span>`}
      <span class="line foot">
        <span class="way">${way ? html`${icon(way)}${speech.say(way)}` : deliveryType}</span>
        <time datetime=${createdAt ?? ''} title=${speech.format.moment(createdAt)}>${speech.format.age(createdAt, nowMs)}</time>
      </span>
      ${waitingSince === null ? nothing : html`<span class="line wait">${speech.say('board.waits', { when: speech.format.near(waitingSince, nowMs) })}</span>`}
      <span class="status">${statusWord(order.status, speech)}</span>
    </button>
  `;
}
