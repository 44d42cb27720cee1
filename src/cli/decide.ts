import { hasCode, TillsyncError } from '../domain/errors.ts';
import type { Cli } from './cli.ts';
import { EXIT } from './exit-code.ts';
import type { JsonOption } from './new-command.ts';
import { writeJson } from './output.ts';
import { printable } from './texts/printable.ts';

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
