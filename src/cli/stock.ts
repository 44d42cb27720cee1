import type { Services } from '../app/services.ts';
import type { Branch } from '../catalog/product.ts';
import { namedBranch } from '../catalog/product.ts';
import { loadConfig } from '../config/config.ts';
import { isBranch } from '../config/roles.ts';
import { counted, TillsyncError } from '../core/errors.ts';
import { type LedgerStock, type SafetyRule, safetyName } from '../outbox/ledger/stock-ledger.ts';
import { EXIT, printable } from './cli.ts';
import {
  type Call,
  command,
  group,
  mandatory,
  type Result,
  sourceOf,
  spokenFaults,
  withReaders,
  withServices,
} from './command.ts';
import { explanationText } from './order.ts';
import { speaker } from './speech.ts';
import { handOverOne, SETTLE, typedBoolean, typedNumber } from './submit.ts';
import { table } from './table.ts';

const set = command({
  description: 'Set the quantity of a product in a branch',
  examples: [
    'stock set --external-id A-1001 --qty 5 --wait',
    'stock set --sku 1001 --branch B1 --qty 0 --show false',
  ],
  options: {
    '--external-id <id>': "The product's POS ID",
    '--sku <sku>': "The product's SKU",
    '--qty <number>': mandatory('Counted quantity (example: 5 or 2.5)'),
    '--show <true|false>': 'Visibility in the branch (default: unchanged)',
    '--branch <id>': 'Branch, if several have the product (either ID)',
    '--subsidiary-id <id>': 'Branch by its subsidiary_id, configured or not',
    '--subsidiary-external-id <id>': 'Branch by its external ID',
    '--counted-at <time>': 'Time of the count, if not now (example: 2026-11-28T09:55:00-03:00)',
    '--wait': SETTLE,
  },
  async run(call) {
    const { externalId, sku, qty, show, branch, countedAt, ...ids } = call.options;
    let { subsidiaryId, subsidiaryExternalId } = ids;
    if (branch !== undefined) {
      if (subsidiaryId !== undefined || subsidiaryExternalId !== undefined) {
        throw new TillsyncError(
          'usage',
          'Name the branch once: with --branch, or with one of the other two.',
        );
      }
      const named = await configuredBranch(call, branch);
      subsidiaryId = named.subsidiaryId ?? undefined;
      subsidiaryExternalId = subsidiaryId === undefined ? (named.externalId ?? undefined) : undefined;
    }
    const values = { qty: typedNumber(qty), show: typedBoolean(show) };
    const typed = { externalId, sku, ...values, subsidiaryId, subsidiaryExternalId, counted_at: countedAt };
    return handOverOne(call, 'stock', typed);
  },
});

async function configuredBranch(call: Call, name: string): Promise<Branch> {
  const { configuredBranches } = await import('../app/read-only-services.ts');
  const config = loadConfig(sourceOf(call));
  if (!isBranch(config) || name === config.link.branch) return namedBranch(configuredBranches(config), name);
  // At a branch, only the mirror's catalogue has the subsidiary_id of the branch.
  return withReaders(call, ({ mirror }) => namedBranch(configuredBranches(config, mirror), name));
}

const safety = command({
  description: 'Show or set safety stock, which is never offered online',
  examples: [
    'stock safety',
    'stock safety 1001 3',
    'stock safety 1001 2.5 --branch B1',
    'stock safety 1001 --remove',
  ],
  argument: ['[sku-and-quantity...]', 'SKU and units never to offer; without units, show the setting'],
  options: {
    '--branch <id>': 'Only in this branch (either ID)',
    '--remove': "Remove the SKU's setting, so that the configuration applies again",
  },
  async run(call) {
    const { options, argument } = call;
    const [sku, quantity, ...others] = argument;
    const isRight = options.remove ? sku !== undefined && quantity === undefined : others.length === 0;
    if (!isRight)
      throw new TillsyncError('usage', 'Give a sku and a quantity, or a sku and --remove, or nothing.');
    const isShown = sku === undefined || (quantity === undefined && !options.remove);
    if (!isShown && isBranch(loadConfig(sourceOf(call)))) {
      throw new TillsyncError('usage', 'This is a branch: only its hub keeps stock back.', {
        hint: 'Run the command at the hub.',
      });
    }
    const branch = options.branch === undefined ? undefined : await configuredBranch(call, options.branch);
    if (branch && (sku === undefined || branch.subsidiaryId === null)) {
      throw new TillsyncError(
        'usage',
        'Name a sku, and a branch of which the configuration has the subsidiary_id.',
        {
          hint: 'What is kept back of every product of a branch stands in the configuration: safety in [[branches]].',
        },
      );
    }
    const subsidiaryId = branch?.subsidiaryId ?? null;
    if (isShown) return shownSafety(call, sku, subsidiaryId);
    return changedSafety(call, sku, subsidiaryId, options.remove ? null : safetyQty(quantity));
  },
});

