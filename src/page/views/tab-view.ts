import { calledFor, type PageState } from '../state.ts';
import type { WordKey } from '../words/language.ts';

/** Shows the state in the tab's title and icon, for people who have another tab open. */
export function drawTab(state: PageState): void {
  const unseen = calledFor(state).length;
  document.title = tabTitle(state, unseen);
  const level = state.link === 'lost' ? 'red' : state.status?.verdict.level;
  const name =
    level === undefined || state.link === 'locked' ? 'icon' : `icon-${level}${unseen > 0 ? '-new' : ''}`;
  const icon = document.querySelector('link[rel="icon"]');
  const address = `/page/${name}.svg`;
  if (icon && icon.getAttribute('href') !== address) icon.setAttribute('href', address);
}

function tabTitle({ speech, status, link }: PageState, unseen: number): string {
  if (status === null) return speech.say('title');
  const verdict: WordKey =
    link === 'lost' ? 'link.lost' : link === 'locked' ? 'key.needed' : `verdict.${status.verdict.level}`;
  const title = speech.say('title.shop', { shop: status.shop, verdict: speech.say(verdict) });
  return unseen === 0 ? title : `(${speech.format.number(unseen)}) ${title}`;
}
