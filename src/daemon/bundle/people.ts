import type Database from 'better-sqlite3';

const MASK = '[customer]';
const ORDERS_MAX = 20_000;
const WORD_LENGTH_MIN = 3;

const EMAIL = /[\p{L}\d._%+-]+@[\p{L}\d-]+(?:\.[\p{L}\d-]+)+/gu;
/** With a plus, or with gaps as people write them: a time or an id has neither. */
const PHONE = /\+\d[\d\s().-]{6,}\d|(?<![\d.:T-])\(?\d{2,4}\)?[ ]\d{3,4}[ -]?\d{3,4}(?![\d.:])/g;
const NAMED =
  /(\\*"(?:[\w-]*(?:name|phone|mobile|mail|address|street|comment|details|notes?|instructions|zip|lat|lng|customer|document|rut|dni))\\*"\s*:\s*\\*")((?:[^"\\]|\\(?!\\*"))*)/gi;

/** What the mirror knows of customers, so that it is found in whatever text repeats it. */
const VALUES = `
  SELECT customer_first_name, customer_last_name, customer_email, customer_phone_number, address_address,
    address_street_address, address_details, address_phone_number FROM orders ORDER BY seq DESC LIMIT ${ORDERS_MAX}`;
const COMMENTS = `SELECT comment FROM order_items WHERE comment IS NOT NULL AND comment <> '' LIMIT ${ORDERS_MAX}`;

const TOKEN = /[\p{L}\p{N}]+/gu;

/** For a bundle that may hold them. */
export const EVERYBODY: Pick<PeopleMask, 'text'> = { text: (text) => text };

/** Takes people out of free texts: messages, reasons, log lines. */
export class PeopleMask {
  /** By their first word, in small letters; the longest first, so that an address goes before a street. */
  readonly #values = new Map<string, { start: number; value: string }[]>();

  /** Learns the customers of a mirror. */
  learn(db: Database.Database): void {
    for (const query of [VALUES, COMMENTS]) {
      for (const row of db.prepare<[], unknown[]>(query).raw().iterate()) {
        for (const value of row) this.add(value);
      }
    }
  }

  add(value: unknown): void {
    if (typeof value !== 'string') return;
    const text = value.trim();
    // A house number is no sign of anybody.
    if (text.length < WORD_LENGTH_MIN || /^\d{1,5}$/.test(text)) return;
    for (const form of new Set([text, JSON.stringify(text).slice(1, -1)])) this.#addForm(form.toLowerCase());
  }

  text(text: string): string {
    const told = text.replace(EMAIL, MASK).replace(NAMED, `$1${MASK}`);
    return this.#withoutValues(told).replace(PHONE, MASK);
  }

  #addForm(value: string): void {
    TOKEN.lastIndex = 0;
    const first = TOKEN.exec(value);
    if (!first) return;
    const there = this.#values.get(first[0]) ?? [];
    if (there.some((each) => each.value === value)) return;
    there.push({ start: first.index, value });
    there.sort((a, b) => b.value.length - a.value.length);
    this.#values.set(first[0], there);
  }

  #withoutValues(text: string): string {
    if (this.#values.size === 0) return text;
    const small = text.toLowerCase();
    // Letters that change their length with their case are rare; then the text itself is looked through.
    const where = small.length === text.length ? small : text;
    let told = '';
    let end = 0;
    for (const { 0: token, index } of where.matchAll(TOKEN)) {
      if (index < end) continue;
      const found = this.#values.get(token)?.find(({ start, value }) => stands(where, value, index - start));
      if (!found || index - found.start < end) continue;
      told += text.slice(end, index - found.start) + MASK;
      end = index - found.start + found.value.length;
    }
    return told + text.slice(end);
  }
}

/** Whether `value` stands in `text` at `index` and not within a longer word. */
function stands(text: string, value: string, index: number): boolean {
  return (
    index >= 0 &&
    text.startsWith(value, index) &&
    !/^[\p{L}\p{N}]/u.test(text.slice(index + value.length, index + value.length + 1))
  );
}
