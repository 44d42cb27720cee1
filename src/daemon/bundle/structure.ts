const DEPTH_MAX = 12;
const KEYS_MAX = 200;
const ITEMS_SHOWN = 2;

/** What a payload looks like, without one value of it: support sees which field is missing or of another type. */
export function structureOf(payload: string | Uint8Array): unknown {
  const text = typeof payload === 'string' ? payload : Buffer.from(payload).toString('utf8');
  try {
    return shapeOf(JSON.parse(text), 0);
  } catch {
    const kind = /^\s*</.test(text) ? 'markup such as HTML' : 'no JSON';
    return `${kind}, ${text.length} characters`;
  }
}

function shapeOf(value: unknown, depth: number): unknown {
  if (value === null || typeof value === 'boolean') return value;
  if (typeof value === 'string') return textShape(value);
  if (typeof value === 'number') return Number.isInteger(value) ? 'whole number' : 'number';
  if (depth > DEPTH_MAX) return 'deeper still';
  if (Array.isArray(value)) {
    const shown = value.slice(0, ITEMS_SHOWN).map((each) => shapeOf(each, depth + 1));
    return value.length > ITEMS_SHOWN ? [...shown, `and ${value.length - ITEMS_SHOWN} more`] : shown;
  }
  const entries = Object.entries(value as object);
  const shown = entries
    .slice(0, KEYS_MAX)
    .map(([key, each], i) => [keyShape(key, i), shapeOf(each, depth + 1)]);
  if (entries.length > KEYS_MAX) shown.push(['…', `${entries.length - KEYS_MAX} more keys`]);
  return Object.fromEntries(shown);
}

function textShape(text: string): string {
  if (text === '') return 'empty text';
  if (/^\d{4}-\d{2}-\d{2}T[\d:.]+(Z|[+-]\d{2}:?\d{2})$/.test(text)) return 'time, ISO 8601';
  if (/^-?\d+(\.\d+)?$/.test(text)) return 'number as text';
  return `text of ${text.length}`;
}

/** Names of fields are short words; anything else is a value that became a key. */
function keyShape(key: string, index: number): string {
  return /^[A-Za-z_$][\w$-]{0,39}$/.test(key) && !/\d{4}/.test(key)
    ? key
    : `key ${index + 1}, of ${key.length}`;
}
