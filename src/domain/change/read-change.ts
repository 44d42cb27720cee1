import { mayBeThousands } from '../decimal.ts';
import { jsonText } from '../json/json-text.ts';
import {
  type ChangeFault,
  type ChangeKind,
  type ChangeReading,
  type FaultCode,
  PRODUCT_COLUMNS,
  type ProductChange,
  STOCK_COLUMNS,
  type StockChange,
} from './change.ts';

const COLUMNS: Record<ChangeKind, ReadonlySet<string>> = {
  stock: new Set(STOCK_COLUMNS),
  product: new Set(PRODUCT_COLUMNS),
};

/** Longest id and text that is taken; far above anything real, so that a broken export is named. */
const ID_LENGTH_MAX = 200;
const TEXT_LENGTH_MAX = 100_000;

/** A stock change from what a POS handed over; nothing is rounded, converted or guessed. */
export function readStockChange(value: unknown): ChangeReading<StockChange> {
  const reader = new Reader('stock', value);
  const ids = readIds(reader);
  const qty = reader.number('qty');
  const show = reader.boolean('show');
  const subsidiaryId = reader.id('subsidiaryId');
  const subsidiaryExternalId = reader.id('subsidiaryExternalId');
  if (qty === undefined && !reader.isBad('qty')) {
    reader.fault(
      'nothing-to-change',
      'qty',
      show === undefined
        ? 'qty is missing.'
        : 'qty is missing; the platform takes show only with a quantity.',
    );
  }
  if (reader.faults.length > 0 || qty === undefined) return { fault: join(reader.faults) };
  return {
    change: {
      ...ids,
      qty,
      ...(show === undefined ? {} : { show }),
      ...(subsidiaryId === undefined ? {} : { subsidiaryId }),
      ...(subsidiaryExternalId === undefined ? {} : { subsidiaryExternalId }),
    },
  };
}

/** A product change from what a POS handed over; nothing is rounded, converted or guessed. */
export function readProductChange(value: unknown): ChangeReading<ProductChange> {
  const reader = new Reader('product', value);
  const ids = readIds(reader);
  const price = reader.number('price');
  const name = reader.text('name');
  const description = reader.text('description');
  const show = reader.boolean('show');
  if (name !== undefined && name.trim() === '') reader.fault('bad-value', 'name', 'name is empty.');
  const saysSomething = [price, name, description, show].some((field) => field !== undefined);
  if (!saysSomething && reader.faults.length === 0) {
    reader.fault('nothing-to-change', null, 'None of price, name, description and show is there.');
  }
  if (reader.faults.length > 0) return { fault: join(reader.faults) };
  return {
    change: {
      ...ids,
      ...(price === undefined ? {} : { price }),
      ...(name === undefined ? {} : { name }),
      ...(description === undefined ? {} : { description }),
      ...(show === undefined ? {} : { show }),
    },
  };
}

function readIds(reader: Reader): { externalId?: string; sku?: string } {
  const externalId = reader.id('externalId');
  const sku = reader.sku();
  if (externalId === undefined && sku === undefined && !reader.isBad('externalId') && !reader.isBad('sku')) {
    reader.fault('no-product', null, 'Neither externalId nor sku says which product is meant.');
  }
  return { ...(externalId === undefined ? {} : { externalId }), ...(sku === undefined ? {} : { sku }) };
}

/** Takes the columns of one item one by one and collects what is wrong with them. */
class Reader {
  readonly faults: ChangeFault[] = [];
  readonly #fields: Record<string, unknown>;

  constructor(kind: ChangeKind, value: unknown) {
    if (typeof value !== 'object' || value === null || Array.isArray(value)) {
      this.#fields = {};
      this.fault('not-an-object', null, `${show(value)} is not an object with columns.`);
      return;
    }
    this.#fields = value as Record<string, unknown>;
    for (const column of Object.keys(value)) {
      if (COLUMNS[kind].has(column)) continue;
      const known = [...COLUMNS[kind]].join(', ');
      this.fault('unknown-column', column, `${show(column)} is no column of a ${kind} change (${known}).`);
    }
  }

