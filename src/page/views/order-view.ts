import { html, nothing, type TemplateResult } from 'lit-html';
import type { Actions } from '../actions.ts';
import { ApiFault, type OrderAnswer } from '../api.ts';
import type { Dialog, PageState } from '../state.ts';
import { changeSubject, changeValues, statusWord } from '../words/language.ts';
import { orderWhyView, stockWhyView } from './why-view.ts';

type Amount = number | string | null;

/** Shows the details of one order. */
function orderDetailView(
  { orderId, answer }: Dialog & { kind: 'order' },
  state: PageState,
  actions: Actions,
): TemplateResult {
  const { say } = state.speech;
  const known = state.board.orders.get(orderId);
  const order = answer instanceof ApiFault ? undefined : answer;
  const code = known?.code ?? order?.order.code ?? orderId;
  const body =
    answer instanceof ApiFault
      ? missing(answer, state)
      : answer === undefined
        ? say('verdict.waiting')
        : facts(answer, known?.waitingSince ?? null, state);
  return html`
    <div class="sheet">
      <h2 id="dialog-title">${say('order.title', { code: `#${code}` })}</h2>
      ${body}
      <div class="buttons">
        <button type="button" autofocus @click=${actions.closeDialog}>${say('close')}</button>
        ${order === undefined ? nothing : html`<button type="button" class="quiet" @click=${() => actions.explainOrder(orderId)}>${say('why.button')}</button>`}
      </div>
    </div>
  `;
}

function missing({ code, message }: ApiFault, { speech: { say } }: PageState): string {
  return code === 'not-found' ? say('order.gone') : say('fault.action', { why: message });
}

function facts(
  { order, acknowledged }: OrderAnswer,
  waitingSince: string | null,
  { speech, status, nowMs }: PageState,
): TemplateResult {
  const { say, format } = speech;
  const money = (value: Amount) => format.money(value, status?.currency ?? null);
  /** Formats an amount; an amount of zero is left out. */
  const charged = (value: Amount) => (Number(value ?? 0) === 0 ? '' : money(value));
  const taken = acknowledged
    ? format.moment(acknowledged.at)
    : waitingSince && say('order.untaken', { when: format.near(waitingSince, nowMs) });
  const customer = [order.customerFirstName, order.customerLastName].filter(Boolean).join(' ');
  const way = order.deliveryType;
  const rows: [string, string][] = [
    [say('order.status'), statusWord(order.status, speech)],
    [say('order.created'), format.moment(order.createdAt)],
    [say('order.due'), order.isScheduled === false ? '' : format.moment(order.scheduledFor)],
    [say('order.taken'), taken ?? ''],
    [say('order.branch'), order.storeExternalId ?? ''],
    [say('order.way'), way === 'delivery' || way === 'pickup' ? say(way) : (way ?? '')],
    [say('order.customer'), customer],
    [say('order.phone'), order.customerPhoneNumber ?? order.addressPhoneNumber ?? ''],
    [say('order.address'), [order.addressAddress, order.addressDetails].filter(Boolean).join(', ')],
    [say('order.amount'), order.amount === order.amountToPay ? '' : money(order.amount)],
    [say('order.fee'), charged(order.deliveryFee)],
    [say('order.discount'), charged(order.couponDiscount)],
    [say('order.total'), money(order.amountToPay)],
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
            <span class="amount">${money(item.productPrice)}</span>
          </span>
          ${item.modifiers.map(({ name, optionName, quantity }) => html`<span class="modifier">${[optionName ?? name, quantity === null || quantity === 1 ? '' : `× ${quantity}`].filter(Boolean).join(' ')}</span>`)}
          ${item.comment ? html`<span class="comment">${item.comment}</span>` : nothing}
        </li>`,
      )}
    </ul>
  `;
}

/** Shows the open dialog. */
export function dialogView(state: PageState, actions: Actions): TemplateResult {
  return html`
    <dialog aria-labelledby="dialog-title" @close=${actions.closeDialog} @click=${(event: MouseEvent) => closeOutside(event, actions)}>
      ${state.dialog === null ? nothing : content(state.dialog, state, actions)}
    </dialog>
  `;
}

/**
 * Opens or closes the browser's dialog element, which keeps the focus inside while it is open and gives it back when it
 * closes.
 */
export function syncDialog({ dialog }: PageState): void {
  const element = document.querySelector('dialog');
  if (element === null) return;
  if (element.open === (dialog !== null)) {
    // The dialog has new content, and the button with the focus was removed.
    if (element.open && !element.contains(document.activeElement))
      element.querySelector<HTMLElement>('[autofocus]')?.focus();
    return;
  }
  if (dialog !== null) element.showModal();
  else {
    element.close();
    // The button that had the focus was removed together with the discarded change, so the list of changes gets the
    // focus.
    if (document.activeElement === document.body) document.getElementById('outbox')?.focus();
  }
}

function content(dialog: Dialog, state: PageState, actions: Actions): TemplateResult {
  switch (dialog.kind) {
    case 'key':
      return keyForm(dialog, state, actions);
    case 'discard':
      return discardForm(dialog, state, actions);
    case 'order':
      return orderDetailView(dialog, state, actions);
    case 'order-why':
      return orderWhyView(dialog, state, actions);
    case 'stock-why':
      return stockWhyView(dialog, state, actions);
  }
}

function keyForm(
  { fault, isChecking, command }: Dialog & { kind: 'key' },
  { speech, hasKey }: PageState,
  actions: Actions,
): TemplateResult {
  const submit = (event: SubmitEvent) => {
    event.preventDefault();
    const { elements } = event.target as HTMLFormElement;
    const field = (name: string) => elements.namedItem(name) as HTMLInputElement;
    actions.useKey(field('key').value, field('remember').checked);
  };
  return html`
    <form class="sheet" @submit=${submit}>
      <h2 id="dialog-title">${speech.say('key.title')}</h2>
      <p>${ticked(speech.say('key.why', { command }))}</p>
      <label for="key">${speech.say('key.label')}</label>
      <input
        id="key"
        name="key"
        type="password"
        autocomplete="off"
        spellcheck="false"
        autofocus
        aria-invalid=${fault !== null}
        aria-describedby="key-fault"
      />
      <p class="fault" id="key-fault" role="alert">${fault === null ? '' : speech.say(fault)}</p>
      <label class="choice"><input type="checkbox" name="remember" /> ${speech.say('key.remember')}</label>
      <div class="buttons">
        <button type="submit" class="primary" ?disabled=${isChecking}>${speech.say('key.use')}</button>
        ${hasKey ? html`<button type="button" @click=${actions.forgetKey}>${speech.say('key.forget')}</button>` : nothing}
        <button type="button" @click=${actions.closeDialog}>${speech.say('cancel')}</button>
      </div>
    </form>
  `;
}

/** Marks text between backticks as code. */
function ticked(text: string): (string | TemplateResult)[] {
  return text.split('`').map((part, at) => (at % 2 === 1 ? html`<code>${part}</code>` : part));
}

function discardForm(
  { change }: Dialog & { kind: 'discard' },
  { speech, status }: PageState,
  actions: Actions,
): TemplateResult {
  return html`
    <div class="sheet">
      <h2 id="dialog-title">${speech.say('discard.title')}</h2>
      <p><strong>${changeSubject(change, speech)}</strong> ${changeValues(change, speech, status?.currency ?? null)}</p>
      <p>${speech.say('discard.why')}</p>
      <div class="buttons">
        <button type="button" class="danger" @click=${() => actions.decide('discard', change)}>${speech.say('discard.yes')}</button>
        <button type="button" autofocus @click=${actions.closeDialog}>${speech.say('cancel')}</button>
      </div>
    </div>
  `;
}

function closeOutside(event: MouseEvent, actions: Actions): void {
  if (event.target === event.currentTarget) actions.closeDialog();
}
