import { ADDRESS_KEYS, type ChangeBody, type ChangeKind } from './change.ts';

/** Fields that all skus of a product share (document, "Product level fields"). */
const SHARED_FIELDS = ['name', 'description', 'show'] as const;

type Fields = Record<string, unknown>;

/** The newer change over the older one of the same target: each field's last value, and the newer address. */
export function mergeBodies<T extends ChangeBody>(older: T, newer: T): T {
  const merged: Fields = { ...older };
  for (const key of ADDRESS_KEYS) delete merged[key];
  return Object.assign(merged, newer) as T;
}

/**
 * What is left of an older change when a newer one has said its word: without the fields that the newer one
 * sets. `scope` is `all` for the same target, `shared` for another sku of the same product, where a price is
 * each sku's own. undefined: nothing is left of it.
 */
export function withoutOverruled<T extends ChangeBody>(
  older: T,
  newer: ChangeBody,
  scope: 'all' | 'shared',
): T | undefined {
  const rest: Fields = { ...older };
  const fields = scope === 'shared' ? SHARED_FIELDS : valueKeys(newer);
  for (const field of fields) if (Object.hasOwn(newer, field)) delete rest[field];
  return valueKeys(rest).length === 0 ? undefined : (rest as T);
}

/** A change that may hold values of several hand-overs, each with the number of its own. */
export interface Versioned {
  body: ChangeBody;
  /** By field; numbers rise with time. */
  versions: Readonly<Record<string, number>>;
}

/** Two changes of one target of which neither need be newer as a whole: each field's newest value. */
export function mergeVersioned(a: Versioned, b: Versioned): Versioned {
  const [older, newer] = newestIn(a) > newestIn(b) ? [b, a] : [a, b];
  const body = mergeBodies(older.body, newer.body) as Fields;
  const versions: Record<string, number> = { ...older.versions, ...newer.versions };
  for (const field of valueKeys(older.body)) {
    if ((older.versions[field] ?? 0) <= (newer.versions[field] ?? 0)) continue;
    body[field] = (older.body as Fields)[field];
    versions[field] = older.versions[field] ?? 0;
  }
  return { body: body as ChangeBody, versions };
}

/**
 * What is left of a change beside another one: without the fields of which the other has a newer value. `scope` as
 * in `withoutOverruled`. undefined: nothing.
 */
export function withoutNewer(
  change: Versioned,
  other: Versioned,
  scope: 'all' | 'shared',
): ChangeBody | undefined {
  const newer: Fields = {};
  for (const field of valueKeys(other.body)) {
    if ((other.versions[field] ?? 0) > (change.versions[field] ?? 0)) newer[field] = true;
  }
  return withoutOverruled(change.body, newer as ChangeBody, scope);
}

/** `withoutNewer` beside a change for another sku of the same product. */
export function withoutNewerShared(change: Versioned, other: Versioned): ChangeBody | undefined {
  return withoutNewer(change, other, 'shared');
}

function newestIn({ body, versions }: Versioned): number {
  return Math.max(0, ...valueKeys(body).map((field) => versions[field] ?? 0));
}

/** The keys of a body that carry values, not its address. */
export function valueKeys(body: object): string[] {
  return Object.keys(body).filter((key) => !(ADDRESS_KEYS as readonly string[]).includes(key));
}

/** Whether two skus of one product could overrule each other with this body. */
export function hasSharedFields(kind: ChangeKind, body: object): boolean {
  return kind === 'product' && SHARED_FIELDS.some((field) => Object.hasOwn(body, field));
}
