import { html, nothing, type TemplateResult } from 'lit-html';
import type { Actions } from '../actions.ts';
import { ApiFault, type OrderExplained } from '../api.ts';
import type { Dialog, PageState } from '../state.ts';
import type { Speech } from '../words/language.ts';

/** Shows the time line of an order. */
export function orderWhyView(
  { orderId, answer }: Dialog & { kind: 'order-why' },
  state: PageState,
  actions: Actions,
): TemplateResult {
  const { say } = state.speech;
  const code = state.board.orders.get(orderId)?.code ?? codeOf(answer) ?? orderId;
  const title = say('why.order', { code: `#${code}` });
  const back = html`<button type="button" class="quiet" @click=${() => actions.showOrder(orderId)}>${say('why.back')}</button>`;
  return sheet(title, back, state, actions, answer, (explained) =>
    explanationView(explained, state.speech, (text) => html`<h3>${text}</h3>`),
  );
}

function codeOf(answer: (Dialog & { kind: 'order-why' })['answer']): number | null | undefined {
  return answer instanceof ApiFault ? undefined : answer?.code;
}

/** Shows the time line of a sku in each branch. */
export function stockWhyView(
  { sku, answer }: Dialog & { kind: 'stock-why' },
  state: PageState,
  actions: Actions,
): TemplateResult {
  const { speech } = state;
  return sheet(speech.say('why.stock', { sku }), nothing, state, actions, answer, ({ stocks }) =>
    stocks.map(
      (stock) => html`<section class="place">
        <h3>${speech.say('outbox.branch', { branch: stock.subsidiaryId })}</h3>
        ${explanationView(stock, speech, (text) => html`<h4>${text}</h4>`)}
      </section>`,
    ),
  );
}

function sheet<T>(
  title: string,
  back: TemplateResult | typeof nothing,
  { speech: { say } }: PageState,
  actions: Actions,
  answer: T | ApiFault | undefined,
  view: (answer: T) => unknown,
): TemplateResult {
  return html`
    <div class="sheet why">
      <h2 id="dialog-title">${title}</h2>
      ${
        answer instanceof ApiFault
          ? say('fault.action', { why: answer.message })
          : answer === undefined
            ? say('verdict.waiting')
            : view(answer)
      }
      <div class="buttons">
        <button type="button" autofocus @click=${actions.closeDialog}>${say('close')}</button>
        ${back}
      </div>
    </div>
  `;
}

/** Shows sentences about the present state, and below them the time line, oldest entry first. */
function explanationView(
  { entries, now }: Pick<OrderExplained, 'entries' | 'now'>,
  speech: Speech,
  heading: (text: string) => TemplateResult,
): TemplateResult {
  const told = (english: string) => {
    const { text, language } = speech.reason(english);
    return html`<span lang=${language}>${text}</span>`;
  };
  return html`
    ${heading(speech.say('why.now'))}
    <ul class="now">${now.map((each) => html`<li>${told(each)}</li>`)}</ul>
    ${
      entries.length === 0
        ? nothing
        : html`
            ${heading(speech.say('why.before'))}
            <ol class="timeline">
              ${entries.map(
                ({ at, what }) => html`<li>
                  ${at === null ? nothing : html`<time datetime=${at}>${speech.format.exact(at)}</time>`}
                  ${told(what)}
                </li>`,
              )}
            </ol>
          `
    }
  `;
}
