import { html, type TemplateResult } from 'lit-html';
import type { Actions } from '../actions.ts';
import type { PageState } from '../state.ts';
import { LANGUAGES } from '../words/language.ts';
import { icon } from './icons.ts';

const NAMES = { en: 'English', es: 'Español' } as const;
const LINK = {
  live: 'link.live',
  connecting: 'link.connecting',
  lost: 'link.lost',
  locked: 'key.needed',
} as const;

/** Name, connection, language and key. */
export function headerView(state: PageState, actions: Actions): TemplateResult {
  const { speech, link, hasKey } = state;
  return html`
    <header class="top">
      <h1><img src="/page/icon.svg" alt="" width="28" height="28" />${state.status?.shop ?? 'tillsync'}</h1>
      <p class="link link-${link}" role="status">${speech.say(LINK[link])}</p>
      <div class="languages" role="group" aria-label=${speech.say('language')}>
        ${LANGUAGES.map(
          (each) => html`<button
            type="button"
            lang=${each}
            title=${NAMES[each]}
            aria-label="${each.toUpperCase()} ${NAMES[each]}"
            aria-pressed=${each === speech.language}
            @click=${() => actions.speak(each)}
          >${each.toUpperCase()}</button>`,
        )}
      </div>
      <button type="button" class="quiet key" aria-label=${speech.say('key.button')} aria-pressed=${hasKey} @click=${actions.askKey}>
        ${icon('key')}<span>${speech.say('key.button')}</span>
      </button>
    </header>
  `;
}
