import { html, nothing, type TemplateResult } from 'lit-html';
import { repeat } from 'lit-html/directives/repeat.js';
import type { MirroredProduct, MirroredSku } from '../../catalog/product.ts';
import type { Actions } from '../actions.ts';
import type { Change } from '../api.ts';
import { OUTBOX_TABS, type OutboxTab, type PageState } from '../state.ts';
import { changeSubject, changeValues } from '../words/language.ts';
import { icon } from './order-board.ts';

/** Shows the mirrored catalogue with its search. */
export function catalogView(state: PageState, actions: Actions): TemplateResult {
  const { speech, status, catalog } = state;
  const { text, products, next } = catalog;
  const count = status?.counts.products;
  return html`
    <section class="catalog" aria-labelledby="catalog">
      <h2 id="catalog">
        ${speech.say('catalog.title')}
        ${count === undefined ? nothing : html`<small>${speech.say('catalog.count', { count: speech.format.number(count) })}</small>`}
      </h2>
      <form role="search" aria-labelledby="catalog" @submit=${(event: Event) => event.preventDefault()}>
        <label for="search" class="unseen">${speech.say('catalog.search')}</label>
        ${icon('search')}
        <input
          id="search"
          type="search"
          autocomplete="off"
          enterkeyhint="search"
          aria-describedby="search-hint"
          placeholder=${speech.say('catalog.search')}
          .value=${text}
          @input=${(event: InputEvent) => actions.search((event.target as HTMLInputElement).value)}
        />
      </form>
      <p class="hint" id="search-hint">${speech.say('catalog.hint')}</p>
      <p class="found" role="status">${found(state)}</p>
      <ul class="products">
        ${repeat(
          products ?? [],
          ({ productId }) => productId,
          (product) => html`<li>${productView(product, state, actions)}</li>`,
        )}
      </ul>
      ${next === null ? nothing : html`<button type="button" class="quiet more" @click=${actions.moreProducts}>${speech.say('catalog.more')}</button>`}
    </section>
  `;
}

function found({ speech, catalog: { products, next, fault } }: PageState): string {
  if (fault !== null) return speech.say('fault.action', { why: fault });
  if (products === null) return '';
  if (products.length === 0) return speech.say('catalog.none');
  const count = speech.format.number(products.length);
  return speech.say('catalog.found', { count: next === null ? count : `${count}+` });
}

function productView(product: MirroredProduct, state: PageState, actions: Actions): TemplateResult {
  const { speech } = state;
  return html`
    <article class="product">
      <h3>
        ${product.name ?? product.productId}
        ${product.show === false ? html`<span class="tag">${speech.say('catalog.hidden')}</span>` : nothing}
        ${product.vanishedAt === null ? nothing : html`<span class="tag">${speech.say('catalog.vanished')}</span>`}
      </h3>
      ${product.category ? html`<p class="category">${product.category}</p>` : nothing}
      ${product.skus.map((sku) => skuView(sku, state, actions))}
    </article>
  `;
}

function skuView(
  sku: MirroredSku,
  { speech: { say, format }, status }: PageState,
  actions: Actions,
): TemplateResult {
  const ids = sku.integrations.map(
    ({ extId, productIdPosA, productCodePosB, subsidiaryId }) =>
      `${[extId, productIdPosA, productCodePosB].filter(Boolean).join(' / ')} (${subsidiaryId})`,
  );
  return html`
    <dl class="sku">
      <div><dt>${say('catalog.sku')}</dt><dd>${sku.sku}${sku.show === false ? html` <span class="tag">${say('catalog.hidden')}</span>` : nothing}</dd></div>
      <div><dt>${say('catalog.price')}</dt><dd>${format.money(sku.price, status?.currency ?? null)}</dd></div>
      <div class="stocks">
        <dt>${say('catalog.stock')}</dt>
        <dd>
          ${sku.stocks.map(
            ({ subsidiaryId, qty, show }) =>
              html`<span class="stock ${Number(qty ?? Number.NaN) <= 0 ? 'out' : ''}"><span class="branch">${subsidiaryId}</span> ${format.amount(qty)}${show === false ? html` <span class="tag">${say('catalog.hidden')}</span>` : nothing}</span>`,
          )}
        </dd>
      </div>
      ${ids.length === 0 ? nothing : html`<div class="ids"><dt>${say('catalog.ids')}</dt><dd>${ids.join(', ')}</dd></div>`}
    </dl>
    <button
      type="button"
      class="quiet why"
      aria-haspopup="dialog"
      aria-label="${say('why.button')}: SKU ${sku.sku}"
      @click=${() => actions.explainStock(sku.sku)}
    >${say('why.button')}</button>
  `;
}

