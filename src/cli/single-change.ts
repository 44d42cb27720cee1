import type { ProductChange, StockChange } from '../domain/change/change.ts';
import { readProductChange, readStockChange } from '../domain/change/read-change.ts';
import { mayBeThousands, parsePlainDecimal } from '../domain/decimal.ts';
import { TillsyncError } from '../domain/errors.ts';
import { typedWords } from '../domain/installation.ts';
import type { Cli } from './cli.ts';
import { EXIT } from './exit-code.ts';
import { handOver } from './hand-over.ts';
import type { GlobalOptions, JsonOption } from './new-command.ts';
import { writeJson } from './output.ts';
import { printable } from './texts/printable.ts';
import { withParts } from './with-parts.ts';

/** A number as typed; text that is none, or that may mean two, stays text, for the check to name. */
export function typedNumber(text: string | undefined): number | string | undefined {
  return text === undefined || mayBeThousands(text) ? text : (parsePlainDecimal(text) ?? text);
}

/** `true` or `false` as typed; anything else stays text, for the check to name. */
export function typedBoolean(text: string | undefined): boolean | string | undefined {
  if (text === 'true') return true;
  return text === 'false' ? false : text;
}

export interface SingleOptions extends GlobalOptions, JsonOption {
  wait?: boolean;
}

/** Hands over one change that was typed. Throws `usage` when it is none. */
export async function handOverOne(
  cli: Cli,
  kind: 'stock' | 'product',
  typed: Record<string, unknown>,
  options: SingleOptions,
): Promise<void> {
  const said = Object.fromEntries(Object.entries(typed).filter(([, value]) => value !== undefined));
  const place = { index: 0, line: null };
  const named =
    kind === 'stock'
      ? { ...place, kind, change: checked<StockChange>(readStockChange(said)) }
      : { ...place, kind, change: checked<ProductChange>(readProductChange(said)) };
  await withParts(cli, options, async (tools) => {
    const { counts, problems, changeIds } = await handOver(cli, tools, [named], {
      wait: options.wait ?? false,
    });
    tools.progress.end();
    const [problem] = problems;
    const changeId = changeIds[0] ?? null;
    const state = problem?.state ?? (counts.done > 0 ? 'done' : 'pending');
    const message = problem?.message ?? null;
    const candidates = problem?.candidates ?? [];
    if (problem) cli.endWith(EXIT.partial);
    if (options.json) return writeJson(cli, { changeId, state, message, candidates });
    const sentence = {
      done: `Change ${changeId} is settled: the platform has it.`,
      pending: `Change ${changeId} is queued.`,
      held: `Change ${changeId} is held: ${message} Let it go with: ${typedWords().tillsync} outbox release ${changeId}`,
      rejected: `Change ${changeId} was rejected: ${message}`,
      dropped: `Change ${changeId} was dropped: ${message}`,
    }[state];
    (problem ? cli.stderr : cli.stdout).write(`${printable(sentence)}\n`);
  });
}

function checked<T>(reading: { change: T } | { fault: { message: string } }): T {
  if ('change' in reading) return reading.change;
  throw new TillsyncError('usage', `${reading.fault.message} Nothing was handed over.`);
}
