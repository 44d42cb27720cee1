import type { HandedOver } from '../daemon/changes/change-desk.ts';
import type { ProductChange, StockChange } from '../domain/change/change.ts';
import type { Hold } from '../domain/change/guard-rails.ts';
import type { NamedChange } from '../domain/change/resolve-change.ts';
import type { ItemPlace } from '../domain/change-file/raw-item.ts';
import type { Cli } from './cli.ts';
import { type Problem, placeOf, problemOf } from './problems.ts';
import type { CommandTools } from './with-parts.ts';

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
  const { sendUntilSettled } = await import('../daemon/changes/send-until-settled.ts');
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
