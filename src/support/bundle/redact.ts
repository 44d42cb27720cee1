import { createHash } from 'node:crypto';
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { dirname, join, resolve } from 'node:path';
import type Database from 'better-sqlite3';
import { asRoot } from '../../app/installation.ts';
import { keyFile } from '../../config/key-file.ts';
import {
  CREDSTORE,
  credentialFile,
  HOOK_SECRET,
  SECRET_NAMES,
  secretVariable,
  serviceOf,
} from '../../config/secrets.ts';
import type { Environment } from '../../config/source.ts';
import { asTillsyncError } from '../../core/errors.ts';
import { secretForms } from '../../core/log.ts';
import { lookInto } from '../../db/sqlite.ts';

/** Returns the entry that the bundle has in place of an unreadable part. */
export function faultOf(error: unknown): { couldNotBeRead: string; hint?: string } {
  const { code, message, hint } = asTillsyncError(error);
  return { couldNotBeRead: `${message} (${code})`, ...(hint !== undefined && { hint }) };
}

const MASK = '[customer]';
const ORDERS_MAX = 20_000;
const WORD_LENGTH_MIN = 3;

const EMAIL = /[\p{L}\d._%+-]+@[\p{L}\d-]+(?:\.[\p{L}\d-]+)+/gu;
/** Phone numbers with a plus, or with gaps as people write them; times and ids have neither. */
const PHONE = /\+\d[\d\s().-]{6,}\d|(?<![\d.:T-])\(?\d{2,4}\)?[ ]\d{3,4}[ -]?\d{3,4}(?![\d.:])/g;
const NAMED_PERSON =
  /(\\*"(?:[\w-]*(?:name|phone|mobile|mail|address|street|comment|details|notes?|instructions|zip|lat|lng|customer|document|rut|dni))\\*"\s*:\s*\\*")((?:[^"\\]|\\(?!\\*"))*)/gi;

/** Query for the mirror's customer data, which is then removed from every text that repeats it. */
const VALUES = `
  SELECT customer_first_name, customer_last_name, customer_email, customer_phone_number, address_address,
    address_street_address, address_details, address_phone_number FROM _orders ORDER BY seq DESC LIMIT ${ORDERS_MAX}`;
const COMMENTS = `SELECT comment FROM order_items WHERE comment IS NOT NULL AND comment <> '' LIMIT ${ORDERS_MAX}`;

const FIRST_TOKEN = /[\p{L}\p{N}]+/u;
/** Used only by `matchAll`, because `exec` would remember its position for the next text. */
const TOKENS = new RegExp(FIRST_TOKEN, 'gu');

/** Removes personal data from free texts: messages, reasons, log lines. */
export class PeopleMask {
  /**
   * Personal values by their first word in lower case, longest first, so that an address is removed before its street
   * alone.
   */
  readonly #values = new Map<string, { start: number; value: string }[]>();

  /** Learns the customer data of a mirror. */
  learn(db: Database.Database): void {
    for (const query of [VALUES, COMMENTS]) {
      for (const row of db.prepare<[], unknown[]>(query).raw().iterate()) {
        for (const value of row) this.#add(value);
      }
    }
  }

  #add(value: unknown): void {
    if (typeof value !== 'string') return;
    const text = value.trim();
    // A house number identifies nobody.
    if (text.length < WORD_LENGTH_MIN || /^\d{1,5}$/.test(text)) return;
    for (const form of new Set([text, JSON.stringify(text).slice(1, -1)])) this.#addForm(form.toLowerCase());
  }

  text(text: string): string {
    const told = text.replace(EMAIL, MASK).replace(NAMED_PERSON, `$1${MASK}`);
    return this.#withoutValues(told).replace(PHONE, MASK);
  }

  #addForm(value: string): void {
    const first = FIRST_TOKEN.exec(value);
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
    // Few letters change their length with their case. A text with such a letter is searched without lower-casing.
    const where = small.length === text.length ? small : text;
    let told = '';
    let end = 0;
    for (const { 0: token, index } of where.matchAll(TOKENS)) {
      if (index < end) continue;
      const found = this.#values.get(token)?.find(({ start, value }) => stands(where, value, index - start));
      if (!found || index - found.start < end) continue;
      told += text.slice(end, index - found.start) + MASK;
      end = index - found.start + found.value.length;
    }
    return told + text.slice(end);
  }
}

