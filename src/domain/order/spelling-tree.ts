import { TillsyncError } from '../errors.ts';
import {
  ITEM_SPELLINGS,
  MODIFIER_SPELLINGS,
  OPTION_SPELLINGS,
  ORDER_SPELLINGS,
  type SpellingTable,
} from './order-spellings.ts';
import { SENT_VALUE_READERS } from './sent-value.ts';

/**
 * Further names from the config, tried before the known ones: field of the mirror to names as the source
 * spells them. Fields of items, modifiers and options are written `item.quantity`, `modifier.name`,
 * `option.optionId`.
 */
export type ExtraSpellings = Readonly<Record<string, readonly string[]>>;

/** What one name may be a spelling of. */
export interface SpellingHit {
  /** Place of the field in the tree's `fields`. */
  slot: number;
  /** Lower is better. */
  rank: number;
  read: (value: unknown) => unknown;
}

/** Where one name leads: to values of fields, to names inside the object there, or to both. */
export interface SpellingNode {
  hits: SpellingHit[];
  inside: Map<string, SpellingNode> | undefined;
}

export interface SpellingTree {
  fields: readonly string[];
  /** As many slots as fields, with nothing in them. */
  empty: readonly unknown[];
  names: ReadonlyMap<string, SpellingNode>;
}

/** All tables as trees, so that one walk over a record's own names finds every field. */
export interface OrderSpellings {
  order: SpellingTree;
  item: SpellingTree;
  modifier: SpellingTree;
  option: SpellingTree;
}

const TABLES: Record<keyof OrderSpellings, SpellingTable> = {
  order: ORDER_SPELLINGS,
  item: ITEM_SPELLINGS,
  modifier: MODIFIER_SPELLINGS,
  option: OPTION_SPELLINGS,
};

/** Every field that may get further names in the config. */
export const SPELLABLE_FIELDS: readonly string[] = Object.entries(TABLES).flatMap(([table, spellings]) =>
  Object.keys(spellings).map((field) => (table === 'order' ? field : `${table}.${field}`)),
);

const NONE: ExtraSpellings = {};
const compiled = new WeakMap<ExtraSpellings, OrderSpellings>();

/** The trees, made once for each config. Throws `config-invalid` when `extra` names a field that does not exist. */
export function compileSpellings(extra: ExtraSpellings = NONE): OrderSpellings {
  const known = compiled.get(extra);
  if (known) return known;
  const strange = Object.keys(extra).find((field) => !SPELLABLE_FIELDS.includes(field));
  if (strange !== undefined) {
    throw new TillsyncError('config-invalid', `There is no field "${strange}" to give further names to.`, {
      hint: `Allowed are: ${SPELLABLE_FIELDS.join(', ')}.`,
    });
  }
  const spellings = {
    order: compile('order', extra),
    item: compile('item', extra),
    modifier: compile('modifier', extra),
    option: compile('option', extra),
  };
  compiled.set(extra, spellings);
  return spellings;
}

function compile(table: keyof OrderSpellings, extra: ExtraSpellings): SpellingTree {
  const names = new Map<string, SpellingNode>();
  const fields = Object.keys(TABLES[table]);
  for (const [slot, [kind, ...known]] of Object.values(TABLES[table]).entries()) {
    const field = fields[slot] as string;
    const configured = extra[table === 'order' ? field : `${table}.${field}`] ?? [];
    for (const [rank, path] of [...configured, ...known].entries()) {
      for (const spelling of new Set([path, snakeCase(path)])) {
        const { hits } = nodeAt(names, spelling.split('.'));
        if (!hits.some((hit) => hit.slot === slot)) hits.push({ slot, rank, read: SENT_VALUE_READERS[kind] });
      }
    }
  }
  return { fields, names, empty: fields.map(() => undefined) };
}

function nodeAt(root: Map<string, SpellingNode>, names: string[]): SpellingNode {
  let level = root;
  let node: SpellingNode | undefined;
  for (const name of names) {
    if (node) {
      node.inside ??= new Map();
      level = node.inside;
    }
    node = level.get(name) ?? { hits: [], inside: undefined };
    level.set(name, node);
  }
  return node ?? { hits: [], inside: undefined };
}

function snakeCase(path: string): string {
  return path.replace(/([a-z0-9])([A-Z])/g, '$1_$2').toLowerCase();
}
