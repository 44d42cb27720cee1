import { createReadStream, openSync } from 'node:fs';
import path from 'node:path';
import type * as z from 'zod';
import type { change, changesAnswer } from '../api/change-schemas.ts';
import type { InventoryReport, InventoryRow } from '../app/inventory.ts';
import type { CatalogMapping } from '../catalog/product.ts';
import { counted, formatCommands, sameCommandWithSudo, TillsyncError } from '../core/errors.ts';
import type { Change, SourceLine, SubmittedChange } from '../outbox/intake/change.ts';
import { type FileFormat, readChangeFile } from '../outbox/intake/change-file.ts';
import type { DecimalSign } from '../outbox/intake/csv.ts';
import type { Preview, Verdict } from '../outbox/intake/full-inventory-plan.ts';
import { type Row, sameArticle } from '../outbox/intake/same-article.ts';
import { BATCH_ITEMS_MAX } from '../platform/platform.ts';
import { aborted, type Cli, EXIT, printable } from './cli.ts';
import { type Call, choice, command, group, type Result, type Values, withServices } from './command.ts';
import { type DaemonClient, refusedBy, throughDaemon } from './daemon-client.ts';
import { productSteps } from './diff.ts';
import { addressText, valuesText } from './outbox.ts';
import { Progress } from './progress.ts';
import { type Counts, entryProblem, handOver, type Problem, placeOf, tellProblems } from './submit.ts';
import { table } from './table.ts';

const FORMATS: readonly FileFormat[] = ['csv', 'json', 'ndjson'];
const BY_EXTENSION: Readonly<Record<string, FileFormat>> = {
  '.csv': 'csv',
  '.tsv': 'csv',
  '.json': 'json',
  '.ndjson': 'ndjson',
  '.jsonl': 'ndjson',
};

/**
 * Opens the input. Must be called before this process becomes another user, who may not be permitted to read the file.
 * Throws `usage` if the input cannot be opened.
 */
function openInput({ stdin }: Cli, file: string): AsyncIterable<string | Uint8Array> {
  if (file === '-' && stdin.isTTY) {
    throw new TillsyncError('usage', 'Standard input is a terminal, so there is nothing to read from it.', {
      hint: 'Redirect a file into it, or name the file.',
    });
  }
  if (file === '-') return stdin;
  try {
    return createReadStream(file, { fd: openSync(file, 'r') });
  } catch (error) {
    throw unreadable(file, error);
  }
}

