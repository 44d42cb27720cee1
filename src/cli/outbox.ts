import { basename } from 'node:path';
import { namedBranch } from '../catalog/product.ts';
import { counted, formatCommands, hasCode, TillsyncError } from '../core/errors.ts';
import { ADDRESS_KEYS, type OutboxEntry } from '../outbox/intake/change.ts';
import type { OutboxService } from '../outbox/sending/outbox.ts';
import type { UndoLine } from '../outbox/sending/undo.ts';
import { EXIT, printable } from './cli.ts';
import {
  type Call,
  choice,
  command,
  group,
  LIMIT,
  type Result,
  whole,
  withReaders,
  withServices,
} from './command.ts';
import { instant } from './options.ts';
import { table, when } from './table.ts';

const ADDRESS: ReadonlySet<string> = new Set(ADDRESS_KEYS);

/** Returns the values of a change, without its ids: `qty 5, show true`. */
export function valuesText(body: object): string {
  return Object.entries(body)
    .filter(([key]) => !ADDRESS.has(key))
    .map(([key, value]) => `${key} ${typeof value === 'string' ? JSON.stringify(value) : String(value)}`)
    .join(', ');
}

/** Returns the ids of a change: `externalId A-1, subsidiaryId sub-1`. */
export function addressText(body: object): string {
  return Object.entries(body)
    .filter(([key]) => ADDRESS.has(key))
    .map(([key, value]) => `${key} ${String(value)}`)
    .join(', ');
}

/** Returns the state of a change; `held` if it waits for a person. */
function stateOf({ state, heldGuard }: Pick<OutboxEntry, 'state' | 'heldGuard'>): string {
  return state === 'pending' && heldGuard !== null ? 'held' : state;
}

function outboxTable(entries: readonly OutboxEntry[], timeZone: string): string {
  return table(
    entries,
    {
      CHANGE: 'changeId',
      KIND: 'kind',
      STATE: stateOf,
      FOR: (entry) => addressText(entry.body) || entry.target,
      VALUES: (entry) => valuesText(entry.body),
      BY: ({ origin, source }) => origin ?? source,
      TRIES: 'attempts',
      [`HANDED OVER (${timeZone})`]: (entry) => when(entry.createdAt, timeZone),
      WHY: 'message',
    },
    ['CHANGE', 'TRIES'],
  );
}

const list = command({
  description: 'List changes for the platform, newest first',
  examples: ['outbox list --state rejected', 'outbox list --state held --kind stock --json'],
  options: {
    '--state <state>': choice('Only in this state; `held` means on hold for your decision', [
      'pending',
      'held',
      'sending',
      'done',
      'rejected',
      'superseded',
    ]),
    '--kind <kind>': choice('Only of this kind', ['stock', 'product']),
    '--limit <n>': LIMIT,
    '--since <time>': 'Received from this day or time (example: 2026-03-01T18:30)',
    '--target <text>': 'Only products or branches with this text in an ID',
    '--reference <text>': 'Only with this reference from the POS',
    '--before <change>': whole('Only changes with a lower ID', 1),
  },
  run: (call) =>
    withReaders(call, async ({ mirror }, config) => {
      const { readStores } = await import('../app/read-only-services.ts');
      const { timezone } = config.orders;
      const { state, kind, before, limit, target, reference } = call.options;
      const since = instant('--since', call.options.since, timezone);
      const { changes, counts } = readStores(mirror, config, call.cli.clock).read(({ queries }) => ({
        changes: queries.list({ state, kind, before, limit, since, target, reference }),
        counts: queries.counts(),
      }));
      const { pending, held, sending, rejected } = counts;
      return {
        json: { counts, changes },
        above: `${pending} waiting, ${held} held, ${sending} being sent, ${rejected} rejected.\n`,
        text: changes.length === 0 ? '' : outboxTable(changes, timezone),
      };
    }),
});

/** Reads change ids from the command line. Throws `usage` for a word that is no id. */
function changeIds(words: readonly string[]): number[] {
  return words.map((word) => {
    const id = Number(word);
    if (/^\d+$/.test(word) && Number.isSafeInteger(id) && id > 0) return id;
    throw new TillsyncError(
      'usage',
      `CHANGE: found "${word}"; allowed: ids as in \`{tillsync} outbox list\`.`,
    );
  });
}

