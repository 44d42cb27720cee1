import type Database from 'better-sqlite3';
import { TillsyncError } from '../../core/errors.ts';
import { fold, isPhoneLike, phoneKey } from '../../core/folding.ts';
import { listReceived, type ReceivedEntry } from '../reading/order-queries.ts';

/** Finds people in the mirror by an e-mail address, phone number or name. */

/** A search for a person, in texts that are folded by `fold`. */
export type Who =
  | { by: 'email'; email: string }
  | { by: 'phone'; key: string }
  | { by: 'name'; words: readonly string[] };

/** An order that still has its customer's data. */
interface PersonalOrder {
  orderId: string;
  code: number | null;
  status: string | null;
  /** When the order was created, ISO 8601 UTC. */
  createdAt: string | null;
  name: string | null;
  email: string | null;
  phones: string[];
}

/** A person, recognised by orders that share an e-mail address or a phone number. */
export interface Person {
  names: string[];
  emails: string[];
  phones: string[];
  orders: PersonalOrder[];
}

export interface Found {
  people: Person[];
  /** Orders that the search does not match, but that have an e-mail address or phone number of these people. */
  related: PersonalOrder[];
  /**
   * Other payloads that contain an e-mail address or phone number of these people, such as comments and unreadable
   * notifications.
   */
  mentions: ReceivedEntry[];
}

const PHONE_DIGITS_MIN = 7;
const NAME_LETTERS_MIN = 3;

/** Reads what a person typed to search for somebody. Throws `usage` if the text is too short to mean one person. */
export function readWho(text: string): Who {
  const typed = fold(text);
  if (typed.includes('@')) return { by: 'email', email: typed };
  const key = phoneKey(typed);
  if (isPhoneLike(typed) && key.length >= PHONE_DIGITS_MIN) return { by: 'phone', key };
  const words = typed.split(' ').filter((word) => word !== '');
  if (/\d/.test(typed) || words.join('').length < NAME_LETTERS_MIN) {
    throw new TillsyncError('usage', 'This names nobody. Nothing was changed.', {
      hint: `Give an e-mail, a phone number with at least ${PHONE_DIGITS_MIN} digits, or a name.`,
    });
  }
  return { by: 'name', words };
}

/** Finds people by reading every order, about 1 s for 100,000 orders, so it must not be called in loops. */
export function findPeople(db: Database.Database, who: Who): Found {
  const [matched = [], others = []] = partition(personalOrders(db), (order) => isNamed(order, who));
  const people = personsOf(matched);
  const keys = new Set(matched.flatMap(keysOf));
  const related = others.filter((order) => keysOf(order).some((key) => keys.has(key)));
  const known = new Set([...matched, ...related].map(({ orderId }) => orderId));
  return { people, related, mentions: mentionsOf(db, people, known) };
}

function partition<T>(values: readonly T[], is: (value: T) => boolean): T[][] {
  return [values.filter(is), values.filter((value) => !is(value))];
}

/** Groups orders into people: [a, b] + an order with the phone number of a and the e-mail of b → [a+b+order]. */
function personsOf(orders: readonly PersonalOrder[]): Person[] {
  let groups: { keys: Set<string>; orders: PersonalOrder[] }[] = [];
  for (const order of orders) {
    const keys = keysOf(order);
    const [same = [], others = []] = partition(groups, (group) => keys.some((key) => group.keys.has(key)));
    const one = {
      keys: new Set([...same.flatMap((group) => [...group.keys]), ...keys]),
      orders: [...same.flatMap((group) => group.orders), order],
    };
    groups = [...others, one];
  }
  return groups.map((group) => ({
    names: distinct(group.orders.map(({ name }) => name)),
    emails: distinct(group.orders.map(({ email }) => email)),
    phones: distinct(group.orders.flatMap(({ phones }) => phones)),
    orders: group.orders,
  }));
}

/**
 * Returns the keys that identify an order's customer: orders that share a key belong to one person. The name is a key
 * only if there is no e-mail address and no phone number.
 */
function keysOf({ name, email, phones }: PersonalOrder): string[] {
  const contacts = [...(email === null ? [] : [fold(email)]), ...phones.map(phoneKey)];
  return contacts.length > 0 ? contacts : [`name ${fold(name ?? '')}`];
}

function isNamed({ name, email, phones }: PersonalOrder, who: Who): boolean {
  if (who.by === 'email') return email !== null && fold(email) === who.email;
  if (who.by === 'phone') return phones.some((phone) => phoneKey(phone) === who.key);
  const words = fold(name ?? '').split(' ');
  return who.words.every((word) => words.includes(word));
}

function personalOrders(db: Database.Database): PersonalOrder[] {
  const sql = `SELECT order_id AS orderId, code, status, created_at AS createdAt, name AS title,
      trim(concat_ws(' ', customer_first_name, customer_last_name)) AS name, customer_email AS email,
      customer_phone_number AS phone, address_phone_number AS addressPhone
    FROM _orders WHERE forgotten_at IS NULL ORDER BY created_at`;
  const rows = db.prepare<[], PersonalRow>(sql).all();
  return rows.map(({ title, name, email, phone, addressPhone, ...order }) => ({
    ...order,
    // If the notification has no user, the order's own name contains the customer's name.
    name: textOf(name) ?? textOf(title),
    email: textOf(email),
    phones: distinct([phone, addressPhone].map(textOf)),
  }));
}

type PersonalRow = Omit<PersonalOrder, 'phones'> & Record<'title' | 'phone' | 'addressPhone', unknown>;

/** Returns a value as a text; the platform sends phone numbers as texts or as numbers. Returns null if it is empty. */
function textOf(value: unknown): string | null {
  const text = value === null || value === undefined ? '' : String(value).trim();
  return text === '' ? null : text;
}

/**
 * Returns payloads that contain an e-mail address or phone number of these people but belong to none of their orders.
 */
function mentionsOf(db: Database.Database, people: readonly Person[], known: Set<string>): ReceivedEntry[] {
  const texts = people.flatMap(({ emails, phones }) => [...emails, ...phones]);
  const containing = texts.filter((text) => text.length >= PHONE_DIGITS_MIN);
  if (containing.length === 0) return [];
  return listReceived(db, { containing }, { limit: Number.MAX_SAFE_INTEGER, quarantinedOnly: false }).filter(
    ({ orderId }) => orderId === null || !known.has(orderId),
  );
}

function distinct(values: readonly (string | null)[]): string[] {
  return [...new Set(values.filter((value) => value !== null))];
}