const forget = command({
  description: "Delete old POS counts, so the platform's stock stays",
  examples: [
    'stock forget --all-differing --dry-run',
    'stock forget --all-differing --branch B1',
    'stock forget --sku 1001',
  ],
  options: {
    '--sku <sku>': 'Counts of this SKU',
    '--all-differing': 'All counts that differ from the platform, as in `sync diff stock`',
    '--branch <id>': 'Only in this branch (either ID)',
    '--dry-run': 'Show what would be deleted; delete nothing',
  },
  more: '\nUse it for products that the POS no longer counts. Nothing is sent, and the next count applies as usual.\nExit code 3 if a count was left because it is being sent.',
  async run(call) {
    const { sku, allDiffering, branch: name, dryRun } = call.options;
    if ((sku === undefined) === (allDiffering !== true)) {
      throw new TillsyncError('usage', 'Name a sku with --sku, or say --all-differing.');
    }
    if (isBranch(loadConfig(sourceOf(call)))) {
      throw new TillsyncError('usage', 'This is a branch: only its hub compares counts with the platform.', {
        hint: 'Run the command at the hub, with --branch.',
      });
    }
    const branch = name === undefined ? undefined : await configuredBranch(call, name);
    if (branch?.subsidiaryId === null) {
      throw new TillsyncError('usage', 'The configuration does not have the subsidiary_id of this branch.');
    }
    return withServices(call, async ({ services }) => {
      const chosen = services.stores.read(({ ledger, differences }) => {
        const all = sku === undefined ? differences.stocks() : ledger.ofSku(sku);
        return all.filter(({ subsidiaryId }) => !branch || subsidiaryId === branch.subsidiaryId);
      });
      if (chosen.length === 0) {
        const none = sku === undefined ? 'No count differs' : `No count of sku ${sku} is known`;
        throw new TillsyncError(
          'not-found',
          `${none}${name === undefined ? '' : ` in branch ${name}`}. Nothing was changed.`,
          {
            hint: 'See where the two sides differ with: {tillsync} sync diff stock',
          },
        );
      }
      return forgotten(call, services, chosen, dryRun === true);
    });
  },
});

const explain = command({
  description: 'Explain why a stock has its quantity',
  examples: ['stock explain 1001', 'stock explain 1001 --branch B1 --json'],
  argument: ['<sku>', "The product's SKU"],
  options: { '--branch <id>': 'Only in this branch (either ID)' },
  async run(call) {
    const { argument: sku, options } = call;
    const branch = options.branch === undefined ? undefined : await configuredBranch(call, options.branch);
    const shown = withReaders(call, async ({ mirror, branches }, config) => {
      const { readStores } = await import('../app/read-only-services.ts');
      const { explainStocks } = await import('../health/explain.ts');
      const { clock } = call.cli;
      const { timezone } = config.orders;
      const stocks = readStores(mirror, config, clock).read(({ db, ledger }) =>
        explainStocks(db, { sku, of: branch, branches: branches(), ledger }),
      );
      if (stocks.length === 0) {
        throw new TillsyncError('not-found', `The mirror has no stock of sku ${sku}.`, {
          hint: 'See the skus of a product, with: {tillsync} product show PRODUCT',
        });
      }
      const say = speaker(config, clock);
      const text = stocks.map(
        (each) => `${say(`sku ${sku} in ${each.subsidiaryId}`)}\n${explanationText(each, timezone, say)}`,
      );
      return { json: { stocks }, text: text.join('\n') };
    });
    return spokenFaults(call, shown);
  },
});

async function forgotten(
  call: Call,
  services: Services,
  chosen: readonly LedgerStock[],
  isDry: boolean,
): Promise<Result> {
  const isFree = ({ callId }: LedgerStock) => callId === null;
  const done = isDry
    ? chosen.filter(isFree)
    : await services.stores.write(({ ledger, audit }) => {
        const gone = chosen.filter((stock) => ledger.forget(stock));
        for (const { sku, subsidiaryId, countedQty, expectedQty } of gone) {
          const detail = `counted ${countedQty}, the platform has ${expectedQty ?? 'an unknown number'}`;
          const subject = safetyName({ sku, subsidiaryId });
          audit.note({ who: call.cli.who, action: 'stock.forget', subject, detail });
        }
        return gone;
      });
  const stocks = done.map(({ sku, subsidiaryId, countedQty, wantedQty, expectedQty }) => ({
    sku,
    subsidiaryId,
    counted: countedQty,
    wanted: wantedQty,
    platform: expectedQty,
  }));
  const left = chosen.length - done.length;
  const columns = {
    SKU: 'sku',
    BRANCH: 'subsidiaryId',
    COUNTED: 'counted',
    WANTED: 'wanted',
    PLATFORM: ({ platform }: (typeof stocks)[number]) => platform ?? '?',
  } as const;
  const what = `${counted(stocks.length, 'count')} ${isDry ? 'would be ' : ''}forgotten: what the platform has stands.`;
  return {
    json: { stocks, left },
    above: `${what}${left > 0 ? ` ${left} left alone: on the way to the platform.` : ''}\n`,
    text: table(stocks, columns, ['COUNTED', 'WANTED', 'PLATFORM']),
    exit: left > 0 ? EXIT.partial : EXIT.done,
  };
}