/** Runs `decide` for each change separately, so that a failure does not stop the others. */
async function decideEach(
  { cli }: Call,
  ids: readonly number[],
  decide: (changeId: number) => Promise<string>,
): Promise<Result> {
  const changes: { changeId: number; ok: boolean; message: string }[] = [];
  for (const changeId of ids) {
    if (cli.signal.aborted) break;
    try {
      changes.push({ changeId, ok: true, message: await decide(changeId) });
    } catch (error) {
      if (!hasCode(error, 'conflict', 'not-found')) throw error;
      changes.push({ changeId, ok: false, message: error.message });
    }
  }
  for (const { ok, message } of changes) if (!ok) cli.stderr.write(`${printable(message)}\n`);
  const done = changes.filter(({ ok }) => ok);
  const short = done.length === 0 ? EXIT.failed : EXIT.partial;
  return {
    json: { changes },
    text: done.map(({ message }) => `${printable(message)}\n`).join(''),
    exit: done.length < ids.length ? short : EXIT.done,
  };
}

const retry = command({
  description: 'Send rejected changes again',
  examples: ['outbox retry 1204 1207', 'outbox retry --all'],
  argument: ['[changes...]', 'IDs as in `outbox list --state rejected`'],
  options: { '--all': 'Every rejected change' },
  async run(call) {
    const { options, argument: words } = call;
    if ((words.length === 0) === !options.all) {
      throw new TillsyncError('usage', 'Name changes by their ids, or take every rejected one with --all.');
    }
    const named = changeIds(words);
    return withServices(call, async ({ services: { outbox } }) => {
      const ids = options.all ? rejectedIds(outbox) : named;
      return decideEach(call, ids, async (changeId) => {
        await outbox.retry(changeId, call.cli.who);
        const by = outbox.get(changeId)?.supersededBy ?? null;
        const next = by === null ? undefined : outbox.get(by);
        if (next === undefined) return `Change ${changeId} was handed over again.`;
        if (next.state === 'rejected') throw new TillsyncError('conflict', `Change ${by}: ${next.message}`);
        return `Change ${changeId} was handed over again as change ${by}, which is ${stateOf(next)}.`;
      });
    });
  },
});

const PAGE = 1000;

/** Returns the ids of rejected changes, oldest first, so that the newest value of a target is retried last. */
function rejectedIds(outbox: OutboxService): number[] {
  const ids: number[] = [];
  for (let before: number | undefined; ; ) {
    const page = outbox.list({ state: 'rejected', before, limit: PAGE });
    ids.push(...page.map(({ changeId }) => changeId));
    before = page.at(-1)?.changeId;
    if (page.length < PAGE || before === undefined) return ids.reverse();
  }
}

const GUARDS = ['zero-items', 'price-factor', 'missing-share', 'restored'] as const;

const discard = command({
  description: 'Discard pending, held or rejected changes',
  examples: [
    'outbox discard 1204 1207',
    'outbox discard --state rejected --origin "file counts.csv"',
    'outbox discard --guard zero-items',
  ],
  argument: ['[changes...]', 'IDs as in `outbox list`'],
  options: {
    '--state <state>': choice('Every rejected change', ['rejected']),
    '--origin <text>': 'With --state: only changes with this text in BY of `outbox list`, whole or one part',
    '--guard <guard>': choice('Every change that this guard holds', GUARDS),
  },
  async run(call) {
    const { guard, state, origin } = call.options;
    const ids = changeIds(call.argument);
    if ([ids.length > 0, guard !== undefined, state !== undefined].filter(Boolean).length !== 1) {
      throw new TillsyncError(
        'usage',
        'Name changes by their IDs, or a guard with --guard, or use --state rejected.',
      );
    }
    if (origin !== undefined && state === undefined) {
      throw new TillsyncError('usage', '--origin needs --state rejected.');
    }
    return withServices(call, async ({ services: { outbox } }) => {
      const which = guard === undefined ? state && { state, origin } : { guard };
      if (which !== undefined) {
        const discarded = await outbox.discardAll(which, call.cli.who);
        return { json: { discarded }, text: `${counted(discarded, 'change')} discarded.\n` };
      }
      return decideEach(call, ids, async (changeId) => {
        await outbox.discard(changeId, call.cli.who);
        return `Change ${changeId} was discarded.`;
      });
    });
  },
});

const release = command({
  description: 'Send changes on hold',
  examples: ['outbox release 1204 1207', 'outbox release --guard missing-share', 'outbox release --all'],
  argument: ['[changes...]', 'IDs as in `outbox list --state held`'],
  options: {
    '--guard <guard>': choice('Every change that this guard holds', GUARDS),
    '--all': 'Every change on hold',
  },
  async run(call) {
    const { options, argument: words } = call;
    const ways = [words.length > 0, options.guard !== undefined, options.all === true].filter(Boolean);
    if (ways.length !== 1) {
      throw new TillsyncError('usage', 'Name changes by their ids, or a guard with --guard, or take --all.');
    }
    const ids = changeIds(words);
    return withServices(call, async ({ services: { outbox } }) => {
      if (ids.length > 0) {
        return decideEach(call, ids, async (changeId) => {
          await outbox.release({ changeId }, call.cli.who);
          return `Change ${changeId} was released.`;
        });
      }
      const released = await outbox.release({ guard: options.guard ?? null }, call.cli.who);
      return { json: { released }, text: `${counted(released, 'change')} released.\n` };
    });
  },
});

