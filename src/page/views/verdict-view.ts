import { html, nothing, type TemplateResult } from 'lit-html';
import type { Finding } from '../../domain/health/finding.ts';
import type { Actions } from '../actions.ts';
import type { OutboxTab, PageState } from '../state.ts';
import type { Speech } from '../words/language.ts';
import { icon } from './icons.ts';

/** Whether everything is all right, in one look, with what to do. */
export function verdictView(state: PageState, actions: Actions): TemplateResult {
  const { speech, status, link } = state;
  if (link === 'lost') return unreachable(speech);
  if (status === null) return band('waiting', speech.say('verdict.waiting'), nothing, speech);
  const { level, findings } = status.verdict;
  const [first, ...others] = findings;
  const body = first
    ? html`${mainFinding(first, state, actions)} ${otherFindings(others, state, actions)}`
    : html`<p class="message">${speech.say('verdict.green.say')}</p>`;
  return band(level, speech.say(`verdict.${level}`), body, speech);
}

function band(
  level: 'green' | 'amber' | 'red' | 'waiting',
  headline: string,
  body: TemplateResult | typeof nothing,
  speech: Speech,
): TemplateResult {
  return html`
    <section class="verdict verdict-${level}" aria-label=${speech.say('verdict.label')} aria-live="polite">
      <div class="sign">${icon(level)}</div>
      <div class="words"><h2>${headline}</h2>${body}</div>
    </section>
  `;
}

function mainFinding(finding: Finding, { speech, nowMs }: PageState, actions: Actions): TemplateResult {
  const { message, remedy } = speech.finding(finding);
  return html`
    <p class="message">
      ${message}${
        finding.since === null
          ? nothing
          : html` <span class="since" aria-live="off">${speech.say('verdict.since', { when: since(finding.since, speech, nowMs) })}</span>`
      }
    </p>
    <p class="remedy"><strong>${speech.say('verdict.todo')}:</strong> ${commands(remedy)} ${jump(finding, speech, actions)}</p>
    ${detail(finding)}
  `;
}

/** Today by the clock, before that by the date: a reading that runs on would be read out again and again. */
function since(iso: string, { format }: Speech, nowMs: number): string {
  return nowMs - Date.parse(iso) < 12 * 3_600_000 ? format.hour(iso) : format.moment(iso);
}

function otherFindings(
  findings: readonly Finding[],
  { speech }: PageState,
  actions: Actions,
): TemplateResult | typeof nothing {
  if (findings.length === 0) return nothing;
  return html`
    <h3>${speech.say('verdict.also')}</h3>
    <ul>
      ${findings.map((finding) => {
        const { message, remedy } = speech.finding(finding);
        return html`<li class="also-${finding.level}">
          ${icon(finding.level)}
          <div>${message} <span class="remedy">${commands(remedy)}</span> ${jump(finding, speech, actions)}${detail(finding)}</div>
        </li>`;
      })}
    </ul>
  `;
}

const TAB_OF: Partial<Record<Finding['code'], OutboxTab>> = {
  'outbox.stuck': 'waiting',
  'outbox.held': 'held',
  'outbox.rejected': 'rejected',
};

/** To where on this page it can be put right. */
function jump({ code }: Finding, speech: Speech, actions: Actions): TemplateResult | typeof nothing {
  const tab = TAB_OF[code];
  if (tab === undefined) return nothing;
  return html`<button type="button" class="jump" @click=${() => actions.showChanges(tab, true)}>${speech.say('verdict.show')}</button>`;
}

function detail({ detail }: Finding): TemplateResult | typeof nothing {
  return detail === null ? nothing : html`<p class="detail" lang="en">${detail}</p>`;
}

/** Commands stand out, so that they can be copied. */
function commands(text: string): (string | TemplateResult)[] {
  return text
    .split(/((?:tillsync [a-z]+(?: [a-z]+)?|systemctl status tillsync))(?=[.,;]|$)/)
    .filter((part) => part !== '')
    .map((part) => (/^(tillsync|systemctl) /.test(part) ? html`<code>${part}</code>` : part));
}

function unreachable(speech: Speech): TemplateResult {
  const body = html`
    <p class="message">${speech.say('page.unreachable')}</p>
    <p class="remedy">
      <strong>${speech.say('verdict.todo')}:</strong> ${commands(speech.say('page.unreachable.todo'))}
    </p>
  `;
  return band('red', speech.say('link.lost'), body, speech);
}