/** Whether `value` is in `text` at `index`, and not inside a longer word. */
function stands(text: string, value: string, index: number): boolean {
  return (
    index >= 0 &&
    text.startsWith(value, index) &&
    !/^[\p{L}\p{N}]/u.test(text.slice(index + value.length, index + value.length + 1))
  );
}

export const HIDDEN = '[redacted]';

const JWT = /\beyJ[\w-]{6,}(?:\.[\w-]*){0,4}/g;
const SCHEME = /\b(Bearer|Basic|Digest)(\s+)[^\s"'\\,;]+/gi;
const SECRET_NAME = /authorization|cookie|secret|token|passw|credential|api[-_ ]?key/i;
/** Matches a secret by the name before it: `x-webhook-secret: …`, `"token":"…"` (also in nested JSON), `?api_key=…`. */
const NAMED =
  /([\w.-]*(?:authorization|cookie|secret|token|passw(?:or)?d|credential|api[-_]?key)[\w.-]*\\*["']?\s*[:=]\s*\\*["']?(?:(?:bearer|basic|digest)\s+)?)([^\s"'\\,;&}\]]{4,})/gi;
const NAMED_TEST = new RegExp(NAMED.source, 'i');
const USER_IN_ADDRESS = /(\b[a-z][a-z0-9+.-]*:\/\/)[^\s/?#"'\\@]+@/gi;
/** A word does not begin with the letter of an escape: `\nToken123` holds the word `Token123`. */
const WORD = /(?<=\\[nrt])[\w.~+/=%-]{8,}|(?<!\\)[\w.~+/=%-]{8,}/g;
const DECODED_LENGTH_MAX = 64 * 1024;

export interface RedactorOptions {
  /** Secrets to hide in every form. */
  secrets: Iterable<string>;
  /** SHA-256 fingerprints, in hex, of secrets whose text is unknown here. */
  fingerprints: ReadonlySet<string>;
}

/** The filter for every text of a bundle, including file names. */
export class Redactor {
  readonly #forms: string[];
  readonly #fingerprints: ReadonlySet<string>;

  constructor({ secrets, fingerprints }: RedactorOptions) {
    // Longest first, so that a secret that contains another one is hidden whole.
    this.#forms = [...new Set([...secrets].flatMap(secretForms))].sort((a, b) => b.length - a.length);
    this.#fingerprints = fingerprints;
  }

  /** Hides known secrets and everything that looks like one. */
  text(text: string): string {
    return this.known(
      text
        .replace(SCHEME, `$1$2${HIDDEN}`)
        .replace(NAMED, `$1${HIDDEN}`)
        .replace(USER_IN_ADDRESS, `$1${HIDDEN}@`),
    );
  }

  /** Hides known secrets and JSON Web Tokens; JSON stays valid. */
  known(text: string): string {
    let told = text;
    for (const form of this.#forms) if (told.includes(form)) told = told.replaceAll(form, HIDDEN);
    return told.replace(JWT, HIDDEN).replace(WORD, (word) => (this.#isSecret(word) ? HIDDEN : word));
  }

  /**
   * Copies a JSON document: every text is redacted and then changed by `mask`, and values under a secret's name are
   * removed.
   */
  document(value: unknown, mask: (text: string) => string): unknown {
    if (typeof value === 'string') return mask(this.text(value));
    if (Array.isArray(value)) return value.map((each) => this.document(each, mask));
    if (typeof value !== 'object' || value === null) return value;
    return Object.fromEntries(
      Object.entries(value).map(([name, each]) => {
        const isSecret = SECRET_NAME.test(name) && typeof each === 'string' && each !== '';
        return [mask(this.text(name)), isSecret ? HIDDEN : this.document(each, mask)];
      }),
    );
  }

  /** Whether `text` contains a known secret in any form. */
  finds(text: string): boolean {
    return this.#forms.some((form) => text.includes(form));
  }

  /** Whether a word is a secret, by its fingerprint or because it encodes a whole secret. */
  #isSecret(word: string): boolean {
    if (this.#isHandedIn(word)) return true;
    return decodings(word).some(
      (text) =>
        this.#isHandedIn(text) ||
        this.finds(text) ||
        text !== text.replace(JWT, HIDDEN) ||
        NAMED_TEST.test(text),
    );
  }

  #isHandedIn(word: string): boolean {
    if (this.#fingerprints.size === 0) return false;
    return this.#fingerprints.has(createHash('sha256').update(word).digest('hex'));
  }
}

/** Returns the readable text that a word encodes in hex or base64. */
function decodings(word: string): string[] {
  if (word.length < 16 || word.length > DECODED_LENGTH_MAX) return [];
  const found: Buffer[] = [];
  if (/^(?:[\da-f]{2})+$/i.test(word)) found.push(Buffer.from(word, 'hex'));
  if (/^[\w+/-]+={0,2}$/.test(word)) found.push(Buffer.from(word, 'base64'));
  return found
    .map((bytes) => bytes.toString('utf8'))
    .filter((text) => /^[\p{L}\p{N}\p{P}\p{S}\s]+$/u.test(text));
}

export interface KnownSecrets extends RedactorOptions {
  secrets: Set<string>;
  fingerprints: Set<string>;
  /** Names of the secrets that were handed in. */
  handedIn: Set<string>;
  /**
   * Error because of which not all secrets are known; then each part that could contain an unknown one is left out.
   * Undefined if all are known.
   */
  fault: unknown;
}

/** Returns every secret that this process can find: in the environment, credentials, state.db and addresses. */
export function knownSecrets(options: {
  env: Environment;
  /** The configuration file, valid or not, because it may contain a secret by mistake. */
  configFile: string;
  statePath: string;
}): KnownSecrets {
  const { env, configFile, statePath } = options;
  const secrets = new Set<string>();
  const known: KnownSecrets = { secrets, handedIn: new Set(), fingerprints: new Set(), fault: undefined };
  const add = (text: string | null | undefined) => {
    for (const line of (text ?? '').split(/[\r\n]+/)) {
      for (const secret of [line, line.trim()]) if (secret !== '') secrets.add(secret);
    }
  };
  const service = serviceOf(resolve(configFile));
  for (const name of [...SECRET_NAMES, ...hookSecretNames(env, service)]) {
    const fromFile = env.CREDENTIALS_DIRECTORY && contentOf(join(env.CREDENTIALS_DIRECTORY, name));
    const fromStore = service === undefined ? undefined : contentOf(credentialFile(service, name));
    for (const secret of [env[secretVariable(name)], fromFile, fromStore]) {
      if (secret) known.handedIn.add(name);
      add(secret);
    }
  }
  add(contentOf(keyFile(dirname(statePath))));
  const overrides = Object.entries(env).filter(([name]) => name.startsWith('TILLSYNC_'));
  const configured = [contentOf(configFile), ...overrides.map(([, value]) => value)];
  for (const text of configured) straySecrets(text ?? '').forEach(add);
  const heartbeat = overrides.find(([name]) => name === 'TILLSYNC_ALARMS_HEARTBEAT_URL')?.[1] ?? '';
  partsOfAddresses([...(configured[0] ?? '').matchAll(HEARTBEAT), heartbeat].flat().join(' ')).forEach(add);
  try {
    for (const copy of [statePath, `${statePath}.before-upgrade`]) {
      if (existsSync(copy)) lookInto(copy, (db) => addStored(db, known.fingerprints, add));
    }
    // Throws if the directory is not accessible. Without this check, state.db would only seem not to exist.
    const directory = dirname(statePath);
    if (existsSync(directory)) readdirSync(directory);
  } catch (error) {
    known.fault = error;
  }
  return known;
}

/** Returns the names of all hook secrets that exist here, also of hooks that are no longer configured. */
function hookSecretNames(
  { CREDENTIALS_DIRECTORY: directory, ...env }: Environment,
  service: string | undefined,
): string[] {
  const prefix = secretVariable(HOOK_SECRET);
  const variables = Object.keys(env).filter((name) => name.startsWith(prefix));
  const namesIn = (path: string) => {
    try {
      return asRoot(() => readdirSync(path));
    } catch {
      return [];
    }
  };
  const inStore = service === undefined ? [] : namesIn(CREDSTORE);
  const files = [
    ...(directory ? namesIn(directory) : []),
    ...inStore
      .filter((name) => name.startsWith(`${service}.`))
      .map((name) => name.slice(`${service}.`.length)),
  ];
  const names = variables.map((name) => name.slice(prefix.length).toLowerCase().replaceAll('_', '-'));
  return [
    ...names.map((name) => `${HOOK_SECRET}${name}`),
    ...files.filter((name) => name.startsWith(HOOK_SECRET)),
  ];
}

/** Adds the secrets of a state.db, also of an older schema. */
function addStored(
  db: Database.Database,
  fingerprints: Set<string>,
  add: (text: string | null | undefined) => void,
): void {
  const tables = new Set(db.prepare<[], string>('SELECT name FROM sqlite_schema').pluck().all());
  const texts = (table: string, columns: string, which = '') =>
    tables.has(table)
      ? db.prepare<[], (string | null)[]>(`SELECT ${columns} FROM ${table} ${which}`).raw().all().flat()
      : [];
  texts('tokens', 'refresh_token, access_token').forEach(add);
  for (const text of texts('link_key', '*')) if (typeof text === 'string') add(text);
  for (const print of texts('handed_in', 'fingerprint')) if (print) fingerprints.add(print);
  for (const memory of [...texts('facts', 'value', "WHERE name = 'webhook'"), ...texts('hub', 'keys')]) {
    for (const value of Object.values(JSON.parse(memory ?? '{}') as object).flat()) {
      if (typeof value === 'string') add(value);
    }
  }
}

const ADDRESS = /\b[a-z][a-z0-9+.-]*:\/\/[^\s"'<>]+/gi;
const NAMED_SECRET = /^[\w.\s-]*(?:secret|token|passw|api_?key)[\w\s-]*=\s*["']+([^"'\n]{4,})/gim;

/** Matches the heartbeat address, whose path is secret, because whoever has it can report in the shop's name. */
const HEARTBEAT = /^[\w.\s-]*heartbeat_url\s*=\s*["'][^"'\n]+/gim;
const PART_LENGTH_MIN = 8;

function partsOfAddresses(text: string): string[] {
  return Array.from(text.matchAll(ADDRESS), ([address]) => address)
    .filter((address) => URL.canParse(address))
    .flatMap((address) => new URL(address).pathname.split('/'))
    .filter((part) => part.length >= PART_LENGTH_MIN);
}

/** Returns user, password and query of each address in a text, and values under a secret's name. */
function straySecrets(text: string): string[] {
  const named = Array.from(text.matchAll(NAMED_SECRET), (match) => match[1] ?? '');
  const inAddresses = Array.from(text.matchAll(ADDRESS), ([address]) => {
    if (!URL.canParse(address)) return [];
    const { username, password, searchParams } = new URL(address);
    return [decoded(username), decoded(password), ...searchParams.values()];
  });
  return [...named, ...inAddresses.flat()].filter((secret) => secret.length >= 4);
}

function decoded(part: string): string {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

function contentOf(path: string): string | undefined {
  try {
    return asRoot(() => readFileSync(path, 'utf8'));
  } catch {
    return undefined;
  }
}
