import type { HandOverCounts } from '../hand-over.ts';
import type { Problem } from '../problems.ts';
import { printable } from './printable.ts';

/** How a whole inventory compares with the mirror. */
export interface InventoryReport {
  /** The one branch that it counts; null: all. */
  branch: string | null;
  different: number;
  unchanged: number;
  /** Stocks of the mirror that it should name. */
  known: number;
  missing: number;
  /** Targets of the first of them. */
  missingSample: string[];
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
    [pending, 'put in line'],
    [held, 'held for a person (tillsync outbox list --state held)'],
    [rejected, 'rejected (tillsync outbox list --state rejected)'],
    [dropped, 'dropped by a person'],
  ] as const;
  const told = ways.filter(([count]) => count > 0).map(([count, way]) => `${count} ${way}`);
  lines.push(told.length === 0 ? 'Nothing was handed over.' : `${told.join(', ')}.`);
  return `${lines.map(printable).join('\n')}\n`;
}

export function itemsLine(items: number, unreadable: number): string {
  return unreadable === 0 ? `${items} items.` : `${items} items, of which ${unreadable} cannot be used.`;
}

export function inventoryLines(inventory: InventoryReport): string[] {
  const { branch, different, unchanged, known, missing, missingSample, hold } = inventory;
  const lines = [`${different} differ from the mirror, ${unchanged} say what it has.`];
  if (missing > 0) {
    const more = missing > missingSample.length ? ', …' : '';
    lines.push(`Not named are ${missing} of ${known} known stocks: ${missingSample.join(', ')}${more}`);
  }
  if (hold !== null) lines.push(`Held for a person: ${hold}`);
  if (hold !== null && branch === null)
    lines.push('If the file counts one branch only, say so with --branch.');
  return lines;
}
