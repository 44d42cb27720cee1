import type { ChangeValues, Preview, Verdict } from '../../daemon/changes/change-preview.ts';
import { BATCH_ITEMS_MAX } from '../../domain/platform/limits.ts';
import type { PlacedChange } from '../hand-over.ts';
import { type Problem, placeOf } from '../problems.ts';
import { addressText, valuesText } from './change-text.ts';
import { type InventoryReport, inventoryLines, itemsLine } from './push-text.ts';
import { table } from './table.ts';

export interface PreviewedChange {
  index: number;
  line?: number;
  unnamed?: string;
  target: string;
  address: string;
  values: ChangeValues;
  verdict: Verdict;
  why: string;
}

/** All that `push --dry-run` tells; with `--json` the document itself. */
export interface PreviewReport extends Record<Verdict, number> {
  items: number;
  unreadable: number;
  /** Batches that would leave. */
  calls: number;
  inventory?: InventoryReport;
  changes: PreviewedChange[];
  problems: Problem[];
}

export function previewReport(
  previews: readonly Preview<PlacedChange>[],
  items: number,
  problems: Problem[],
): PreviewReport {
  const counts: Record<Verdict, number> = { send: 0, unchanged: 0, read: 0, held: 0, rejected: 0 };
  for (const { verdict } of previews) counts[verdict] += 1;
  return {
    items,
    unreadable: problems.length,
    ...counts,
    calls: Math.ceil((counts.send + counts.read) / BATCH_ITEMS_MAX),
    changes: previews.map(({ line, target, values, verdict, why }) => ({
      ...placeOf(line),
      target,
      address: addressText(line.change),
      values,
      verdict,
      why: line.unnamed === undefined ? why : `The file does not name it. ${why}`,
    })),
    problems,
  };
}

export function previewText(report: PreviewReport): string {
  const { items, unreadable, send, read, unchanged, held, rejected, calls, inventory } = report;
  const shown = report.changes.filter(({ verdict }) => verdict !== 'unchanged');
  const head = [
    itemsLine(items, unreadable),
    ...(inventory ? inventoryLines(inventory) : []),
    `Would be sent: ${send + read} in ${calls} ${calls === 1 ? 'call' : 'calls'}. Unchanged ${unchanged}, held ${held}, rejected ${rejected}.`,
  ];
  if (shown.length === 0) return `${head.join('\n')}\n`;
  const list = table<PreviewedChange>(
    [
      {
        title: 'LINE',
        cell: ({ line, index, unnamed }) => (unnamed === undefined ? (line ?? `[${index}]`) : '-'),
        align: 'right',
      },
      { title: 'WOULD BE', cell: ({ verdict }) => WORDS[verdict] },
      { title: 'FOR', cell: ({ address }) => address },
      { title: 'VALUES', cell: ({ values }) => valuesText(values) },
      { title: 'WHY', cell: ({ why }) => why },
    ],
    shown,
  );
  return `${head.join('\n')}\n\n${list}`;
}

const WORDS: Record<Verdict, string> = {
  send: 'sent',
  read: 'sent, once read',
  unchanged: 'settled',
  held: 'held',
  rejected: 'rejected',
};
