import { html, nothing, type TemplateResult } from 'lit-html';
import type { Freshness, FreshnessState, FreshnessSubject } from '../../domain/health/freshness.ts';
import type { PageState } from '../state.ts';
import { type IconName, icon } from './icons.ts';

const SHOWN: readonly FreshnessSubject[] = [
  'orders.webhook',
  'orders.poll',
  'outbox.push',
  'catalog.sweep',
  'auth',
];
const LOOK: Record<FreshnessState, IconName> = {
  ok: 'green',
  waiting: 'waiting',
  unknown: 'waiting',
  off: 'off',
  degraded: 'amber',
  blocked: 'amber',
  failing: 'amber',
  'locked-out': 'red',
};

/** How fresh every flow is. */
export function flowsView({ status, speech, nowMs, link }: PageState): TemplateResult {
  const known = new Map(status?.freshness.map((each) => [each.subject, each]));
  const flow = (subject: FreshnessSubject) => {
    const freshness: Freshness | undefined = known.get(subject);
    const state = freshness?.state ?? 'unknown';
    const lastOkAt = freshness?.lastOkAt ?? null;
    // What was so when tillsync last answered says nothing of now.
    const isKnown = link !== 'lost';
    const look = isKnown ? LOOK[state] : 'waiting';
    const reason = isKnown && freshness?.message ? speech.reason(freshness.message) : undefined;
    return html`
      <li class="flow flow-${look}">
        <h3>${icon(look)}${speech.say(`flow.${subject}`)}</h3>
        <p class="when">
          ${lastOkAt === null ? speech.say('flow.never') : html`<time datetime=${lastOkAt} title=${speech.format.moment(lastOkAt)}>${speech.format.ago(lastOkAt, nowMs)}</time>`}
        </p>
        <p class="state">${isKnown ? speech.say(`state.${state}`) : speech.say('link.lost')}</p>
        ${reason ? html`<p class="detail" lang=${reason.language} title=${reason.text}>${reason.text}</p>` : nothing}
      </li>
    `;
  };
  return html`
    <section class="flows" aria-labelledby="flows">
      <h2 id="flows">${speech.say('flows.title')}</h2>
      <ul>${SHOWN.map(flow)}</ul>
    </section>
  `;
}