  fault(code: FaultCode, column: string | null, message: string): void {
    // An item that is no object has nothing else to say.
    if (this.faults[0]?.code !== 'not-an-object') this.faults.push({ code, column, message });
  }

  isBad(column: string): boolean {
    return this.faults.some((fault) => fault.column === column);
  }

  number(column: 'qty' | 'price'): number | undefined {
    const value = this.#take(column);
    if (value === undefined) return undefined;
    if (typeof value !== 'number' || !Number.isFinite(value)) {
      return this.#bad(column, value, whyNoNumber(value));
    }
    if (value < 0) return this.#bad(column, value, 'is negative');
    if (value > Number.MAX_SAFE_INTEGER) return this.#bad(column, value, 'is too large to be kept exactly');
    return value === 0 ? 0 : value;
  }

  boolean(column: 'show'): boolean | undefined {
    const value = this.#take(column);
    if (value === undefined || typeof value === 'boolean') return value;
    return this.#bad(column, value, 'is neither true nor false');
  }

  text(column: 'name' | 'description'): string | undefined {
    const value = this.#take(column);
    if (value === undefined) return undefined;
    if (typeof value !== 'string') return this.#bad(column, value, 'is not a text');
    if (value.length > TEXT_LENGTH_MAX) return this.#bad(column, value, 'is too long');
    return this.#sound(column, value);
  }

  /** Without the blanks around it, which a CHAR column always has. */
  id(column: 'externalId' | 'subsidiaryId' | 'subsidiaryExternalId'): string | undefined {
    const value = this.#take(column);
    if (value === undefined) return undefined;
    if (typeof value !== 'string') return this.#bad(column, value, 'is not a text; write it in quotes');
    const id = value.trim();
    if (id === '') return this.#bad(column, value, 'is empty');
    if (id.length > ID_LENGTH_MAX) return this.#bad(column, value, 'is too long');
    return this.#sound(column, id);
  }

  /** The platform's sku is a number; as text only its plain digits are taken. */
  sku(): string | undefined {
    const taken = this.#take('sku');
    if (taken === undefined) return undefined;
    const value = typeof taken === 'string' ? taken.trim() : taken;
    const number = typeof value === 'string' && /^(0|[1-9]\d*)$/.test(value) ? Number(value) : value;
    if (typeof number === 'number' && Number.isSafeInteger(number) && number >= 0) return String(number);
    return this.#bad('sku', value, 'is not a whole number that can be kept exactly');
  }

  #take(column: string): unknown {
    const value = Object.hasOwn(this.#fields, column) ? this.#fields[column] : undefined;
    if (value !== null) return value;
    this.fault('bad-value', column, `${column} is null; leave it out to keep it as it is.`);
    return undefined;
  }

  #sound(column: string, value: string): string | undefined {
    if (value.includes('\0')) return this.#bad(column, value, 'contains a NUL character');
    if (value.includes('\uFFFD') || !value.isWellFormed()) {
      this.fault('bad-text', column, `${column} ${show(value)} is not valid UTF-8 text.`);
      return undefined;
    }
    return value;
  }

  #bad(column: string, value: unknown, why: string): undefined {
    this.fault('bad-value', column, `${column} ${show(value)} ${why}.`);
    return undefined;
  }
}

/** A comma is the decimal sign of half the world, and its point may group thousands. */
function whyNoNumber(value: unknown): string {
  const text = typeof value === 'string' ? value.trim() : '';
  if (/^[+-]?\d+,\d+$/.test(text))
    return `is not a number; the decimal sign is a point: ${text.replace(',', '.')}`;
  if (!mayBeThousands(text)) return 'is not a number';
  return `may mean ${text.replace('.', '')} or ${Number(text)}; write ${text.replace('.', '')}, or ${text}0`;
}

function join(faults: ChangeFault[]): ChangeFault {
  const [first = { code: 'bad-value', column: null, message: '' } satisfies ChangeFault] = faults;
  return { ...first, message: faults.map((fault) => fault.message).join(' ') };
}

function show(value: unknown): string {
  if (typeof value === 'number') return String(value);
  const text = jsonText(value) ?? 'a value that is nested too deeply';
  return text.length > 60 ? `${text.slice(0, 57)}…` : text;
}