const undo = command({
  description: 'Restore the values that a batch replaced',
  examples: [
    'outbox undo --file stock.csv --dry-run',
    'outbox undo --reference night-count --branch B1',
    'outbox undo --since 2026-03-01T18:30 --force',
  ],
  options: {
    '--file <name>': 'Changes from the file with this name',
    '--reference <text>': 'Changes with this reference',
    '--since <time>': 'Changes from this day or time on (example: 2026-03-01T18:30)',
    '--branch <id>': 'Only stock of this branch (either ID)',
    '--force': 'Also overwrite values changed since',
    '--dry-run': 'Show what would be sent; send nothing',
  },
  more: '\nAn earlier count is sent with the orders it contained. Exit code 3 if some values were left unchanged.',
  run: (call) =>
    withServices(call, async ({ services, config }) => {
      const { file, reference, since: day, branch, force } = call.options;
      if (file === undefined && reference === undefined && day === undefined) {
        throw new TillsyncError('usage', 'Name the hand-over with --file, --reference or --since.');
      }
      const since = instant('--since', day, config.orders.timezone);
      const subsidiaryId =
        branch === undefined ? undefined : namedBranch(services.branches, branch).subsidiaryId;
      if (subsidiaryId === null) {
        throw new TillsyncError('usage', 'The configuration does not have the subsidiary_id of this branch.');
      }
      const name = basename(file ?? '');
      const lines = services.outbox.undoLines({
        file: file === undefined ? undefined : name,
        reference,
        since,
        branch: subsidiaryId,
      });
      const chosen = lines.filter(
        ({ verdict }) => verdict === 'undo' || (force === true && verdict === 'changed-since'),
      );
      const what = [
        ...(file === undefined ? [] : [`file ${name}`]),
        ...(reference === undefined ? [] : [`reference ${reference}`]),
        ...(since === undefined ? [] : [`since ${since}`]),
        ...(branch === undefined ? [] : [`branch ${branch}`]),
      ].join(', ');
      const isDone = call.options.dryRun !== true && chosen.length > 0;
      const accepted = isDone ? await services.outbox.undo(chosen, call.cli.who, what) : [];
      const held = accepted.filter(({ state }) => state === 'held').length;
      const left = lines.filter((line) => !chosen.includes(line) && line.verdict !== 'same').length;
      const told = isDone
        ? `${counted(chosen.length, 'earlier value')} handed over.`
        : `${counted(chosen.length, 'earlier value')} would be handed over.`;
      const notes = [
        ...(lines.length === 0 && file !== undefined ? [formatCommands(noneFrom(printable(name)))] : []),
        ...(left > 0 ? [`${left} left alone.`] : []),
        ...(held > 0
          ? [formatCommands(`${held} held for a person: {tillsync} outbox list --state held`)]
          : []),
      ];
      return {
        json: {
          lines: lines.map(({ item: _item, ...line }) => ({
            ...line,
            isChosen: chosen.some(({ changeId }) => changeId === line.changeId),
          })),
          handedOver: accepted.length,
          held,
          left,
        },
        above: `${[told, ...notes].join(' ')}\n`,
        text: lines.length === 0 ? '' : undoTable(lines, force === true),
        exit: left + held > 0 ? EXIT.partial : EXIT.done,
      };
    }),
});

function noneFrom(file: string): string {
  return `Nothing from a file ${file} can be undone. What is held: {tillsync} outbox list --state held. Who handed what over: {tillsync} outbox list; then name it with --reference or --since.`;
}

function undoTable(lines: readonly UndoLine[], force: boolean): string {
  const why = ({ verdict, changedBy }: UndoLine): string => {
    if (verdict === 'undo') return 'handed over';
    if (verdict === 'same') return 'the earlier value is the same';
    if (verdict === 'unknown') return 'left: the earlier value is not known';
    return `${force ? 'handed over, though' : 'left:'} changed since by change ${changedBy}; see --force`;
  };
  return table(lines, {
    FOR: 'target',
    SAID: ({ now }) => valuesText(now),
    BEFORE: ({ before }) => {
      const { asOfSeq: _asOfSeq, ...values } = before ?? {};
      return valuesText(values);
    },
    WHAT: why,
  });
}

export const outbox = group('Review changes for the platform: release, retry, discard or undo', {
  list,
  retry,
  discard,
  release,
  undo,
});
