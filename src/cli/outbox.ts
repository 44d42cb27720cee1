import { type Command, Option } from 'commander';
import type { ChangeDesk } from '../app/change-desk.ts';
import type { OutboxFilter } from '../app/readers.ts';
import { counted, hasCode, TillsyncError } from '../core/errors.ts';
import type { Guard } from '../outbox/guard-rails.ts';
import {
  type Cli,
  EXIT,
  type GlobalOptions,
  type JsonOption,
  newResultCommand,
  printable,
  wholeNumberOption,
  writeJson,
} from './cli.ts';
import { outboxTable, stateOf } from './hand-over.ts';
import { instantOption } from './options.ts';
import { withParts, withReaders } from './with-parts.ts';

/** What became of one change that a person decided about. */
export interface Decision {
  changeId: number;
  ok: boolean;
  message: string;
}

/** Change ids from the command line. Throws `usage` for anything else. */
export function changeIds(words: readonly string[]): number[] {
  return words.map((word) => {
    const id = Number(word);
    if (/^\d+$/.test(word) && Number.isSafeInteger(id) && id > 0) return id;
    throw new TillsyncError(
      'usage',
      `CHANGE: found "${word}"; allowed: ids as in \`{tillsync} outbox list\`.`,
    );
  });
}

/** Decides about each change by itself: one that cannot be decided about takes nothing from the others. */
export async function decideEach(
  cli: Cli,
  options: JsonOption,
  ids: readonly number[],
  decide: (changeId: number) => Promise<string>,
): Promise<void> {
  const decisions: Decision[] = [];
  for (const changeId of ids) {
    if (cli.signal.aborted) break;
    try {
      decisions.push({ changeId, ok: true, message: await decide(changeId) });
    } catch (error) {
      if (!hasCode(error, 'usage', 'not-found')) throw error;
      decisions.push({ changeId, ok: false, message: error.message });
    }
  }
  for (const { ok, message } of decisions) {
    if (!ok) cli.stderr.write(`${printable(message)}\n`);
    else if (!options.json) cli.stdout.write(`${printable(message)}\n`);
  }
  if (options.json) writeJson(cli, { changes: decisions });
  const done = decisions.filter(({ ok }) => ok).length;
  if (done < ids.length) cli.endWith(done === 0 ? EXIT.failed : EXIT.partial);
}

interface OutboxListOptions extends GlobalOptions, JsonOption {
  state?: Exclude<OutboxFilter['state'], undefined>;
  kind?: 'stock' | 'product';
  limit: number;
  before?: number;
  since?: string;
  target?: string;
  reference?: string;
}

const STATES = ['pending', 'held', 'sending', 'done', 'rejected', 'superseded'];

/** `outbox list`: the changes on their way to the platform, and what became of them. */
export function outboxListCommand(cli: Cli): Command {
  return newResultCommand('list', 'List changes for the platform, the newest first', [
    'outbox list --state rejected',
    'outbox list --state held --kind stock --json',
  ])
    .addOption(
      new Option(
        '--state <state>',
        'only in this state; `held` is the part of `pending` that waits for a person',
      ).choices(STATES),
    )
    .addOption(new Option('--kind <kind>', 'only of this kind').choices(['stock', 'product']))
    .option('--limit <n>', 'at most this many', wholeNumberOption('--limit', 1), 20)
    .option('--since <time>', 'handed over on this day or since this time, such as 2026-03-01T18:30')
    .option('--target <text>', 'only for products or branches with this in an id')
    .option('--reference <text>', 'only with this reference, as it was handed over')
    .option('--before <change>', 'only changes with a lower id', wholeNumberOption('--before', 1))
    .action((_options, command: Command) => list(cli, command.optsWithGlobals()));
}

function list(cli: Cli, options: OutboxListOptions): Promise<void> {
  const { state, kind, before, limit, target, reference } = options;
  return withReaders(cli, options, async ({ mirror }, config) => {
    const { readStores } = await import('../app/readers.ts');
    const since = await instantOption('--since', options.since, {
      timeZone: config.orders.timezone,
      end: false,
    });
    const { changes, counts } = readStores(mirror, config, cli.clock).read(({ queries }) => ({
      changes: queries.list({ state, kind, before, limit, since, target, reference }),
      counts: queries.counts(),
    }));
    if (options.json) return writeJson(cli, { counts, changes });
    const { pending, held, sending, rejected } = counts;
    cli.stderr.write(`${pending} waiting, ${held} held, ${sending} being sent, ${rejected} rejected.\n`);
    if (changes.length > 0) cli.stdout.write(outboxTable(changes, config.orders.timezone));
  });
}

