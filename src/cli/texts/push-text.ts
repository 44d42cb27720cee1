import { counted } from '../../domain/counted.ts';
import { asTyped } from '../../domain/installation.ts';
import type { HandOverCounts } from '../hand-over.ts';
import type { Problem } from '../problems.ts';
import { printable } from './printable.ts';

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
