import { createReadStream, openSync } from 'node:fs';
import path from 'node:path';
import { type Command, Option } from 'commander';
import type { ChangeValues, InventoryPlan, Preview, Verdict } from '../app/preview.ts';
import { TillsyncError } from '../core/errors.ts';
import type { ProductChange, StockChange } from '../outbox/change.ts';
import { type FileChange, type FileFormat, readProductFile, readStockFile } from '../outbox/change-file.ts';
import type { DecimalSign } from '../outbox/csv.ts';
import { BATCH_ITEMS_MAX } from '../platform/platform.ts';
import {
  type Cli,
  EXIT,
  type GlobalOptions,
  type JsonOption,
  newResultCommand,
  printable,
  writeJson,
} from './cli.ts';
import {
  addressText,
  handOver,
  type InventoryReport,
  inventoryLines,
  itemsLine,
  type PlacedChange,
  type Problem,
  type PushReport,
  placed,
  placeOf,
  pushText,
  tellProblems,
  valuesText,
} from './hand-over.ts';
import { table } from './table.ts';
import { type CommandTools, withParts } from './with-parts.ts';

export const FORMATS: readonly FileFormat[] = ['csv', 'json', 'ndjson'];

/** One item of a file: a change, or why it is none. */
export type InputItem = FileChange<StockChange | ProductChange>;

export interface ReadInputOptions {
  kind: 'stock' | 'product';
  input: OpenInput;
  /** Found by the file's extension, else by its first character. */
  format?: FileFormat | undefined;
  /** Which sign of a CSV's numbers is the decimal one. */
  decimal?: DecimalSign | undefined;
  onProgress: (items: number) => void;
}

const BY_EXTENSION: Readonly<Record<string, FileFormat>> = {
  '.csv': 'csv',
  '.tsv': 'csv',
  '.json': 'json',
  '.ndjson': 'ndjson',
  '.jsonl': 'ndjson',
};

/** A file that is open, or standard input. */
export interface OpenInput {
  name: string;
  /** undefined: standard input. */
  descriptor: number | undefined;
}

/** Opens what will be read, while this is still the user who named it. Throws `usage` when it cannot be opened. */
export function openInput(cli: Pick<Cli, 'stdin'>, name: string): OpenInput {
  if (name === '-' && cli.stdin.isTTY) {
    throw new TillsyncError('usage', 'Standard input is a terminal, so there is nothing to read from it.', {
      hint: 'Redirect a file into it, or name the file.',
    });
  }
  if (name === '-') return { name, descriptor: undefined };
  try {
    return { name, descriptor: openSync(name, 'r') };
  } catch (error) {
    throw unreadable(name, error);
  }
}

/**
 * Reads a whole file of changes, each item checked by itself. Throws `usage` when nothing of it can be read,
 * `aborted` at the signal.
 */
export async function readInput(cli: Cli, options: ReadInputOptions): Promise<InputItem[]> {
  const { kind, input, onProgress } = options;
  const { name: file, descriptor: fd } = input;
  const format = options.format ?? BY_EXTENSION[path.extname(file).toLowerCase()];
  const how = {
    ...(format !== undefined && { format }),
    decimal: options.decimal,
    tell: (note: string) => cli.stderr.write(`${printable(note)}\n`),
  };
  const source = fd === undefined ? cli.stdin : createReadStream(file, { fd });
  const pieces = bytesOf(source, file, cli.signal);
  const items: InputItem[] = [];
  const readings: AsyncIterable<InputItem[]> =
    kind === 'stock' ? readStockFile(pieces, how) : readProductFile(pieces, how);
  for await (const some of readings) {
    for (const item of some) items.push(item);
    onProgress(items.length);
  }
  return items;
}

async function* bytesOf(
  source: AsyncIterable<string | Uint8Array>,
  file: string,
  signal: AbortSignal,
): AsyncGenerator<Uint8Array> {
  const stopped = new Promise<never>((_, reject) => {
    const stop = () => reject(new TillsyncError('aborted', 'Stopped while reading. Nothing was taken.'));
    if (signal.aborted) stop();
    signal.addEventListener('abort', stop, { once: true });
  });
  stopped.catch(() => {});
  const pieces = source[Symbol.asyncIterator]();
  for (;;) {
    const next = await Promise.race([pieces.next(), stopped]).catch((error: unknown) => {
      throw unreadable(file, error);
    });
    if (next.done) return;
    yield typeof next.value === 'string' ? Buffer.from(next.value) : next.value;
  }
}

function unreadable(file: string, error: unknown): unknown {
  if (error instanceof TillsyncError) return error;
  const code = (error as NodeJS.ErrnoException).code ?? 'unknown reason';
  return new TillsyncError('usage', `${file} cannot be read (${code}). Nothing was taken.`, { cause: error });
}

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

interface PushOptions extends GlobalOptions, JsonOption {
  format?: FileFormat;
  decimal?: DecimalSign;
  branch?: string;
  full?: boolean;
  missing?: 'keep' | 'zero';
  dryRun?: boolean;
  wait?: boolean;
}

/** `push stock`: hands over the quantities of a file. */
export function pushStockCommand(cli: Cli): Command {
  const command = pushCommand(cli, 'stock', 'stock', [
    'push stock counts.csv --wait',
    'push stock inventory.csv --full --missing zero --branch B1 --dry-run',
    'push stock - --format ndjson < counts.ndjson',
  ]);
  return command
    .option('--full', 'the file counts everything: only what differs from the mirror is handed over')
    .addOption(
      new Option(
        '--missing <what>',
        'with --full: known stocks that the file does not name keep their quantity and stay on sale, or go to zero (default: keep)',
      ).choices(['keep', 'zero']),
    )
    .option('--branch <id>', 'the branch of every line that names none, and with --full the one it counts');
}

