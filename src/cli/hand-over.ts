import type { HandedOver } from '../app/change-desk.ts';
import type { OutboxEntry } from '../app/readers.ts';
import { asTyped, counted } from '../core/errors.ts';
import {
  ADDRESS_KEYS,
  type Candidate,
  type ItemPlace,
  type ProductChange,
  type StockChange,
} from '../outbox/change.ts';
import type { Hold } from '../outbox/guard-rails.ts';
import type { NamedChange } from '../outbox/resolve.ts';
import { type Cli, printable } from './cli.ts';
import { table, timeTitle, when } from './table.ts';
import type { CommandTools } from './with-parts.ts';

/** An item that was not taken, is held, or did not arrive; named by its line or index. */
export interface Problem {
  /** Counts the items from 0. */
  index: number;
  /** Counts the lines from 1; not there in a JSON array. */
  line?: number;
  /** What the file does not name and shall be zero; `index` is then after its last item. */
  unnamed?: string;
  state: 'rejected' | 'held' | 'dropped';
  /** Of the outbox; not there for an item that could not be read. */
  changeId?: number;
  /** Why an item could not be read, as a word of a closed set. */
  code?: string;
  column?: string;
  message: string;
  candidates?: readonly Candidate[];
}

/** Where an item stands, as a document names it. */
export function placeOf({ index, line, unnamed }: ItemPlace): Pick<Problem, 'index' | 'line' | 'unnamed'> {
  if (unnamed !== undefined) return { index, unnamed };
  return line === null ? { index } : { index, line };
}

/** What a person should know of a settled change; undefined when all is well. */
export function problemOf(place: ItemPlace, entry: OutboxEntry): Problem | undefined {
  const { state, heldGuard, changeId } = entry;
  const message = entry.message ?? '';
  const told = { ...placeOf(place), changeId, message };
  if (state === 'rejected') return { ...told, state };
  if (state === 'pending' && heldGuard !== null) return { ...told, state: 'held' };
  return state === 'superseded' ? { ...told, state: 'dropped' } : undefined;
}

/** Names each on standard error: `line 7: qty "x" is not a number.` */
export function tellProblems(cli: Pick<Cli, 'stderr'>, problems: readonly Problem[]): void {
  for (const { index, line, unnamed, state, message } of problems) {
    const where = unnamed ?? (line === undefined ? `index ${index}` : `line ${line}`);
    const how = state === 'rejected' ? '' : `${state}: `;
    cli.stderr.write(`${printable(`${where}: ${how}${message}`)}\n`);
  }
}

/** A well-formed change with its place in what was handed over. */
export type PlacedChange = ItemPlace & NamedChange;

/** How many of a hand-over went which way; `done` only after waiting. */
export interface HandOverCounts {
  pending: number;
  held: number;
  rejected: number;
  done: number;
  /** Given up by a person meanwhile. */
  dropped: number;
}

export interface HandOver {
  counts: HandOverCounts;
  problems: Problem[];
  /** Of each change, in order; several may share one. */
  changeIds: number[];
}

export interface HandOverOptions {
  wait: boolean;
  hold?: Hold | undefined;
}

/** Puts changes in line, durable when it resolves, and with `wait` stays until each is settled. */
export async function handOver(
  cli: Cli,
  tools: CommandTools,
  changes: readonly PlacedChange[],
  options: HandOverOptions,
): Promise<HandOver> {
  const { parts, progress } = tools;
  const accepted = await parts.changeDesk.takeMany(changes.map(asHandedOver), 'cli', {
    hold: options.hold,
    onProgress: (done, total) => progress.count('changes queued', done, total),
  });
  const result: HandOver = {
    counts: { pending: 0, held: 0, rejected: 0, done: 0, dropped: 0 },
    problems: [],
    changeIds: accepted.map(({ changeId }) => changeId),
  };
  const waiting: { place: ItemPlace; changeId: number }[] = [];
  for (const [i, { changeId, state, message, candidates }] of accepted.entries()) {
    const place = changes[i] as PlacedChange;
    if (state === 'pending' && options.wait) waiting.push({ place, changeId });
    else result.counts[state] += 1;
    if (state === 'pending') continue;
    const named = candidates.length === 0 ? {} : { candidates };
    result.problems.push({ ...placeOf(place), state, changeId, message: message ?? '', ...named });
  }
  if (waiting.length > 0) await waitFor(cli, tools, waiting, result);
  return result;
}

function asHandedOver(change: PlacedChange): HandedOver {
  return change.kind === 'stock'
    ? { kind: 'stock', change: change.change }
    : { kind: 'product', change: change.change };
}

/** A change with its kind, which its reader knew. */
export function placed(
  kind: 'stock' | 'product',
  { index, line, unnamed }: ItemPlace,
  change: StockChange | ProductChange,
): PlacedChange {
  const place = unnamed === undefined ? { index, line } : { index, line, unnamed };
  return kind === 'stock'
    ? { ...place, kind, change: change as StockChange }
    : { ...place, kind, change: change as ProductChange };
}

async function waitFor(
  cli: Cli,
  { parts, config, progress, call, log }: CommandTools,
  waiting: readonly { place: ItemPlace; changeId: number }[],
  result: HandOver,
): Promise<void> {
  const { sendUntilSettled } = await import('../app/sender.ts');
  const { clock, random } = cli;
  const mayCall = () => parts.platform.tokens.describe().state === 'ok';
  const entries = await sendUntilSettled(
    { parts, config, clock, random, log, mayCall },
    waiting.map(({ changeId }) => changeId),
    {
      ...call,
      onProgress: (settled, total) => progress.count('changes settled', settled, total),
      onAlone: () => progress.note('No daemon is sending, so this command does.'),
      onTrouble: (message) => progress.note(message),
      onCatalog: (done, total) => progress.count('products', done, total ?? undefined),
    },
  );
  for (const { place, changeId } of waiting) {
    const entry = entries.get(changeId);
    const problem = entry && problemOf(place, entry);
    result.counts[problem?.state ?? 'done'] += 1;
    if (problem) result.problems.push(problem);
  }
}