function safetyQty(text: string | undefined): number {
  const qty = typedNumber(text);
  if (typeof qty === 'number' && qty >= 0 && qty <= SAFETY_MAX) return qty;
  throw new TillsyncError(
    'usage',
    `Quantity: found "${text}"; allowed: a number from 0 to ${SAFETY_MAX}, such as 3 or 2.5.`,
  );
}

/** Largest safety stock, as for `stock.safety` in the configuration. */
const SAFETY_MAX = 1_000_000;

/** Shows the safety stock rules of the configuration and of the mirror. */
function shownSafety(call: Call, sku: string | undefined, subsidiaryId: string | null): Promise<Result> {
  return withReaders(call, async ({ mirror }, config) => {
    const { configuredSafety, readStores } = await import('../app/read-only-services.ts');
    const [typed, stocks] = readStores(mirror, config, call.cli.clock).read(({ safety, ledger }) => [
      safety.list().filter((rule) => rule.sku !== null),
      sku === undefined ? [] : ledger.ofSku(sku),
    ]);
    const all = [
      ...configuredSafety(config).map((rule) => ({ ...rule, from: 'configuration' })),
      ...typed.map((rule) => ({ ...rule, from: 'command' })),
    ];
    const isMeant = (one: string | null, named: string | null) =>
      named === null || one === null || one === named;
    const rules = all.filter(
      (rule) => isMeant(rule.sku, sku ?? null) && isMeant(rule.subsidiaryId, subsidiaryId),
    );
    const counted = stocks.filter((each) => isMeant(each.subsidiaryId, subsidiaryId)).map(offered);
    const columns = {
      SKU: (rule: SafetyRule) => rule.sku ?? 'all',
      BRANCH: (rule: SafetyRule) => rule.subsidiaryId ?? 'all',
      'KEPT BACK': 'qty',
      FROM: 'from',
    } as const;
    return {
      json: { rules, stocks: counted },
      ...(isBranch(config) &&
        rules.length > 0 && { above: 'At a branch none of this holds: set it at the hub.\n' }),
      text: rules.length === 0 ? 'Nothing is kept back.\n' : table(rules, columns, ['KEPT BACK']),
      ...(counted.length > 0 && { below: offeredText(counted) }),
    };
  });
}

function changedSafety(
  call: Call,
  sku: string,
  subsidiaryId: string | null,
  qty: number | null,
): Promise<Result> {
  const whose = safetyName({ sku, subsidiaryId });
  return withServices(call, async ({ services }) => {
    const stocks = await services.stores.write(({ safety, ledger, lookup, audit }) => {
      if (qty !== null && lookup.isComplete && lookup.productOf(sku) === undefined) {
        throw new TillsyncError(
          'not-found',
          `The mirror has no product with sku ${sku}. Nothing was changed.`,
          {
            hint: 'Read the catalogue, if the product is new: {tillsync} sync catalog',
          },
        );
      }
      if (qty !== null) safety.set({ sku, subsidiaryId, qty });
      else if (!safety.remove({ sku, subsidiaryId })) {
        throw new TillsyncError('not-found', `Nothing was set for ${whose}. Nothing was changed.`, {
          hint: 'See what is kept back with: {tillsync} stock safety',
        });
      }
      const detail = qty === null ? 'removed' : `${qty} kept back`;
      audit.note({ who: call.cli.who, action: 'stock.safety', subject: whose, detail });
      const all = ledger.ofSku(sku);
      return all.filter((each) => subsidiaryId === null || each.subsidiaryId === subsidiaryId).map(offered);
    });
    services.outbox.queued();
    const done = qty === null ? `Nothing is set for ${whose} any more.` : `Of ${whose} ${qty} are kept back.`;
    const none = 'It was not counted yet, so nothing is sent now.\n';
    const text = stocks.length === 0 ? none : offeredText(stocks);
    return { json: { sku, subsidiaryId, qty, stocks }, text: `${printable(done)}\n${text}` };
  });
}

/** Returns a counted stock with the names that the command prints. */
function offered({ sku, subsidiaryId, countedQty, reservedQty, safetyQty: safety, wantedQty }: LedgerStock) {
  return { sku, subsidiaryId, counted: countedQty, reserved: reservedQty, safety, offered: wantedQty };
}

function offeredText(stocks: readonly ReturnType<typeof offered>[]): string {
  const columns = {
    SKU: 'sku',
    BRANCH: 'subsidiaryId',
    COUNTED: 'counted',
    'SOLD SINCE': 'reserved',
    'KEPT BACK': 'safety',
    OFFERED: 'offered',
  } as const;
  return table(stocks, columns, ['COUNTED', 'SOLD SINCE', 'KEPT BACK', 'OFFERED']);
}

export const stock = group('Set or explain stock; manage safety stock', { set, explain, safety, forget });
