import { html, nothing, type TemplateResult } from 'lit-html';
import type { Actions, PageState } from '../state.ts';
import { boardView } from './board-view.ts';
import { flowsView, headerView, verdictView } from './header-view.ts';
import { catalogView, outboxView } from './lists-view.ts';
import { dialogView } from './order-view.ts';
import { trendsView } from './trends-view.ts';

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
