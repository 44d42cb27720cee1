import type { Command } from 'commander';
import { TillsyncError, typedWords } from '../core/errors.ts';
import { mayBeThousands, parsePlainDecimal } from '../core/values.ts';
import {
  type ProductChange,
  readProductChange,
  readStockChange,
  type StockChange,
} from '../outbox/change.ts';
import {
  type Cli,
  EXIT,
  type GlobalOptions,
  type JsonOption,
  newResultCommand,
  printable,
  writeJson,
} from './cli.ts';
import { handOver } from './hand-over.ts';
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

interface ProductSetOptions extends SingleOptions {
  externalId?: string;
  sku?: string;
  price?: string;
  name?: string;
  description?: string;
  show?: string;
}

/** `product setProduct`: price of a sku; name, description and visibility of its product. */
export function productSetCommand(cli: Cli): Command {
  return newResultCommand('set', 'Hand over a price, texts or the visibility of one product', [
    'product setProduct --sku 1001 --price 4990 --wait',
    'product setProduct --external-id A-1001 --description "" --show false',
  ])
    .option('--external-id <id>', 'integration id of the product')
    .option('--sku <sku>', 'sku of the product')
    .option('--price <number>', 'price of the sku, such as 4990 or 12.5')
    .option('--name <text>', 'name, shared by all skus of the product')
    .option('--description <text>', 'description, shared by all skus; an empty one clears it')
    .option('--show <true|false>', 'visibility of the whole product')
    .option('--wait', 'stay until it is settled; where no daemon runs, send it')
    .action((_options, command: Command) => setProduct(cli, command.optsWithGlobals()));
}

function setProduct(cli: Cli, options: ProductSetOptions): Promise<void> {
  const { externalId, sku, price, name, description, show } = options;
  return handOverOne(
    cli,
    'product',
    { externalId, sku, price: typedNumber(price), name, description, show: typedBoolean(show) },
    options,
  );
}

interface StockSetOptions extends SingleOptions {
  externalId?: string;
  sku?: string;
  qty: string;
  show?: string;
  subsidiaryId?: string;
  subsidiaryExternalId?: string;
  branch?: string;
}

/** `stock setStock`: one quantity in one branch. */
export function stockSetCommand(cli: Cli): Command {
  return newResultCommand('set', 'Hand over the quantity of one product in one branch', [
    'stock setStock --external-id A-1001 --qty 5 --wait',
    'stock setStock --sku 1001 --branch B1 --qty 0 --show false',
  ])
    .option('--external-id <id>', 'integration id of the product')
    .option('--sku <sku>', 'sku of the product')
    .requiredOption('--qty <number>', 'quantity as counted, such as 5 or 2.5')
    .option('--show <true|false>', 'stock visibility in the branch; left as it is without it')
    .option('--branch <id>', 'the configured branch, by either of its ids, where the product is in several')
    .option('--subsidiary-id <id>', 'the branch by its subsidiary_id, configured or not')
    .option('--subsidiary-external-id <id>', 'the branch by its external id')
    .option('--wait', 'stay until it is settled; where no daemon runs, send it')
    .action((_options, command: Command) => setStock(cli, command.optsWithGlobals()));
}

async function setStock(cli: Cli, options: StockSetOptions): Promise<void> {
  const { externalId, sku, qty, show, branch } = options;
  const named = branch === undefined ? options : await branchNamed(cli, options, branch);
  const { subsidiaryId, subsidiaryExternalId } = named;
  await handOverOne(
    cli,
    'stock',
    {
      externalId,
      sku,
      qty: typedNumber(qty),
      show: typedBoolean(show),
      subsidiaryId,
      subsidiaryExternalId,
    },
    options,
  );
}

/** The ids under which a change names a configured branch. Throws `usage` for one that is not configured. */
async function branchNamed(cli: Cli, options: StockSetOptions, name: string) {
  if (options.subsidiaryId !== undefined || options.subsidiaryExternalId !== undefined) {
    throw new TillsyncError('usage', 'Name the branch once: with --branch, or with one of the other two.');
  }
  const { loadConfig } = await import('../config/config.ts');
  const { configuredBranches } = await import('../app/readers.ts');
  const { namedBranch } = await import('../app/sweep-now.ts');
  const config = loadConfig({ file: options.config, env: cli.env });
  const { subsidiaryId, externalId } = namedBranch(configuredBranches(config), name);
  return subsidiaryId === null
    ? { subsidiaryId: undefined, subsidiaryExternalId: externalId ?? undefined }
    : { subsidiaryId, subsidiaryExternalId: undefined };
}
