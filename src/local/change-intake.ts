import { setImmediate } from 'node:timers/promises';
import type { ChangeKind, ProductChange, StockChange } from '../domain/change/change.ts';
import type { Candidate } from '../domain/change/target.ts';
import { asTillsyncError } from '../domain/errors.ts';
import { errorBody, statusOf } from './api-error.ts';
import type { BodyItem } from './change-body.ts';

/** Changes of one kind, each well-formed. */
export type ChangeBatch =
  | { kind: 'stock'; changes: readonly StockChange[] }
  | { kind: 'product'; changes: readonly ProductChange[] };

/** What became of one change. */
export interface TakenChange {
  changeId: number;
  state: 'pending' | 'held' | 'rejected';
  /** Why it is held or rejected. */
  message: string | null;
  candidates: readonly Candidate[];
}

/** Takes changes in one transaction, durable when it resolves; one answer for each, in order. */
export type TakeChanges = (batch: ChangeBatch) => Promise<readonly TakenChange[]>;

/** Looks at all changes of a hand-over that comes in several parts, and gives what takes each of its parts. */
export type BeginHandOver = (whole: ChangeBatch) => Promise<TakeChanges>;

/** Items of one transaction: few enough that nothing else waits long for the event loop or the disk. */
const CHUNK = 500;

export interface IntakeAnswer {
  /** JSON text of a `changesAnswer`; with `error` beside it where the rest could not be taken. */
  text: string;
  status: number;
}

/**
 * Takes the good items in transactions of their own and answers for every item. When the disk refuses on the
 * way, what was taken stays taken; the answer has the results up to there and the error.
 */
export async function takeItems(
  kind: ChangeKind,
  items: readonly BodyItem[],
  begin: BeginHandOver,
): Promise<IntakeAnswer> {
  const take = await begin(batchOf(kind, items));
  const tally = { total: items.length, pending: 0, held: 0, rejected: 0 };
  const results: string[] = [];
  const answer = (more: object) =>
    `{"results":[${results.join(',')}],${JSON.stringify({ ...tally, ...more }).slice(1)}`;
  for (let start = 0; start < items.length; start += CHUNK) {
    const chunk = items.slice(start, start + CHUNK);
    let taken: readonly TakenChange[];
    try {
      taken = await takeGood(kind, chunk, take);
    } catch (thrown) {
      const error = asTillsyncError(thrown);
      if (start === 0) throw error;
      const { code } = error;
      return { text: answer(partly(error, start)), status: statusOf(code) };
    }
    results.push(resultsText(chunk, taken, tally));
    await setImmediate();
  }
  return { text: answer({}), status: tally.rejected > 0 ? 207 : 200 };
}

function partly(thrown: unknown, start: number): object {
  const error = asTillsyncError(thrown);
  const { code, hint } = errorBody(error).error;
  const why = code === 'internal' ? 'The request could not be handled to its end.' : error.message;
  return {
    error: { code, message: `${why} The items before index ${start} were taken, the others not.`, hint },
  };
}

function takeGood(kind: ChangeKind, chunk: readonly BodyItem[], take: TakeChanges) {
  const batch = batchOf(kind, chunk);
  return batch.changes.length === 0 ? [] : take(batch);
}

function batchOf(kind: ChangeKind, items: readonly BodyItem[]): ChangeBatch {
  const changes = items.flatMap((item) => ('change' in item ? [item.change] : []));
  return kind === 'stock'
    ? { kind, changes: changes as StockChange[] }
    : { kind, changes: changes as ProductChange[] };
}

function resultsText(
  chunk: readonly BodyItem[],
  taken: readonly TakenChange[],
  tally: Record<TakenChange['state'], number>,
): string {
  let next = 0;
  const results = chunk.map((item) => {
    const place = item.line === null ? { index: item.index } : { index: item.index, line: item.line };
    if ('fault' in item) {
      tally.rejected += 1;
      const { code, column, message } = item.fault;
      return { ...place, state: 'rejected', code, ...(column === null ? {} : { column }), message };
    }
    const { changeId, state, message, candidates } = answerOf(taken, next++);
    tally[state] += 1;
    return {
      ...place,
      state,
      changeId,
      ...(message === null ? {} : { message }),
      ...(candidates.length === 0 ? {} : { candidates }),
    };
  });
  return JSON.stringify(results).slice(1, -1);
}

function answerOf(taken: readonly TakenChange[], at: number): TakenChange {
  const answer = taken[at];
  if (!answer) throw new TypeError('A change was taken without an answer.');
  return answer;
}
