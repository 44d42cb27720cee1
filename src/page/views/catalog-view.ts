import { html, nothing, type TemplateResult } from 'lit-html';
import { repeat } from 'lit-html/directives/repeat.js';
import type { MirroredProduct, MirroredSku } from '../../domain/product/mirrored-product.ts';
import type { Actions } from '../actions.ts';
import type { PageState } from '../state.ts';
import type { Speech } from '../words/language.ts';
import { icon } from './icons.ts';

/** The mirrored catalogue, to be searched. */
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
      <form role="search" @submit=${(event: Event) => event.preventDefault()}>
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
          (product) => html`<li>${productView(product, speech)}</li>`,
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

function productView(product: MirroredProduct, speech: Speech): TemplateResult {
  return html`
    <article class="product">
      <h3>
        ${product.name ?? product.productId}
        ${product.show === false ? html`<span class="tag">${speech.say('catalog.hidden')}</span>` : nothing}
        ${product.vanishedAt === null ? nothing : html`<span class="tag">${speech.say('catalog.vanished')}</span>`}
      </h3>
      ${product.category ? html`<p class="category">${product.category}</p>` : nothing}
      ${product.skus.map((sku) => skuView(sku, speech))}
    </article>
  `;
}

function skuView(sku: MirroredSku, { say, format }: Speech): TemplateResult {
  const ids = sku.integrations.map(
    ({ extId, productIdPosA, productCodePosB, subsidiaryId }) =>
      `${[extId, productIdPosA, productCodePosB].filter(Boolean).join(' / ')} (${subsidiaryId})`,
  );
  return html`
    <dl class="sku">
      <div><dt>${say('catalog.sku')}</dt><dd>${sku.sku}${sku.show === false ? html` <span class="tag">${say('catalog.hidden')}</span>` : nothing}</dd></div>
      <div><dt>${say('catalog.price')}</dt><dd>${format.amount(sku.price)}</dd></div>
      <div class="stocks">
        <dt>${say('catalog.stock')}</dt>
        <dd>
          ${sku.stocks.map(
            ({ subsidiaryId, qty, show }) =>
              html`<span class="stock ${Number(qty) === 0 ? 'out' : ''}"><span class="branch">${subsidiaryId}</span> ${format.amount(qty)}${show === false ? html` <span class="tag">${say('catalog.hidden')}</span>` : nothing}</span>`,
          )}
        </dd>
      </div>
      ${ids.length === 0 ? nothing : html`<div class="ids"><dt>${say('catalog.ids')}</dt><dd>${ids.join(', ')}</dd></div>`}
    </dl>
  `;
}