/** `push products`: hands over the prices, texts and visibilities of a file. */
export function pushProductsCommand(cli: Cli): Command {
  return pushCommand(cli, 'product', 'products', [
    'push products prices.csv --wait',
    'push products - --dry-run < changes.json',
  ]);
}

function pushCommand(cli: Cli, kind: 'stock' | 'product', name: string, examples: string[]): Command {
  const what = kind === 'stock' ? 'stock quantities' : 'product changes';
  return newResultCommand(name, `Hand over the ${what} of a file, each item checked by itself`, examples)
    .argument('<file>', 'CSV with a header line, a JSON array, or NDJSON; - is standard input')
    .addOption(
      new Option('--format <format>', "else by the file's extension or first character").choices(FORMATS),
    )
    .addOption(
      new Option(
        '--decimal <sign>',
        'of CSV: which sign of its numbers is the decimal one; the other may group thousands',
      ).choices(['point', 'comma']),
    )
    .option('--dry-run', 'only show what would be sent, and why')
    .option('--wait', 'stay until each change is settled; where no daemon runs, send them')
    .action((file: string, _options, command: Command) => push(cli, kind, file, command.optsWithGlobals()));
}

async function push(cli: Cli, kind: 'stock' | 'product', file: string, options: PushOptions): Promise<void> {
  if (options.dryRun && options.wait) {
    throw new TillsyncError('usage', '--dry-run sends nothing, so there is nothing to --wait for.');
  }
  if (options.missing !== undefined && !options.full) {
    throw new TillsyncError(
      'usage',
      '--missing says what becomes of what a whole inventory lacks: give --full too.',
    );
  }
  const input = openInput(cli, file);
  await withParts(cli, options, async (tools) => {
    const { progress } = tools;
    const branch = await branchOf(tools, options);
    const items = await readInput(cli, {
      kind,
      input,
      format: options.format,
      decimal: options.decimal,
      onProgress: (count) => progress.count('items read', count),
    });
    if (items.length === 0) throw new TillsyncError('usage', `There is no item in ${file}.`);
    const problems = items.flatMap(faultOf);
    const lines = items.flatMap((item) =>
      'change' in item ? [placed(kind, item, branch.named(item.change))] : [],
    );
    if (options.full || options.dryRun) await tools.parts.changeDesk.catchUp();
    const plan = options.full
      ? await planFull(tools, lines, items.length, { ...branch, missing: options.missing })
      : undefined;
    const changes = plan?.changes ?? lines;
    progress.end();
    tellProblems(cli, problems);
    if (options.dryRun) return await dryRun(cli, tools, { items, problems, changes, plan, options });
    const done = await handOver(cli, tools, changes, { wait: options.wait ?? false, hold: plan?.hold });
    progress.end();
    tellProblems(cli, done.problems);
    const report: PushReport = {
      kind,
      items: items.length,
      unreadable: problems.length,
      ...(plan === undefined ? {} : { inventory: inventoryReport(plan, options) }),
      ...done.counts,
      problems: [...problems, ...done.problems],
    };
    if (report.problems.length > 0) cli.endWith(EXIT.partial);
    if (options.json) writeJson(cli, report);
    else cli.stdout.write(pushText(report));
  });
}

async function branchOf({ parts }: CommandTools, { branch }: PushOptions) {
  const { chosenBranch } = await import('../app/sweep-now.ts');
  return chosenBranch(parts.branches, branch);
}

async function planFull(
  { parts }: CommandTools,
  lines: readonly PlacedChange[],
  items: number,
  {
    subsidiaryIds,
    missing,
  }: { subsidiaryIds: ReadonlySet<string> | undefined; missing: PushOptions['missing'] },
): Promise<InventoryPlan<PlacedChange>> {
  const { planInventory } = await import('../app/preview.ts');
  const counts = lines.flatMap((line) => (line.kind === 'stock' ? [line] : []));
  const zero = (change: StockChange, n: number) => {
    const unnamed = `sku ${change.sku} in ${change.subsidiaryId}`;
    return { index: items + n, line: null, unnamed, kind: 'stock' as const, change };
  };
  const zeroMissing = missing === 'zero' ? zero : undefined;
  return planInventory(parts, counts, { subsidiaryIds, zeroMissing, unreadable: items - lines.length });
}

function faultOf(item: InputItem): Problem[] {
  if (!('fault' in item)) return [];
  const { code, column, message } = item.fault;
  const named = column === null ? {} : { column };
  return [{ ...placeOf(item), state: 'rejected', code, ...named, message }];
}

function inventoryReport(plan: InventoryPlan<unknown>, options: PushOptions): InventoryReport {
  const { changes: _changes, hold, ...counts } = plan;
  return {
    branch: options.branch ?? null,
    ...counts,
    missingBecome: options.missing ?? 'keep',
    hold: hold?.message ?? null,
  };
}

interface DryRun {
  items: readonly InputItem[];
  problems: Problem[];
  changes: readonly PlacedChange[];
  plan: InventoryPlan<PlacedChange> | undefined;
  options: PushOptions;
}

async function dryRun(cli: Cli, tools: CommandTools, run: DryRun): Promise<void> {
  const { previewChanges } = await import('../app/preview.ts');
  const { items, problems, changes, plan, options } = run;
  const previews = await previewChanges(tools.parts, changes, plan?.hold);
  const inventory = plan === undefined ? {} : { inventory: inventoryReport(plan, options) };
  const report = { ...previewReport(previews, items.length, problems), ...inventory };
  if (problems.length > 0 || report.rejected > 0) cli.endWith(EXIT.partial);
  if (options.json) writeJson(cli, report);
  else cli.stdout.write(previewText(report));
}
