import { html, nothing, type TemplateResult } from 'lit-html';
import type { Actions } from '../actions.ts';
import type { PageState } from '../state.ts';
import { boardView } from './board-view.ts';
import { catalogView } from './catalog-view.ts';
import { dialogView } from './dialog-view.ts';
import { flowsView } from './flows-view.ts';
import { headerView } from './header-view.ts';
import { outboxView } from './outbox-view.ts';
import { trendsView } from './trends-view.ts';
import { verdictView } from './verdict-view.ts';

/** The whole page for a state. */
export function pageView(state: PageState, actions: Actions): TemplateResult {
  const { speech, status } = state;
  return html`
    <a class="skip" href="#content">${speech.say('skip')}</a>
    ${headerView(state, actions)}
    <main id="content" tabindex="-1">
      ${verdictView(state, actions)}
      ${
        state.link === 'locked'
          ? nothing
          : html`${flowsView(state)} ${boardView(state, actions)} ${trendsView(state)}
      <div class="pair">${outboxView(state, actions)} ${catalogView(state, actions)}</div>`
      }
    </main>
    <footer>
      ${
        status === null
          ? nothing
          : html`<p>${speech.say('foot.version', { version: status.versions.tillsync })} · ${speech.say('foot.at', { when: speech.format.moment(status.at) })}</p>`
      }
    </footer>
    ${dialogView(state, actions)}
  `;
}
