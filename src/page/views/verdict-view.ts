import { html, nothing, type TemplateResult } from 'lit-html';
import type { Finding } from '../../domain/health/finding.ts';
import type { TypedWords } from '../../domain/installation.ts';
import type { Actions } from '../actions.ts';
import type { OutboxTab, PageState } from '../state.ts';
import type { Speech } from '../words/language.ts';
import { icon } from './icons.ts';

/** Whether everything is all right, in one look, with what to do. */
export function verdictView(state: PageState, actions: Actions): TemplateResult {
  const { speech, status, link } = state;
  if (link === 'lost') return unreachable(state);
  if (link === 'locked') return band('waiting', speech.say('key.needed'), nothing, speech);
  if (status === null) return band('waiting', speech.say('verdict.waiting'), nothing, speech);
  const { verdict, commands } = status;
  const { level, findings } = verdict;
  const [first, ...others] = findings;
  const isNotSetUp = first?.code === 'setup.missing';
  const body = first
    ? html`${mainFinding(first, commands, state, actions)} ${otherFindings(others, commands, state, actions)}`
    : html`<p class="message">${speech.say('verdict.green.say')}</p>`;
  const headline = isNotSetUp ? speech.finding(first, commands).message : speech.say(`verdict.${level}`);
  return band(level, headline, body, speech);
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

function mainFinding(
  finding: Finding,
  commands: TypedWords,
  { speech, nowMs }: PageState,
  actions: Actions,
): TemplateResult {
  const { message, remedy } = speech.finding(finding, commands);
  return html`
    <p class="message">
      ${finding.code === 'setup.missing' ? nothing : message}${
        finding.since === null
          ? nothing
          : html` <span class="since" aria-live="off">${speech.say('verdict.since', { when: since(finding.since, speech, nowMs) })}</span>`
      }
    </p>
    <p class="remedy"><strong>${speech.say('verdict.todo')}:</strong> ${withCommands(remedy, commands)} ${jump(finding, speech, actions)}</p>
    ${detail(finding, speech)}
  `;
}

/** Today by the clock, before that by the date: a reading that runs on would be read out again and again. */
function since(iso: string, { format }: Speech, nowMs: number): string {
  return nowMs - Date.parse(iso) < 12 * 3_600_000 ? format.hour(iso) : format.moment(iso);
}

function otherFindings(
  findings: readonly Finding[],
  commands: TypedWords,
  { speech }: PageState,
  actions: Actions,
): TemplateResult | typeof nothing {
  if (findings.length === 0) return nothing;
  return html`
    <h3>${speech.say('verdict.also')}</h3>
    <ul>
      ${findings.map((finding) => {
        const { message, remedy } = speech.finding(finding, commands);
        return html`<li class="also-${finding.level}">
          ${icon(finding.level)}
          <div>${message} <span class="remedy">${withCommands(remedy, commands)}</span> ${jump(finding, speech, actions)}${detail(finding, speech)}</div>
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

function detail({ detail }: Finding, speech: Speech): TemplateResult | typeof nothing {
  if (detail === null) return nothing;
  const { text, language } = speech.reason(detail);
  return html`<p class="detail" lang=${language}>${text}</p>`;
}

/** Commands stand out, so that they can be copied. */
function withCommands(
  text: string,
  { tillsync, storage: _, ...others }: TypedWords,
): (string | TemplateResult)[] {
  const whole = Object.values(others).map(literal).join('|');
  const command = new RegExp(`(${whole}|${literal(tillsync)} [a-z]+(?: [a-z]+)?)(?=[ .,;]|$)`);
  return text
    .split(command)
    .map((part, at) => (at % 2 === 1 ? html`<code>${part}</code>` : part))
    .filter((part) => part !== '');
}

function literal(text: string): string {
  return text.replaceAll(/[.*+?^${}()|[\]\\]/g, '\\$&');
}

function unreachable({ speech, status }: PageState): TemplateResult {
  const message = speech.say('page.unreachable');
  const todo =
    status === null
      ? speech.say('page.unreachable.todo')
      : withCommands(speech.say('page.unreachable.start', { start: status.commands.start }), status.commands);
  const body = html`
    <p class="message">${message}</p>
    <p class="remedy">
      <strong>${speech.say('verdict.todo')}:</strong> ${todo}
    </p>
  `;
  return band('red', speech.say('link.lost'), body, speech);
}
