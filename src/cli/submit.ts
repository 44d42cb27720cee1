import type { Services } from '../app/services.ts';
import { RUNNING } from '../app/storage.ts';
import type { CatalogMapping } from '../catalog/product.ts';
import { TillsyncError, typedWords } from '../core/errors.ts';
import { mayBeThousands, parsePlainDecimal } from '../core/values.ts';
import {
  type Change,
  type ChangeKind,
  type OutboxEntry,
  readChange,
  type SourceLine,
  type SubmittedChange,
} from '../outbox/intake/change.ts';
import type { GuardReason } from '../outbox/intake/guards.ts';
import { type Cli, EXIT, printable } from './cli.ts';
import { type Call, type CommandTools, type Result, withServices } from './command.ts';

/** An item that was rejected, held or discarded, with its line or index. */
export interface Problem {
  /** Index of the item, from 0. */
  index: number;
  /** Line of the item, from 1; left out for a JSON array. */
  line?: number;
  /** Stock that the file does not contain and that is set to zero. Its `index` follows the last item's. */
  unnamed?: string;
  state: 'rejected' | 'held' | 'discarded' | 'superseded';
  /** Id of the change in the outbox; left out for an unreadable item. */
  changeId?: number;
  /** Why an item was unreadable, as a code of `ChangeFault`. */
  code?: string;
  column?: string;
  message: string;
  candidates?: readonly CatalogMapping[];
}

/** Returns the position of an item, in the form of a problem's fields. */
export function placeOf({ index, line, unnamed }: SourceLine): Pick<Problem, 'index' | 'line' | 'unnamed'> {
  if (unnamed !== undefined) return { index, unnamed };
  return line === null ? { index } : { index, line };
}

/** Returns the problem of a change for a person; undefined if it has none. */
export function entryProblem(
  place: SourceLine,
  entry: Pick<OutboxEntry, 'state' | 'changeId' | 'message'> & { heldGuard: string | null },
): Problem | undefined {
  const { state, heldGuard, changeId } = entry;
  const told = { ...placeOf(place), changeId, message: entry.message ?? '' };
  if (state === 'rejected') return { ...told, state };
  if (state === 'pending' && heldGuard !== null) return { ...told, state: 'held' };
  return state === 'superseded' ? { ...told, state: 'discarded' } : undefined;
}

/** Writes each problem to standard error, such as `line 7: qty "x" is not a number.` */
export function tellProblems(cli: Pick<Cli, 'stderr'>, problems: readonly Problem[]): void {
  for (const { index, line, unnamed, state, message } of problems) {
    const where = unnamed ?? (line === undefined ? `index ${index}` : `line ${line}`);
    const how = state === 'rejected' ? '' : `${state}: `;
    cli.stderr.write(`${printable(`${where}: ${how}${message}`)}\n`);
  }
}

/**
 * Number of changes by outcome. `done` occurs only after a wait. `discarded` means that a person discarded the change
 * meanwhile, `superseded` that a count which was made later is there already.
 */
export type Counts = Record<'pending' | 'held' | 'rejected' | 'done' | 'discarded' | 'superseded', number>;

/**
 * Queues changes durably; with `wait`, also waits until each change is settled. `file` is the name of the file that
 * the changes are from. `changeIds` are in the order of `changes`; several changes may get the same id.
 */
export async function handOver(
  cli: Cli,
  tools: CommandTools,
  changes: readonly (SourceLine & SubmittedChange)[],
  { wait, hold, file }: { wait: boolean | undefined; hold?: GuardReason | undefined; file?: string },
): Promise<{ counts: Counts; problems: Problem[]; changeIds: number[] }> {
  const { services, progress } = tools;
  const accepted = await services.outbox.submitMany(changes, 'cli', {
    origin: file === undefined ? cli.who : `${cli.who}, ${file}`,
    hold,
    onProgress: (done, total) => progress.count('changes queued', done, total),
    makeRoom: async ({ message }, taken) => {
      progress.note(`${message} The rest follows then.`);
      await settled(
        cli,
        tools,
        taken.filter(({ state }) => state === 'pending').map(({ changeId }) => changeId),
      );
    },
  });
  const counts: Counts = { pending: 0, held: 0, rejected: 0, done: 0, discarded: 0, superseded: 0 };
  const problems: Problem[] = [];
  const waiting: { place: SourceLine; changeId: number }[] = [];
  for (const [i, { changeId, state, message, candidates }] of accepted.entries()) {
    const place = changes[i] as SourceLine;
    if (state === 'pending' && wait) waiting.push({ place, changeId });
    else counts[state] += 1;
    if (state === 'pending') continue;
    const named = candidates.length === 0 ? {} : { candidates };
    problems.push({ ...placeOf(place), state, changeId, message: message ?? '', ...named });
  }
  const entries = await settled(
    cli,
    tools,
    waiting.map(({ changeId }) => changeId),
  );
  for (const { place, changeId } of waiting) {
    const entry = entries.get(changeId);
    const problem = entry && entryProblem(place, entry);
    counts[problem?.state ?? 'done'] += 1;
    if (problem) problems.push(problem);
  }
  if (counts.pending > 0 && !services.state.leases.isHeld(RUNNING)) {
    progress.note(
      'tillsync is not running: it sends the queued changes when it runs again. To send them now: --wait',
    );
  }
  return { counts, problems, changeIds: accepted.map(({ changeId }) => changeId) };
}

