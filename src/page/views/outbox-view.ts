import { html, nothing, type TemplateResult } from 'lit-html';
import { repeat } from 'lit-html/directives/repeat.js';
import type { Actions } from '../actions.ts';
import type { Change } from '../answers.ts';
import { OUTBOX_TABS, type OutboxTab, type PageState } from '../state.ts';
import { changeSubject, changeValues } from '../words/change-words.ts';

/** What waits to be sent, what waits for a person, what was refused and why. */
export function outboxView(state: PageState, actions: Actions): TemplateResult {
  const { speech, status, outbox, notice } = state;
  const counts = status?.outbox;
  const count: Record<OutboxTab, number> = {
    waiting: (counts?.pending ?? 0) + (counts?.sending ?? 0),
    held: counts?.held ?? 0,
    rejected: counts?.rejected ?? 0,
  };
  const { tab, changes, before } = outbox;
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
    </section>
  `;
}

function changeView(change: Change, { speech, nowMs, outbox }: PageState, actions: Actions): TemplateResult {
  const { changeId, state, heldGuard, message, attempts, createdAt } = change;
  const isBusy = outbox.deciding.has(changeId);
  const subject = changeSubject(change, speech);
  const reason = message ? speech.reason(message) : undefined;
  const button = (word: 'retry' | 'release' | 'drop', act: () => void) => html`<button
    type="button"
    class=${word === 'drop' ? 'danger' : 'primary'}
    aria-label="${speech.say(`outbox.${word}`)}: ${subject}"
    ?disabled=${isBusy}
    @click=${act}
  >${speech.say(`outbox.${word}`)}</button>`;
  return html`
    <div class="change">
      <div class="told">
      <p class="subject"><strong>${subject}</strong> ${changeValues(change, speech)}</p>
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
        ${state === 'sending' ? nothing : button('drop', () => actions.askDrop(change))}
      </div>
    </div>
  `;
}
