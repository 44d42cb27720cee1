import { html, nothing, type TemplateResult } from 'lit-html';
import type { Freshness, FreshnessState, FreshnessSubject } from '../../core/alarm.ts';
import type { TypedWords } from '../../core/errors.ts';
import type { Finding } from '../../health/facts.ts';
import { LANGUAGES } from '../../health/speech.ts';
import type { Actions } from '../actions.ts';
import type { OutboxTab, PageState } from '../state.ts';
import { type Speech, splitCommands } from '../words/language.ts';
import { branchesView } from './branches-view.ts';
import { catalogView, outboxView } from './lists-view.ts';
import { boardView, type IconName, icon } from './order-board.ts';
import { dialogView } from './order-view.ts';
import { trendsView } from './trends-view.ts';

/** Draws the whole page from its state. */
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
          : html`${jumpsView(state)} ${branchesView(state, actions)} ${boardView(state, actions)} ${flowsView(state)} ${trendsView(state)}
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

/** Shows links to the sections, which are below each other on a narrow screen. */
function jumpsView({ speech, status, branches, trends }: PageState): TemplateResult | typeof nothing {
  if (status === null) return nothing;
  const { rejected, held } = status.outbox;
  const places = [
    ...(branches.all === null
      ? []
      : [['branches', speech.say('branches.title'), branches.all.length] as const]),
    ['board', speech.say('board.title'), status.counts.openOrders] as const,
    ['flows', speech.say('flows.title'), 0] as const,
    ...(trends.length === 0 ? [] : [['trends', speech.say('trends.title'), 0] as const]),
    ['outbox', speech.say('outbox.short'), rejected + held] as const,
    ['catalog', speech.say('catalog.title'), 0] as const,
  ];
  return html`
    <nav class="jumps" aria-label=${speech.say('jumps')}>
      ${places.map(([id, words, count]) => html`<a href="#${id}">${words}${count > 0 ? html` <span class="count">${speech.format.number(count)}</span>` : nothing}</a>`)}
    </nav>
  `;
}

const NAMES = { en: 'English', es: 'Español' } as const;
const LINK = {
  live: 'link.live',
  connecting: 'link.connecting',
  lost: 'link.lost',
  locked: 'key.needed',
} as const;

/** Shows the shop's name, the state of the connection, and the buttons for the language and the API key. */
function headerView(state: PageState, actions: Actions): TemplateResult {
  const { speech, link, hasKey } = state;
  return html`
    <header class="top">
      <h1><img src="/page/icon.svg" alt="" width="28" height="28" />${state.status?.shop ?? state.shop ?? 'tillsync'}</h1>
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

const SHOWN: readonly FreshnessSubject[] = [
  'orders.webhook',
  'orders.poll',
  'outbox.push',
  'catalog.sweep',
  'auth',
  'backup',
  'hub.link',
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

/** Shows each flow's freshness with its finding. */
function flowsView({ status, speech, nowMs, link }: PageState): TemplateResult {
  const findings = status?.verdict.findings ?? [];
  const known = new Map(status?.freshness.map((each) => [each.subject, each]));
  const isBranch = status?.role === 'branch';
  /**
   * Returns whether the flow is shown. A branch shows its link and the flows that its hub reports, but not `auth`,
   * because only the hub calls the platform.
   */
  const isShown = (subject: FreshnessSubject) => {
    const { state = 'unknown' } = known.get(subject) ?? {};
    if (isBranch) return subject === 'hub.link' || (subject !== 'auth' && state !== 'unknown');
    return subject !== 'hub.link' || known.has(subject);
  };
  const flow = (subject: FreshnessSubject) => {
    const freshness: Freshness | undefined = known.get(subject);
    const state = freshness?.state ?? 'unknown';
    const lastOkAt = freshness?.lastOkAt ?? null;
    // While the connection is lost, the present state is unknown, because it may have changed after the last answer.
    const isKnown = link !== 'lost';
    const finding = isKnown ? findings.find((each) => each.flow === subject) : undefined;
    const look = finding?.level ?? (isKnown ? LOOK[state] : 'waiting');
    const message = freshness?.message || finding?.detail;
    const reason = isKnown && message ? speech.reason(message) : undefined;
    const says =
      finding && status ? speech.finding(finding, status.commands).message : speech.say(`state.${state}`);
    return html`
      <li class="flow flow-${look}">
        <h3>${icon(look)}${speech.say(isBranch && subject === 'hub.link' ? 'flow.hub' : `flow.${subject}`)}</h3>
        <p class="when">
          ${lastOkAt === null ? speech.say('flow.never') : html`<time datetime=${lastOkAt} title=${speech.format.moment(lastOkAt)}>${speech.format.ago(lastOkAt, nowMs)}</time>`}
        </p>
        <p class="state">${isKnown ? says : speech.say('link.lost')}</p>
        ${reason ? html`<p class="detail" lang=${reason.language}>${reason.text}</p>` : nothing}
      </li>
    `;
  };
  return html`
    <section class="flows" aria-labelledby="flows">
      <h2 id="flows">${speech.say('flows.title')}</h2>
      <ul>${SHOWN.filter(isShown).map(flow)}</ul>
    </section>
  `;
}

/** Shows the verdict and the findings with their remedies. */
function verdictView(state: PageState, actions: Actions): TemplateResult {
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
          : html` <span class="since" aria-live="off">${speech.say('verdict.since', { when: speech.format.near(finding.since, nowMs) })}</span>`
      }
    </p>
    <p class="remedy"><strong>${speech.say('verdict.todo')}:</strong> ${withCommands(remedy, commands)} ${jump(finding, speech, actions)} ${help(finding, speech)}</p>
    ${detail(finding, speech)}
  `;
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
          <div>${message} <span class="remedy">${withCommands(remedy, commands)}</span> ${jump(finding, speech, actions)} ${help(finding, speech)}${detail(finding, speech)}</div>
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

/** Shows a link to the place on this page where the finding can be corrected. */
function jump({ code }: Finding, speech: Speech, actions: Actions): TemplateResult | typeof nothing {
  const tab = TAB_OF[code];
  if (tab === undefined) return nothing;
  return html`<button type="button" class="jump" @click=${() => actions.showChanges(tab, true)}>${speech.say('verdict.show')}</button>`;
}

const HELP = { en: 'help.html', es: 'help.es.html' } as const;

/** Shows a link to the finding in the troubleshooting document. */
function help({ code }: Finding, speech: Speech): TemplateResult {
  return html`<a class="help" href="/page/${HELP[speech.language]}#${code}" target="_blank">${speech.say('verdict.help')}</a>`;
}

function detail({ detail }: Finding, speech: Speech): TemplateResult | typeof nothing {
  if (detail === null) return nothing;
  const { text, language } = speech.reason(detail);
  return html`<p class="detail" lang=${language}>${text}</p>`;
}

/** Marks the commands in a text as code, so that they can be copied. */
function withCommands(text: string, commands: TypedWords): (string | TemplateResult)[] {
  return splitCommands(text, commands)
    .map((part, at) => (at % 2 === 1 ? html`<code>${part}</code>` : part))
    .filter((part) => part !== '');
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