async function settled(
  { clock, random }: Cli,
  { services, config, progress, call, log }: CommandTools,
  changeIds: readonly number[],
): Promise<ReadonlyMap<number, OutboxEntry>> {
  if (changeIds.length === 0) return new Map();
  const { sendUntilSettled } = await import('../app/outbox-sender.ts');
  const mayCall = () => services.platform.tokens.mayCall();
  return sendUntilSettled({ services, config, clock, random, log, mayCall }, changeIds, {
    ...call,
    onProgress: (settled, total) => progress.count('changes settled', settled, total),
    onAlone: () => progress.note('No daemon is sending, so this command does.'),
    onTrouble: (message) => progress.note(message),
    onCatalog: (done, total) => progress.count('products', done, total ?? undefined),
  });
}

/** Description of `--wait` for a command that submits one change. */
export const SETTLE = 'Wait until every change is settled; without a running service, send them';

/**
 * Returns a typed number. Ambiguous text, and text that is no number, stays text, so that the later check reports it.
 */
export function typedNumber(text: string | undefined): number | string | undefined {
  return text === undefined || mayBeThousands(text) ? text : (parsePlainDecimal(text) ?? text);
}

/** Returns a typed `true` or `false`. Any other text stays text, so that the later check reports it. */
export function typedBoolean(text: string | undefined): boolean | string | undefined {
  if (text === 'true') return true;
  return text === 'false' ? false : text;
}

/** Returns a sentence about the pieces of a stock change that the safety stock holds back; '' if there are none. */
function keptBackOf({ stores }: Services, changeId: number | null): string {
  const kept = changeId === null ? undefined : stores.read(({ safety }) => safety.ofChange(changeId));
  return kept
    ? ` The safety stock of ${kept.safetyQty} is kept back, so no more than ${kept.offeredQty} are offered.`
    : '';
}

/** Submits one typed change. Throws `usage` if the change is invalid. */
export async function handOverOne(
  call: Call<{ wait: boolean | undefined }>,
  kind: ChangeKind,
  typed: Record<string, unknown>,
): Promise<Result> {
  const given = Object.entries(typed).filter(([, value]) => value !== undefined);
  const reading = readChange(kind, Object.fromEntries(given));
  if ('fault' in reading) {
    throw new TillsyncError('usage', `${reading.fault.message} Nothing was handed over.`);
  }
  const change: SourceLine & SubmittedChange & Change = { index: 0, line: null, ...reading };
  return withServices(call, async (tools) => {
    const { wait } = call.options;
    const { counts, problems, changeIds } = await handOver(call.cli, tools, [change], { wait });
    const [problem] = problems;
    const changeId = changeIds[0] ?? null;
    const state = problem?.state ?? (counts.done > 0 ? 'done' : 'pending');
    const message = problem?.message ?? null;
    const sentence = {
      done: `Change ${changeId} is settled: the platform has it.`,
      pending: `Change ${changeId} is queued.`,
      held: `Change ${changeId} is held: ${message} Let it go with: ${typedWords().tillsync} outbox release ${changeId}`,
      rejected: `Change ${changeId} was rejected: ${message}`,
      discarded: `Change ${changeId} was discarded: ${message}`,
      superseded: `Change ${changeId} was superseded: ${message}`,
    }[state];
    const offer =
      kind === 'stock' && state !== 'rejected' && state !== 'superseded'
        ? keptBackOf(tools.services, changeId)
        : '';
    const told = `${printable(`${sentence}${offer}`)}\n`;
    return {
      json: { changeId, state, message, candidates: problem?.candidates ?? [] },
      ...(problem ? { above: told, exit: EXIT.partial } : { text: told }),
    };
  });
}
