import { html, nothing, type TemplateResult } from 'lit-html';
import { repeat } from 'lit-html/directives/repeat.js';
import type { Actions } from '../actions.ts';
import type { Branch } from '../api.ts';
import { BRANCH_LEVELS, branchesShown, isLate, type PageState } from '../state.ts';
import type { Speech } from '../words/language.ts';
import { type IconName, icon } from './order-board.ts';

/** Number of rows shown at first. They have the branches in the worst state. */
const SHOWN = 15;
const SHOWN_NARROW = 6;

const LOOK: Record<Branch['level'], IconName> = {
  red: 'red',
  amber: 'amber',
  'never-joined': 'off',
  green: 'green',
};

/** Shows a hub's branches; nothing elsewhere. */
export function branchesView(state: PageState, actions: Actions): TemplateResult | typeof nothing {
  const { speech, branches, isNarrow } = state;
  const { all, level, text, isWhole } = branches;
  if (all === null) return nothing;
  const few = isNarrow ? SHOWN_NARROW : SHOWN;
  const found = branchesShown(branches, (branch) => messageOf(branch, speech).text);
  const shown = isWhole ? found : found.slice(0, few);
  const count = (of: Branch['level'] | null) =>
    speech.format.number(all.filter((branch) => of === null || branch.level === of).length);
  const isSearched = text.trim() !== '' || level !== null;
  return html`
    <section class="branches" aria-labelledby="branches">
      <div class="head">
        <h2 id="branches">${speech.say('branches.title')}</h2>
        <form role="search" aria-labelledby="branches" @submit=${(event: Event) => event.preventDefault()}>
          <label for="branch-search" class="unseen">${speech.say('branches.search')}</label>
          ${icon('search')}
          <input
            id="branch-search"
            type="search"
            autocomplete="off"
            enterkeyhint="search"
            placeholder=${speech.say('branches.search')}
            .value=${text}
            @input=${(event: InputEvent) => actions.findBranches({ text: (event.target as HTMLInputElement).value })}
          />
        </form>
      </div>
      <div class="tabs" role="group" aria-label=${speech.say('branches.show')}>
        ${[null, ...BRANCH_LEVELS].map(
          (each) => html`<button
            type="button"
            aria-pressed=${each === level}
            @click=${() => actions.findBranches({ level: each })}
          >${speech.say(each === null ? 'branches.all' : `branches.${each}`)} <span class="count">${count(each)}</span></button>`,
        )}
      </div>
      <p class="found" role="status">
        ${
          found.length === 0
            ? speech.say('branches.none')
            : isSearched
              ? speech.say('catalog.found', { count: speech.format.number(found.length) })
              : ''
        }
      </p>
      ${shown.length === 0 ? nothing : tableOf(shown, state)}
      ${
        found.length > few
          ? html`<button type="button" class="quiet more" aria-expanded=${isWhole} @click=${() => actions.findBranches({ isWhole: !isWhole })}>
            ${isWhole ? speech.say('board.less') : speech.say('board.more', { count: speech.format.number(found.length - few) })}
          </button>`
          : nothing
      }
    </section>
  `;
}

const COLUMNS = ['name', 'told', 'behind', 'waiting', 'rejected', 'held', 'quarantined', 'seen'] as const;

/**
 * Shows the table. Its ARIA roles are written out, because on a phone the rows are drawn as cards, and browsers then
 * drop the roles.
 */
function tableOf(shown: readonly Branch[], state: PageState): TemplateResult {
  const { speech } = state;
  return html`
    <div class="rows ${state.branches.isWhole ? 'whole' : ''}" tabindex=${state.branches.isWhole ? 0 : nothing} role="group" aria-label=${speech.say('branches.title')}>
      <table role="table">
        <thead role="rowgroup">
          <tr role="row">${COLUMNS.map((each) => html`<th role="columnheader" scope="col" class=${each}>${speech.say(`branches.${each}`)}</th>`)}</tr>
        </thead>
        <tbody role="rowgroup">
          ${repeat(
            shown,
            ({ branch }) => branch,
            (branch) => rowOf(branch, state),
          )}
        </tbody>
      </table>
    </div>
  `;
}

function rowOf(row: Branch, { speech, nowMs }: PageState): TemplateResult {
  const { branch, level, command, commandAt, seenAt, oldestWaitingAt, behindSince } = row;
  const message = messageOf(row, speech);
  const behind = isLate(row, nowMs) ? row.behind : 0;
  const figure = (
    name: 'behind' | 'waiting' | 'rejected' | 'held' | 'quarantined',
    value: number | null,
    since: string | null = null,
  ) =>
    html`<td role="cell" class="${name} ${value ? 'some' : 'zero'}" data-label=${speech.say(`branches.${name}`)}>
      ${value === null ? '–' : speech.format.number(value)}
      ${value && since !== null ? html`<small>${speech.say('branches.since', { when: speech.format.near(since, nowMs) })}</small>` : nothing}
    </td>`;
  return html`
    <tr role="row" class="branch-${level}">
      <th role="rowheader" scope="row" class="name">
        <div>${icon(LOOK[level])}<span>${branch} <small>${speech.say(`branches.${level}`)}</small></span></div>
      </th>
      <td role="cell" class="told">
        <span lang=${message.language}>${message.text}</span>
        ${
          command === null
            ? nothing
            : html`<span class="look">${speech.say(commandAt === 'branch' ? 'branches.look.there' : 'branches.look')} <code>${command}</code></span>`
        }
      </td>
      ${figure('behind', row.behind === null ? null : behind, behindSince)}
      ${figure('waiting', row.waiting, oldestWaitingAt)}
      ${figure('rejected', row.rejected)}
      ${figure('held', row.held)}
      ${figure('quarantined', row.quarantined)}
      <td role="cell" class="seen" data-label=${speech.say('branches.seen')}>
        ${seenAt === null ? speech.say('flow.never') : html`<time datetime=${seenAt} title=${speech.format.moment(seenAt)}>${speech.format.ago(seenAt, nowMs)}</time>`}
      </td>
    </tr>
  `;
}

function messageOf({ reason, message }: Branch, speech: Speech): ReturnType<Speech['reason']> {
  if (message === '') return { text: speech.say('branches.well'), language: speech.language };
  const told = speech.branch(reason, message);
  const isItsOwn = reason !== null && !OF_THE_HUB.has(reason);
  return isItsOwn ? { ...told, text: speech.say('branches.says', { what: told.text }) } : told;
}

/** Reasons that the hub itself finds. All others come from the branch. */
const OF_THE_HUB: ReadonlySet<Branch['reason']> = new Set(['absent', 'behind', 'other', 'outbox.held']);