interface OutboxRetryOptions extends GlobalOptions, JsonOption {
  all?: boolean;
}

const PAGE = 1000;

/** `outbox retry`: hands rejected changes over once more. */
export function outboxRetryCommand(cli: Cli): Command {
  return newResultCommand('retry', 'Hand rejected changes over once more, as new ones', [
    'outbox retry 1204 1207',
    'outbox retry --all',
  ])
    .argument('[changes...]', 'as in `outbox list --state rejected`')
    .option('--all', 'every rejected change')
    .action((words: string[], _options, command: Command) => retry(cli, words, command.optsWithGlobals()));
}

async function retry(cli: Cli, words: readonly string[], options: OutboxRetryOptions): Promise<void> {
  if ((words.length === 0) === !options.all) {
    throw new TillsyncError('usage', 'Name changes by their ids, or take every rejected one with --all.');
  }
  const named = changeIds(words);
  await withParts(cli, options, async ({ parts: { changeDesk } }) => {
    const ids = options.all ? rejectedIds(changeDesk) : named;
    await decideEach(cli, options, ids, async (changeId) => {
      await changeDesk.retry(changeId);
      const by = changeDesk.get(changeId)?.supersededBy ?? null;
      const next = by === null ? undefined : changeDesk.get(by);
      if (next === undefined) return `Change ${changeId} was handed over again.`;
      if (next.state === 'rejected') throw new TillsyncError('usage', `Change ${by}: ${next.message}`);
      return `Change ${changeId} was handed over again as change ${by}, which is ${stateOf(next)}.`;
    });
  });
}

/** The oldest first, so that the newest value for a target comes last. */
function rejectedIds(desk: ChangeDesk): number[] {
  const ids: number[] = [];
  for (let before: number | undefined; ; ) {
    const page = desk.list({ state: 'rejected', before, limit: PAGE });
    ids.push(...page.map(({ changeId }) => changeId));
    before = page.at(-1)?.changeId;
    if (page.length < PAGE || before === undefined) return ids.reverse();
  }
}

/** `outbox drop`: gives changes up that have not left. */
export function outboxDropCommand(cli: Cli): Command {
  return newResultCommand('drop', 'Give up changes that wait, are held or were rejected', [
    'outbox drop 1204',
    'outbox drop 1204 1207 --json',
  ])
    .argument('<changes...>', 'as in `outbox list`')
    .action((words: string[], _options, command: Command) =>
      drop(cli, changeIds(words), command.optsWithGlobals()),
    );
}

function drop(cli: Cli, ids: readonly number[], options: GlobalOptions & JsonOption): Promise<void> {
  return withParts(cli, options, ({ parts: { changeDesk } }) =>
    decideEach(cli, options, ids, async (changeId) => {
      await changeDesk.drop(changeId);
      return `Change ${changeId} was dropped.`;
    }),
  );
}

interface OutboxReleaseOptions extends GlobalOptions, JsonOption {
  guard?: Guard;
  all?: boolean;
}

/** `outbox release`: lets changes go that a guard rail holds. */
export function outboxReleaseCommand(cli: Cli): Command {
  return newResultCommand('release', 'Let changes go that a guard rail holds for a person', [
    'outbox release 1204 1207',
    'outbox release --guard missing-share',
    'outbox release --all',
  ])
    .argument('[changes...]', 'as in `outbox list --state held`')
    .addOption(
      new Option('--guard <guard>', 'every change that this guard rail holds').choices([
        'zero-items',
        'price-factor',
        'missing-share',
        'restored',
      ]),
    )
    .option('--all', 'every held change')
    .action((words: string[], _options, command: Command) => release(cli, words, command.optsWithGlobals()));
}

async function release(cli: Cli, words: readonly string[], options: OutboxReleaseOptions): Promise<void> {
  const ways = [words.length > 0, options.guard !== undefined, options.all === true].filter(Boolean);
  if (ways.length !== 1) {
    throw new TillsyncError(
      'usage',
      'Name changes by their ids, or a guard rail with --guard, or take --all.',
    );
  }
  const ids = changeIds(words);
  await withParts(cli, options, async ({ parts: { changeDesk } }) => {
    if (ids.length > 0) {
      await decideEach(cli, options, ids, async (changeId) => {
        await changeDesk.release({ changeId });
        return `Change ${changeId} was released.`;
      });
      return;
    }
    const released = await changeDesk.release({ guard: options.guard ?? null });
    if (options.json) writeJson(cli, { released });
    else cli.stdout.write(`${counted(released, 'change')} released.\n`);
  });
}
