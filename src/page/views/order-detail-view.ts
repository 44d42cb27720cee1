import { html, nothing, type TemplateResult } from 'lit-html';
import type { MirroredOrder } from '../../domain/order/mirrored-order.ts';
import type { Actions } from '../actions.ts';
import type { Dialog, PageState } from '../state.ts';
import type { Speech } from '../words/language.ts';
import { statusWord } from '../words/status-word.ts';

/** One order with all that a person asks about it. */
export function orderDetailView(
  { orderId, order }: Dialog & { kind: 'order' },
  { speech, board }: PageState,
  actions: Actions,
): TemplateResult {
  const { say } = speech;
  const code = board.orders.get(orderId)?.code ?? order?.code ?? orderId;
  const body =
    order === undefined ? say('verdict.waiting') : order === null ? say('order.gone') : facts(order, speech);
  return html`
    <div class="sheet">
      <h2 id="dialog-title">${say('order.title', { code: `#${code}` })}</h2>
      ${body}
      <div class="buttons">
        <button type="button" autofocus @click=${actions.closeDialog}>${say('close')}</button>
      </div>
    </div>
  `;
}

function facts(order: MirroredOrder, speech: Speech): TemplateResult {
  const { say, format } = speech;
  const customer = [order.customerFirstName, order.customerLastName].filter(Boolean).join(' ');
  const way = order.deliveryType;
  const rows: [string, string][] = [
    [say('order.status'), statusWord(order.status, speech)],
    [say('order.created'), format.moment(order.createdAt)],
    [say('order.branch'), order.storeExternalId ?? ''],
    [say('order.way'), way === 'delivery' || way === 'pickup' ? say(way) : (way ?? '')],
    [say('order.customer'), [customer, order.customerPhoneNumber].filter(Boolean).join(', ')],
    [say('order.address'), [order.addressAddress, order.addressDetails].filter(Boolean).join(', ')],
    [say('order.fee'), charged(order.deliveryFee, format)],
    [say('order.discount'), charged(order.couponDiscount, format)],
    [say('order.total'), format.amount(order.amountToPay)],
    [say('order.id'), order.orderId],
  ];
  return html`
    <dl>
      ${rows.map(([name, value]) => (value === '' ? nothing : html`<div><dt>${name}</dt><dd>${value}</dd></div>`))}
    </dl>
    <h3>${say('order.items')}</h3>
    <ul class="items">
      ${order.items.map(
        (item) => html`<li>
          <span class="line">
            <span>${format.amount(item.quantity)} × ${item.productName ?? item.productExternalId ?? '–'}</span>
            <span class="amount">${format.amount(item.productPrice)}</span>
          </span>
          ${item.modifiers.map(({ name, optionName, quantity }) => html`<span class="modifier">${[optionName ?? name, quantity === null || quantity === 1 ? '' : `× ${quantity}`].filter(Boolean).join(' ')}</span>`)}
          ${item.comment ? html`<span class="comment">${item.comment}</span>` : nothing}
        </li>`,
      )}
    </ul>
  `;
}

/** Nothing where nothing was charged. */
function charged(value: MirroredOrder['deliveryFee'], format: Speech['format']): string {
  return Number(value ?? 0) === 0 ? '' : format.amount(value);
}
