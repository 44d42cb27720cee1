import type { OutboxEntry } from '../daemon/reading/read-stores.ts';
import type { Candidate } from '../domain/change/target.ts';
import type { ItemPlace } from '../domain/change-file/raw-item.ts';
import type { Cli } from './cli.ts';
import { printable } from './texts/printable.ts';

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
