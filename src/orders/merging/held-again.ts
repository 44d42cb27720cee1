import type Database from 'better-sqlite3';
import type { OrderSpellings } from './field-aliases.ts';
import { type WaitingCallback, waitingTogether } from './held-callbacks.ts';
import { goesOnFrom } from './merge.ts';
import { readOrderText } from './order-reader.ts';
import { mergeOrder } from './order-rows.ts';

/**
 * Judges callbacks again that came while polls still decided and wait now, because polls fell silent since. Two that go
 * on from each other are believed, as when they come while polls are silent; those behind them are heard again. Runs in
 * the caller's transaction, and returns the ids of the orders that were changed.
 */
export function judgeHeldAgain(db: Database.Database, spellings: OrderSpellings, nowMs: number): string[] {
  const changed: string[] = [];
  for (const [orderId, waiting] of waitingTogether(db, nowMs)) {
    const at = secondWitness(waiting);
    if (at === -1) continue;
    for (let i = at; i < waiting.length; i++) {
      const { payload: raw, receivedAt } = waiting[i] as WaitingCallback;
      const reading = readOrderText(raw, spellings);
      if ('unreadable' in reading) continue;
      const observation = { source: 'webhook', observedAtMs: Date.parse(receivedAt), raw, reading } as const;
      const heldBefore = i === at ? (waiting[i - 1]?.status ?? null) : null;
      mergeOrder(db, observation, spellings, null, { heldBefore });
    }
    changed.push(orderId);
  }
  return changed;
}

/** Returns whether callbacks wait that `judgeHeldAgain` would believe. */
export function mayJudgeHeldAgain(db: Database.Database, nowMs: number): boolean {
  return [...waitingTogether(db, nowMs).values()].some((waiting) => secondWitness(waiting) !== -1);
}

/** Returns the position of the first callback that goes on from the one before it; -1 if none does. */
function secondWitness(waiting: readonly WaitingCallback[]): number {
  return waiting.findIndex(
    ({ known, status }, i) => i > 0 && goesOnFrom(known, waiting[i - 1]?.status ?? null, status),
  );
}
