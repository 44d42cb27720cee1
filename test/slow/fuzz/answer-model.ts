import type { Delivered } from './lying-transport.ts';

/**
 * What the answer to a PUT says about one item, by the platform's document alone; `open` if it says nothing certain.
 * The model shares no code with the reader under test, so that the two can disagree.
 */
export type Said = 'applied' | 'refused' | 'open';

type Json = Record<string, unknown>;

/** Returns the outcome that the answer states for every item of a PUT, in order. */
export function saidOf(call: Delivered): Said[] {
  const open = call.items.map((): Said => 'open');
  const envelope = parsed(call);
  if (call.status >= 400 && call.status < 500) return wholeRefused(call);
  if (call.status < 200 || call.status > 299 || !isObject(envelope)) return open;
  const success = own(envelope, 'success');
  if (isNo(success)) return wholeRefused(call);
  if (call.isSingle) return isYes(success) ? ['applied'] : open;
  const data = own(envelope, 'data');
  if (!isObject(data)) return open;
  const errors = own(data, 'errors') ?? [];
  if (!Array.isArray(errors)) return open;
  const blamed = new Set<number>();
  let unplaced = 0;
  for (const error of errors) {
    const place = placeOf(error, call.items);
    if (place === undefined) unplaced += 1;
    else blamed.add(place);
  }
  const total = count(own(data, 'total'));
  const isSound =
    unplaced === 0 &&
    (total === undefined || total === call.items.length) &&
    count(own(data, 'updated')) === call.items.length - blamed.size;
  return call.items.map((_, i) => (blamed.has(i) ? 'refused' : isSound ? 'applied' : 'open'));
}

/** Whether the answer of a GET /product shows every readable value of `body`, and at least one. */
export function shows(call: Delivered, body: Json): boolean {
  const envelope = parsed(call);
  if (call.status < 200 || call.status > 299 || !isObject(envelope)) return false;
  const product = own(envelope, 'data');
  if (!isObject(product) || isNo(own(envelope, 'success'))) return false;
  const children = own(product, 'children');
  if (!Array.isArray(children)) return false;
  const named = children.filter(isObject).filter((child) => isNamed(child, body));
  if (named.length === 0) return false;
  if ('qty' in body) return named.some((child) => hasStock(child, body));
  const seen: boolean[] = [];
  if ('price' in body) seen.push(named.some((child) => isSame(own(child, 'price'), body.price)));
  if ('name' in body) seen.push(String(own(product, 'name')) === body.name);
  const show = own(product, 'show');
  if ('show' in body && (isYes(show) || isNo(show))) seen.push(body.show === true ? isYes(show) : isNo(show));
  return seen.length > 0 && seen.every(Boolean);
}

function wholeRefused(call: Delivered): Said[] {
  return call.items.map(() => (call.items.length === 1 ? 'refused' : 'open'));
}

/**
 * Returns the index of the item that an entry of `errors` is about: the entry's index if its ids agree with that item,
 * else the index of the only item with these ids; undefined if there is not exactly one.
 */
function placeOf(error: unknown, items: readonly Json[]): number | undefined {
  if (!isObject(error)) return undefined;
  const ids = (['sku', 'externalId'] as const).flatMap((name) => {
    const value = own(error, name);
    // 1e999 is no id.
    const isId = Number.isFinite(value) || (typeof value === 'string' && (value !== '' || name === 'sku'));
    return isId ? [[name, String(value)] as const] : [];
  });
  const agrees = (item: Json | undefined) =>
    item !== undefined && ids.every(([name, id]) => item[name] === undefined || String(item[name]) === id);
  const index = count(own(error, 'index'));
  if (index !== undefined && Number.isInteger(index) && agrees(items[index])) return index;
  const same = items.flatMap((item, i) =>
    agrees(item) && ids.some(([name]) => item[name] !== undefined) ? [i] : [],
  );
  return same.length === 1 ? same[0] : undefined;
}

function isNamed(child: Json, body: Json): boolean {
  if (body.sku !== undefined) return String(own(child, 'sku')) === String(body.sku);
  return mappingsOf(child, body).length > 0;
}

function mappingsOf(child: Json, body: Json): Json[] {
  const mappings = own(child, 'integrations');
  if (!Array.isArray(mappings)) return [];
  const ids = ['extId', 'productIdPosA', 'productCodePosB'];
  return mappings
    .filter(isObject)
    .filter((mapping) =>
      ids.some((name) => own(mapping, name) != null && String(own(mapping, name)) === body.externalId),
    );
}

function hasStock(child: Json, body: Json): boolean {
  const stocks = own(child, 'stocks');
  if (!Array.isArray(stocks)) return false;
  const branches = mappingsOf(child, body).map((mapping) => String(own(mapping, 'subsidiaryId')));
  return stocks.filter(isObject).some((stock) => {
    const branch = String(own(stock, 'subsidiaryId'));
    const isHere =
      branches.includes(branch) && (body.subsidiaryId === undefined || body.subsidiaryId === branch);
    const show = own(stock, 'show');
    const isHidden = 'show' in body && (body.show === true ? isNo(show) : isYes(show));
    return isHere && !isHidden && isSame(own(stock, 'qty'), body.qty);
  });
}

function parsed(call: Delivered): unknown {
  try {
    return JSON.parse(call.text ?? '');
  } catch {
    return undefined;
  }
}

const isYes = (value: unknown) => [true, 1, '1', 'true'].includes(value as string);
const isNo = (value: unknown) => [false, 0, '0', 'false'].includes(value as string);
const isSame = (sent: unknown, wanted: unknown) =>
  (typeof sent === 'number' || (typeof sent === 'string' && sent !== '')) && Number(sent) === wanted;

function count(value: unknown): number | undefined {
  if (typeof value === 'number' && Number.isFinite(value)) return value;
  return typeof value === 'string' && /^\s*\d+\s*$/.test(value) ? Number(value) : undefined;
}

function isObject(value: unknown): value is Json {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

function own(value: Json, field: string): unknown {
  return Object.hasOwn(value, field) ? value[field] : undefined;
}