/** Shows the changes that wait to be sent, wait for a person, or were rejected, with the reason. */
export function outboxView(state: PageState, actions: Actions): TemplateResult {
  const { speech, status, outbox, notice } = state;
  const counts = status?.outbox;
  const count: Record<OutboxTab, number> = {
    waiting: (counts?.pending ?? 0) + (counts?.sending ?? 0),
    held: counts?.held ?? 0,
    rejected: counts?.rejected ?? 0,
  };
  const { tab, changes, before } = outbox;
  // The list was read after the numbers in the status, so it is more exact.
  if (changes !== null && before === null) count[tab] = changes.length;
  return html`
    <section class="outbox" aria-labelledby="outbox">
      <h2 id="outbox" tabindex="-1">${speech.say('outbox.title')}</h2>
      <div class="tabs" role="group" aria-label=${speech.say('outbox.show')}>
        ${OUTBOX_TABS.map(
          (each) => html`<button
            type="button"
            aria-pressed=${each === tab}
            class=${each !== 'waiting' && count[each] > 0 ? 'some' : ''}
            @click=${() => actions.showChanges(each)}
          >${speech.say(`outbox.${each}`)} <span class="count">${speech.format.number(count[each])}</span></button>`,
        )}
      </div>
      <div class="notice" role="status">
        ${notice === null ? nothing : html`<p class=${notice.isFault ? 'fault' : 'good'}>${notice.text}</p>`}
      </div>
      ${changes?.length === 0 ? html`<p class="none">${speech.say(`outbox.${tab}.none`)}</p>` : nothing}
      <ul class="changes">
        ${repeat(
          changes ?? [],
          ({ changeId }) => changeId,
          (change) => html`<li>${changeView(change, state, actions)}</li>`,
        )}
      </ul>
      ${before === null ? nothing : html`<button type="button" class="quiet more" @click=${actions.moreChanges}>${speech.say('outbox.more')}</button>`}
      ${holdBackView(state)}
    </section>
  `;
}

/** Shows which branches hold back stock of unbooked orders, and which conditions the others lack. */
function holdBackView({ status, speech }: PageState): TemplateResult | typeof nothing {
  const branches = status?.holdBack ?? [];
  if (branches.length === 0) return nothing;
  const words = ({ branch, isOn, missing }: (typeof branches)[number]) => {
    const says = speech.say(isOn ? 'hold.on' : 'hold.off', { branch });
    return missing.length === 0
      ? says
      : `${says}: ${missing.map((each) => speech.say(`hold.${each}`)).join(', ')}`;
  };
  return html`
    <h3>${speech.say('hold.title')}</h3>
    ${branches.map((each) => html`<p class="hint">${words(each)}</p>`)}
  `;
}

/** Time within which a waiting change is sent unless something is wrong. */
const LEAVES_WITHIN_MS = 60_000;

function mayBeDiscarded({ state, heldGuard, createdAt }: Change, nowMs: number): boolean {
  if (state === 'sending') return false;
  return state !== 'pending' || heldGuard !== null || nowMs - Date.parse(createdAt) >= LEAVES_WITHIN_MS;
}

function changeView(
  change: Change,
  { speech, nowMs, outbox, status }: PageState,
  actions: Actions,
): TemplateResult {
  const { changeId, state, heldGuard, message, attempts, createdAt } = change;
  const isBusy = outbox.deciding.has(changeId);
  const subject = changeSubject(change, speech);
  const reason = message ? speech.reason(message) : undefined;
  const button = (word: 'retry' | 'release' | 'discard', act: () => void) => html`<button
    type="button"
    class=${word === 'discard' ? 'danger' : 'primary'}
    aria-label="${speech.say(`outbox.${word}`)}: ${subject}"
    ?disabled=${isBusy}
    @click=${act}
  >${speech.say(`outbox.${word}`)}</button>`;
  return html`
    <div class="change">
      <div class="told">
      <p class="subject"><strong>${subject}</strong> ${changeValues(change, speech, status?.currency ?? null)}</p>
      ${reason ? html`<p class="why" lang=${reason.language}>${reason.text}</p>` : nothing}
      <p class="meta">
        <span>${changeId}</span><time datetime=${createdAt} title=${speech.format.moment(createdAt)}>${speech.format.ago(createdAt, nowMs)}</time>
        ${attempts > 0 ? html`<span>${speech.say('outbox.tries', { count: attempts })}</span>` : nothing}
        ${state === 'sending' ? html`<span>${speech.say('outbox.sending')}</span>` : nothing}
      </p>
      </div>
      <div class="buttons">
        ${state === 'rejected' ? button('retry', () => actions.decide('retry', change)) : nothing}
        ${heldGuard === null ? nothing : button('release', () => actions.decide('release', change))}
        ${mayBeDiscarded(change, nowMs) ? button('discard', () => actions.askDiscard(change)) : nothing}
      </div>
    </div>
  `;
}
