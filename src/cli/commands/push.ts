import { type Command, Option } from 'commander';
import type { InventoryPlan } from '../../daemon/changes/inventory-plan.ts';
import type { StockChange } from '../../domain/change/change.ts';
import type { DecimalSign } from '../../domain/change-file/csv-cell.ts';
import type { FileFormat } from '../../domain/change-file/read-change-file.ts';
import { TillsyncError } from '../../domain/errors.ts';
import { FORMATS, type InputItem, openInput, readInput } from '../change-input.ts';
import type { Cli } from '../cli.ts';
import { EXIT } from '../exit-code.ts';
import { handOver, type PlacedChange, placed } from '../hand-over.ts';
import { type GlobalOptions, type JsonOption, newResultCommand } from '../new-command.ts';
import { writeJson } from '../output.ts';
import { type Problem, placeOf, tellProblems } from '../problems.ts';
import { previewReport, previewText } from '../texts/preview-text.ts';
import { type InventoryReport, type PushReport, pushText } from '../texts/push-text.ts';
import { type CommandTools, withParts } from '../with-parts.ts';

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
  const { chosenBranch } = await import('../../daemon/changes/chosen-branch.ts');
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
  const { planInventory } = await import('../../daemon/changes/inventory-plan.ts');
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
  const { previewChanges } = await import('../../daemon/changes/change-preview.ts');
  const { items, problems, changes, plan, options } = run;
  const previews = await previewChanges(tools.parts, changes, plan?.hold);
  const inventory = plan === undefined ? {} : { inventory: inventoryReport(plan, options) };
  const report = { ...previewReport(previews, items.length, problems), ...inventory };
  if (problems.length > 0 || report.rejected > 0) cli.endWith(EXIT.partial);
  if (options.json) writeJson(cli, report);
  else cli.stdout.write(previewText(report));
}