/** How a whole inventory compares with the mirror. */
export interface InventoryReport {
  /** The one branch that it counts; null: all. */
  branch: string | null;
  different: number;
  /** Lines that say what the mirror has, which is not sure of it; sent too. */
  unsure: number;
  unchanged: number;
  /** Stocks of the mirror that it should name. */
  known: number;
  missing: number;
  /** Targets of the first of them. */
  missingSample: string[];
  /** How many of those have a quantity other than zero, and what becomes of it. */
  missingNotZero: number;
  missingBecome: 'keep' | 'zero';
  /** Lines that cannot be used or placed, and may be what is missing: nothing goes to zero then. */
  unclear: number;
  /** Why all of it is held. */
  hold: string | null;
}

/** All that `push` tells; with `--json` the document itself. */
export interface PushReport extends HandOverCounts {
  kind: 'stock' | 'product';
  items: number;
  /** Could not be read and were not taken. */
  unreadable: number;
  inventory?: InventoryReport;
  problems: Problem[];
}

export function pushText(report: PushReport): string {
  const { items, unreadable, inventory, pending, held, rejected, done, dropped } = report;
  const lines = [itemsLine(items, unreadable), ...(inventory ? inventoryLines(inventory) : [])];
  const ways = [
    [done, 'settled'],
    [pending, 'queued'],
    [held, asTyped('held for a person ({tillsync} outbox list --state held)')],
    [rejected, asTyped('rejected ({tillsync} outbox list --state rejected)')],
    [dropped, 'dropped by a person'],
  ] as const;
  const told = ways.filter(([count]) => count > 0).map(([count, way]) => `${count} ${way}`);
  lines.push(told.length === 0 ? 'Nothing was handed over.' : `${told.join(', ')}.`);
  return `${lines.map(printable).join('\n')}\n`;
}

export function itemsLine(items: number, unreadable: number): string {
  const all = counted(items, 'item');
  return unreadable === 0 ? `${all}.` : `${all}, of which ${unreadable} cannot be used.`;
}

export function inventoryLines(inventory: InventoryReport): string[] {
  const { branch, different, unsure, unchanged, known, missing, missingSample, hold } = inventory;
  const lines = [`${different} differ from the mirror, ${unchanged} say what it has.`];
  if (unsure > 0) {
    lines.push(
      `${unsure} say what it has, but the platform may have another value by now, so they are sent too.`,
    );
  }
  if (missing > 0) {
    const more = missing > missingSample.length ? ', …' : '';
    lines.push(`Not named are ${missing} of ${known} known stocks: ${missingSample.join(', ')}${more}`);
    lines.push(missingLine(inventory));
  }
  if (hold !== null) lines.push(`Held for a person: ${hold}`);
  if (hold !== null && branch === null)
    lines.push('If the file counts one branch only, say so with --branch.');
  return lines;
}

function missingLine({ missing, missingNotZero, missingBecome, unclear }: InventoryReport): string {
  if (missingNotZero === 0) return 'All of these are 0 already.';
  const some = missingNotZero === missing ? 'They' : `${missingNotZero} of them`;
  if (missingBecome === 'keep') {
    return `${some} keep their quantity and stay on sale. If what is not in the file is sold out: --missing zero`;
  }
  if (unclear === 0) return `${some} go to 0, as --missing zero says.`;
  const lines =
    unclear === 1 ? 'a line that cannot be used or placed' : `${unclear} lines that cannot be used or placed`;
  return `${some} keep their quantity all the same: ${lines} may be what is missing.`;
}

const ADDRESS: ReadonlySet<string> = new Set(ADDRESS_KEYS);

/** What a change says, without its address: `qty 5, show true`. */
export function valuesText(body: object): string {
  return Object.entries(body)
    .filter(([key]) => !ADDRESS.has(key))
    .map(([key, value]) => `${key} ${typeof value === 'string' ? JSON.stringify(value) : String(value)}`)
    .join(', ');
}

/** How a change names its product and branch: `externalId A-1, subsidiaryId sub-1`. */
export function addressText(body: object): string {
  return Object.entries(body)
    .filter(([key]) => ADDRESS.has(key))
    .map(([key, value]) => `${key} ${String(value)}`)
    .join(', ');
}

/** `held` where the change waits for a person. */
export function stateOf({ state, heldGuard }: Pick<OutboxEntry, 'state' | 'heldGuard'>): string {
  return state === 'pending' && heldGuard !== null ? 'held' : state;
}

/** Changes of the outbox for people, times in the company's zone. */
export function outboxTable(entries: readonly OutboxEntry[], timeZone: string): string {
  return table<OutboxEntry>(
    [
      { title: 'CHANGE', cell: (entry) => entry.changeId, align: 'right' },
      { title: 'KIND', cell: (entry) => entry.kind },
      { title: 'STATE', cell: stateOf },
      { title: 'FOR', cell: (entry) => addressText(entry.body) || entry.target },
      { title: 'VALUES', cell: (entry) => valuesText(entry.body) },
      { title: 'TRIES', cell: (entry) => entry.attempts, align: 'right' },
      { title: timeTitle('HANDED OVER', timeZone), cell: (entry) => when(entry.createdAt, timeZone) },
      { title: 'WHY', cell: (entry) => entry.message },
    ],
    entries,
  );
}