/** Yields the chunks of a file. Throws `usage` if the file cannot be read, and `aborted` when the signal aborts. */
async function* bytesOf(
  source: AsyncIterable<string | Uint8Array>,
  file: string,
  signal: AbortSignal,
): AsyncGenerator<Uint8Array> {
  const stopped = aborted(signal).then(() => {
    throw new TillsyncError('aborted', 'Stopped while reading. Nothing was taken.');
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

type Kind = 'stock' | 'product';

const INPUT_OPTIONS = {
  '--format <format>': choice('Format of the file (default: from its extension or first character)', FORMATS),
  '--decimal <sign>': choice<DecimalSign>('Decimal sign of CSV numbers; the other may group thousands', [
    'point',
    'comma',
  ]),
  '--dry-run': 'only show what would be sent, and why',
  '--wait': 'stay until each change is settled; where no daemon runs, send them',
};

const INVENTORY_OPTIONS = {
  '--full':
    'the file counts everything: only what differs from the mirror or from your last count is handed over',
  '--missing <what>': choice('With --full: keep or zero stock not in the file (default: keep)', [
    'keep',
    'zero',
  ]),
  '--rows <rule>': choice<'sum'>('Add up several rows of one article (default: reject them)', ['sum']),
  '--branch <id>': 'the branch of every line that names none, and with --full the one it counts',
  '--counted-at <time>': 'Time of the count, for lines without one (example: 2026-11-28T09:55:00-03:00)',
};

/** Options of `push`. `push products` has only INPUT_OPTIONS. */
type PushOptions = Values<typeof INPUT_OPTIONS> & Partial<Values<typeof INVENTORY_OPTIONS>>;

/** Submits the changes in a file; with `--dry-run`, shows what would happen to them. */
async function pushFile(call: Call<PushOptions, string>, kind: Kind): Promise<Result> {
  const { cli, options, argument: file } = call;
  const { dryRun, wait, full, missing } = options;
  if (dryRun && wait) {
    throw new TillsyncError('usage', '--dry-run sends nothing, so there is nothing to --wait for.');
  }
  if (missing !== undefined && !full) {
    throw new TillsyncError(
      'usage',
      '--missing says what becomes of what a whole inventory lacks: give --full too.',
    );
  }
  const source = openInput(cli, file);
  const guest = throughDaemon(call);
  if (guest) return pushThrough(call, kind, source, guest.client);
  return withServices(call, async (tools) => {
    const { previewChanges } = await import('../outbox/intake/full-inventory-plan.ts');
    const { chosenBranch, inventoryReport, wholeInventory } = await import('../app/inventory.ts');
    const { services, progress } = tools;
    const branch = chosenBranch(services, options.branch, '--branch');
    const read = await readFile(call, kind, source, progress);
    const items = read.length;
    const named = read.map((row) =>
      'change' in row ? ({ ...row, change: branch.named(row.change) } as Row) : row,
    );
    const rows = services.outbox.dated(named);
    if (dryRun) await services.outbox.catchUp();
    const how = { rows: options.rows, names: 'command' } as const;
    const asked = { branch: options.branch, chosen: branch, missing, ...how };
    const sweep = { ...tools.call, ...sweepSteps(progress) };
    const whole = full ? await wholeInventory(services, rows as InventoryRow[], asked, sweep) : undefined;
    const plan = await whole?.plan();
    const inventory = whole && plan && inventoryReport(plan, whole, missing);
    const single = plan ? [] : await services.outbox.oneRowEach(rows, { kind, ...how });
    const faults = plan ? [...rows.filter((row) => 'fault' in row), ...plan.refused] : single;
    const problems = problemsOf(faults);
    const changes: readonly Line[] = plan?.changes ?? single.filter((row): row is Line => 'change' in row);
    const hold = plan?.hold;
    progress.end();
    tellProblems(cli, problems);
    if (dryRun) {
      const previews = await previewChanges(services, changes, hold);
      return previewResult(previews, { items, problems, inventory });
    }
    const done = await handOver(cli, tools, changes, {
      wait,
      hold,
      file: nameOf(file),
    });
    progress.end();
    tellProblems(cli, done.problems);
    const all = [...problems, ...done.problems];
    const addedUp = changes.reduce((sum, { added = [] }) => sum + added.length, 0);
    const unreadable = problems.length;
    const report = { kind, items, unreadable, addedUp, inventory, ...done.counts, problems: all };
    return {
      json: report,
      text: pushText(report),
      exit: all.length > 0 || inventory?.catalogFault != null ? EXIT.partial : EXIT.done,
    };
  });
}

/** Returns the name of a file under which its changes can be undone. */
function nameOf(file: string): string {
  return file === '-' ? 'standard input' : path.basename(file);
}

type Line = SourceLine &
  Change & { reference?: string | null; countedAt?: string | null; added?: readonly SourceLine[] };

/** Returns the problems of faulty rows, in the order of the file. */
function problemsOf(rows: readonly Row[]): Problem[] {
  const faults = rows.filter((row) => 'fault' in row).sort((a, b) => a.index - b.index);
  return faults.map(problemOf);
}

/** Reads the items of a file. Throws `usage` if the file has no items. */
async function readFile(
  call: Call<PushOptions, string>,
  kind: Kind,
  source: AsyncIterable<string | Uint8Array>,
  progress: Progress,
): Promise<Row[]> {
  const { cli, argument: file, options } = call;
  const { countedAt } = options;
  const rows: Row[] = [];
  for await (const some of itemsOf(kind, bytesOf(source, file, cli.signal), call)) {
    for (const item of some) {
      const isDated = 'fault' in item || countedAt === undefined;
      rows.push(isDated ? item : { ...item, countedAt: item.countedAt ?? countedAt });
    }
    progress.count('items read', rows.length);
  }
  if (rows.length === 0) throw new TillsyncError('usage', `There is no item in ${file}.`);
  return rows;
}

/** Submits the file through the running tillsync, for a user who may not write the service's files. */
async function pushThrough(
  call: Call<PushOptions, string>,
  kind: Kind,
  source: AsyncIterable<string | Uint8Array>,
  client: DaemonClient,
): Promise<Result> {
  const { cli, options, argument: file } = call;
  const progress = new Progress(cli);
  const rows = await readFile(call, kind, source, progress);
  const items = rows.length;
  const problems = problemsOf(rows);
  const lines = rows.filter((row): row is Line => 'change' in row);
  // An unreadable item is sent as null. So the other items keep their index, and a whole inventory is known to be
  // incomplete.
  const body: unknown[] = Array.from({ length: items }, () => null);
  for (const { index, change, reference, countedAt } of lines) {
    body[index] = { ...change, ...(countedAt && { counted_at: countedAt }), ...(reference && { reference }) };
  }
  const query = new URLSearchParams({ file: nameOf(file) });
  for (const name of ['full', 'dryRun', 'branch', 'missing', 'rows'] as const) {
    if (options[name]) query.set(name, String(options[name]));
  }
  progress.step('the running tillsync takes it');
  const answer = await client.post(`/${kind === 'stock' ? 'stock' : 'products'}?${query}`, body);
  if (answer.status === 413) {
    throw new TillsyncError('usage', answer.body.error.message, { hint: `Run: ${sameCommandWithSudo()}` });
  }
  refusedBy(answer);
  const { results: all, inventory, error } = answer.body as z.output<typeof changesAnswer>;
  const told = new Set(problems.map(({ index }) => index));
  const results = all.filter(({ index }) => !told.has(index));
  const lineAt = new Map(lines.map((line) => [line.index, line]));
  progress.end();
  tellProblems(cli, problems);
  if (options.dryRun) {
    const previews = results.flatMap(({ index, unnamed, preview }) => {
      const line = lineAt.get(index) ?? unnamedLine(index, unnamed ?? '', preview?.target ?? '');
      return preview ? [{ line, ...preview }] : [];
    });
    return previewResult(previews, { items, problems, inventory });
  }
  const counts: Counts = { pending: 0, held: 0, rejected: 0, done: 0, discarded: 0, superseded: 0 };
  const found: Problem[] = [];
  let addedUp = 0;
  const changeIds = new Set<number>();
  for (const { index, unnamed, state, changeId, message, candidates, code, rows: same } of results) {
    if (changeId !== undefined && options.rows === 'sum') addedUp += changeIds.has(changeId) ? 1 : 0;
    if (changeId !== undefined) changeIds.add(changeId);
    const place = lineAt.get(index) ?? unnamedLine(index, unnamed ?? '', '');
    const settled = options.wait && state === 'pending' ? await outcomeOf(cli, client, changeId) : undefined;
    const problem = settled && entryProblem(place, settled);
    if (problem) found.push(problem);
    if (settled || state === 'pending') counts[problem?.state ?? (settled ? 'done' : 'pending')] += 1;
    else {
      counts[state] += 1;
      const named = candidates === undefined ? {} : { candidates: candidates as readonly CatalogMapping[] };
      const id = changeId === undefined ? {} : { changeId };
      // The request had no lines, so the message of the API cannot name them.
      const group =
        kind === 'stock' && code === 'same-article' ? same?.flatMap((i) => rows[i] ?? []) : undefined;
      const told = group ? sameArticle(group, options.rows, 'command').message : (message ?? '');
      found.push({ ...placeOf(place), state, ...id, ...(code && { code }), message: told, ...named });
    }
  }
  tellProblems(cli, found);
  // After an error, the items without a result were not accepted.
  if (error) throw new TillsyncError('internal', error.message, { hint: error.hint ?? '' });
  const report = { kind, items, unreadable: problems.length, addedUp, inventory, ...counts };
  return {
    json: { ...report, problems: [...problems, ...found] },
    text: pushText(report),
    exit: problems.length + found.length > 0 || inventory?.catalogFault != null ? EXIT.partial : EXIT.done,
  };
}

const LOOK_EVERY_MS = 250;

/** Waits until a change, or the change that replaced it, is settled or held. */
async function outcomeOf(
  { clock, signal }: Cli,
  client: DaemonClient,
  changeId: number | undefined,
): Promise<z.output<typeof change>> {
  for (;;) {
    const answer = await client.get(`/outbox/${changeId}`);
    refusedBy(answer);
    const last: z.output<typeof change> = answer.body.became ?? answer.body.change;
    if (last.settledAt !== null || last.heldGuard !== null) return last;
    await clock.sleep(LOOK_EVERY_MS, signal);
    if (signal.aborted)
      throw new TillsyncError('aborted', 'Stopped while waiting. What was handed over stays.');
  }
}

/** Returns the line for a stock that the file does not contain. `target` is a text such as `sku:1001@sub-1`. */
function unnamedLine(index: number, unnamed: string, target: string): Line {
  const [, sku = '', subsidiaryId = ''] = /^sku:(.*)@(.*)$/.exec(target) ?? [];
  return { index, line: null, unnamed, kind: 'stock', change: { sku, subsidiaryId, qty: 0 } };
}

function sweepSteps(progress: Progress) {
  return {
    ...productSteps(progress),
    onBusy: () => progress.step('another process is reading the catalogue; waiting until it has ended'),
  };
}

function itemsOf(
  kind: Kind,
  pieces: AsyncIterable<Uint8Array>,
  { cli, options, argument: file }: Call<PushOptions, string>,
): AsyncIterable<(SourceLine & SubmittedChange)[]> {
  const format = options.format ?? BY_EXTENSION[path.extname(file).toLowerCase()];
  const how = {
    ...(format !== undefined && { format }),
    decimal: options.decimal,
    tell: (note: string) => cli.stderr.write(`${printable(note)}\n`),
  };
  return readChangeFile(pieces, kind, how);
}

function problemOf(item: Extract<SourceLine & SubmittedChange, { fault: unknown }>): Problem {
  const { code, column, message } = item.fault;
  return { ...placeOf(item), state: 'rejected', code, ...(column !== null && { column }), message };
}

interface PushReport extends Counts {
  items: number;
  /** Number of items that were unreadable and so were not submitted. */
  unreadable: number;
  /** Number of rows that were added to another row of their article. */
  addedUp: number;
  inventory: InventoryReport | undefined;
}

function pushText(report: PushReport): string {
  const { items, unreadable, addedUp, inventory, pending, held, rejected, done, discarded, superseded } =
    report;
  const lines = [itemsLine(items, unreadable), ...inventoryLines(inventory)];
  if (addedUp > 0) lines.push(`Added ${counted(addedUp, 'row')} to other rows of the same article.`);
  const ways = [
    [done, 'settled'],
    [pending, 'queued'],
    [held, formatCommands('held for a person ({tillsync} outbox list --state held)')],
    [rejected, formatCommands('rejected ({tillsync} outbox list --state rejected)')],
    [discarded, 'discarded by a person'],
    [superseded, 'superseded by a later count'],
  ] as const;
  const told = ways.filter(([count]) => count > 0).map(([count, way]) => `${count} ${way}`);
  lines.push(told.length === 0 ? 'Nothing was handed over.' : `${told.join(', ')}.`);
  return `${lines.map(printable).join('\n')}\n`;
}

function itemsLine(items: number, unreadable: number): string {
  const all = counted(items, 'item');
  return unreadable === 0 ? `${all}.` : `${all}, of which ${unreadable} cannot be used.`;
}

function inventoryLines(inventory: InventoryReport | undefined): string[] {
  if (inventory === undefined) return [];
  const { branch, different, unsure, unchanged, known, missing, missingSample, hold } = inventory;
  const { unknown, unknownSample, catalogFault } = inventory;
  const lines = [`${different} differ from the mirror, ${unchanged} say what it has.`];
  if (unsure > 0) {
    lines.push(
      `${unsure} say what it has, but the platform or your last count may differ, so they are handed over too.`,
    );
  }
  if (unknown > 0) {
    const more = unknown > unknownSample.length ? ', …' : '';
    const passedOver = `Passed over ${counted(unknown, 'line')} for what the catalogue does not have`;
    lines.push(`${passedOver}: ${unknownSample.join(', ')}${more}`);
  }
  if (catalogFault !== null) {
    lines.push(
      `What is new at the platform may be among them, for the catalogue could not be read first: ${catalogFault}`,
    );
  }
  if (missing > 0) {
    const more = missing > missingSample.length ? ', …' : '';
    lines.push(`Not named are ${missing} of ${known} known stocks: ${missingSample.join(', ')}${more}`);
    lines.push(missingLine(inventory));
  }
  if (hold !== null) lines.push(`Held for a person: ${hold}`);
  if (hold !== null && branch === null) {
    lines.push('If the file counts one branch only, say so with --branch.');
  }
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

const VERDICTS: Record<Verdict, string> = {
  send: 'sent',
  read: 'sent, once read',
  unchanged: 'settled',
  held: 'held',
  rejected: 'rejected',
};

/** Returns the result of `push --dry-run`. `calls` is the number of batch calls that would be made. */
function previewResult(
  previews: readonly Preview<SourceLine & Change>[],
  {
    items,
    problems,
    inventory,
  }: { items: number; problems: Problem[]; inventory: InventoryReport | undefined },
): Result {
  const counts: Record<Verdict, number> = { send: 0, unchanged: 0, read: 0, held: 0, rejected: 0 };
  for (const { verdict } of previews) counts[verdict] += 1;
  const { unchanged, held, rejected } = counts;
  const sent = counts.send + counts.read;
  const calls = Math.ceil(sent / BATCH_ITEMS_MAX);
  const changes = previews.map(({ line, target, values, verdict, why }) => ({
    ...placeOf(line),
    target,
    address: addressText(line.change),
    values,
    verdict,
    why: line.unnamed === undefined ? why : `The file does not name it. ${why}`,
  }));
  const text = () => {
    const shown = changes.filter(({ verdict }) => verdict !== 'unchanged');
    const head = [
      itemsLine(items, problems.length),
      ...inventoryLines(inventory),
      `Would be sent: ${sent} in ${calls} ${calls === 1 ? 'call' : 'calls'}. Unchanged ${unchanged}, held ${held}, rejected ${rejected}.`,
    ].join('\n');
    if (shown.length === 0) return `${head}\n`;
    const list = table(
      shown,
      {
        LINE: ({ line, index, unnamed }) => (unnamed === undefined ? (line ?? `[${index}]`) : '-'),
        'WOULD BE': ({ verdict }) => VERDICTS[verdict],
        FOR: 'address',
        VALUES: ({ values }) => valuesText(values),
        WHY: 'why',
      },
      ['LINE'],
    );
    return `${head}\n\n${list}`;
  };
  return {
    json: { items, unreadable: problems.length, ...counts, calls, changes, problems, inventory },
    text,
    exit: problems.length > 0 || rejected > 0 || inventory?.catalogFault != null ? EXIT.partial : EXIT.done,
  };
}

const FILE = ['<file>', 'CSV with a header line, a JSON array, or NDJSON; - is standard input'] as const;

const stock = command({
  description: 'Send stock quantities from a file',
  examples: [
    'push stock counts.csv --wait',
    'push stock inventory.csv --full --missing zero --branch B1 --dry-run',
    'push stock - --format ndjson < counts.ndjson',
  ],
  argument: FILE,
  options: {
    ...INPUT_OPTIONS,
    ...INVENTORY_OPTIONS,
  },
  run: (call) => pushFile(call, 'stock'),
});

const products = command({
  description: 'Send product changes from a file',
  examples: ['push products prices.csv --wait', 'push products - --dry-run < changes.json'],
  argument: FILE,
  options: INPUT_OPTIONS,
  run: (call) => pushFile(call, 'product'),
});

export const push = group('Send stock or prices from a file', { stock, products });
