import { createHash } from 'node:crypto';
import { secretForms } from '../log/secret-forms.ts';

export const HIDDEN = '[redacted]';

const JWT = /\beyJ[\w-]{6,}(?:\.[\w-]*){0,4}/g;
const SCHEME = /\b(Bearer|Basic|Digest)(\s+)[^\s"'\\,;]+/gi;
const SECRET_NAME = /authorization|cookie|secret|token|passw|credential|api[-_ ]?key/i;
/** `x-webhook-secret: …`, `"token":"…"` also where JSON stands within JSON, `?api_key=…`. */
const NAMED =
  /([\w.-]*(?:authorization|cookie|secret|token|passw(?:or)?d|credential|api[-_]?key)[\w.-]*\\*["']?\s*[:=]\s*\\*["']?(?:(?:bearer|basic|digest)\s+)?)([^\s"'\\,;&}\]]{4,})/gi;
const NAMED_TEST = new RegExp(NAMED.source, 'i');
const USER_IN_ADDRESS = /(\b[a-z][a-z0-9+.-]*:\/\/)[^\s/?#"'\\@]+@/gi;
/** The letter of an escape such as `\\n` is no part of a word. */
const WORD = /(?<=\\[nrt])[\w.~+/=%-]{8,}|(?<!\\)[\w.~+/=%-]{8,}/g;
const DECODED_LENGTH_MAX = 64 * 1024;

export interface RedactorOptions {
  /** Hidden in whatever form they come. */
  secrets: Iterable<string>;
  /** sha256 of secrets that are known by that alone, in hexadecimal digits. */
  fingerprints: ReadonlySet<string>;
}

/** The one gate through which every text of a bundle goes, its file names, too. */
export class Redactor {
  readonly #forms: string[];
  readonly #fingerprints: ReadonlySet<string>;

  constructor({ secrets, fingerprints }: RedactorOptions) {
    // The longest first, so that a secret that holds another is hidden whole.
    this.#forms = [...new Set([...secrets].flatMap(secretForms))].sort((a, b) => b.length - a.length);
    this.#fingerprints = fingerprints;
  }

  /** Hides what is known to be secret and all that looks like it. */
  text(text: string): string {
    return this.known(
      text
        .replace(SCHEME, `$1$2${HIDDEN}`)
        .replace(NAMED, `$1${HIDDEN}`)
        .replace(USER_IN_ADDRESS, `$1${HIDDEN}@`),
    );
  }

  /** Hides what is known to be secret, and JSON Web Tokens; leaves JSON whole. */
  known(text: string): string {
    let told = text;
    for (const form of this.#forms) if (told.includes(form)) told = told.replaceAll(form, HIDDEN);
    return told.replace(JWT, HIDDEN).replace(WORD, (word) => (this.#isSecret(word) ? HIDDEN : word));
  }

  /** A copy of a JSON document with every text in it redacted, and those under the name of a secret left out. */
  document(value: unknown): unknown {
    if (typeof value === 'string') return this.text(value);
    if (Array.isArray(value)) return value.map((each) => this.document(each));
    if (typeof value !== 'object' || value === null) return value;
    return Object.fromEntries(
      Object.entries(value).map(([name, each]) => {
        const isSecret = SECRET_NAME.test(name) && typeof each === 'string' && each !== '';
        return [this.text(name), isSecret ? HIDDEN : this.document(each)];
      }),
    );
  }

  /** Whether a known secret stands in `text` in any form. */
  finds(text: string): boolean {
    return this.#forms.some((form) => text.includes(form));
  }

  /** Known by its fingerprint, or a secret that somebody has encoded whole. */
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

/** What a word says in hexadecimal digits or base64, where that is readable text. */
function decodings(word: string): string[] {
  if (word.length < 16 || word.length > DECODED_LENGTH_MAX) return [];
  const found: Buffer[] = [];
  if (/^(?:[\da-f]{2})+$/i.test(word)) found.push(Buffer.from(word, 'hex'));
  if (/^[\w+/-]+={0,2}$/.test(word)) found.push(Buffer.from(word, 'base64'));
  return found
    .map((bytes) => bytes.toString('utf8'))
    .filter((text) => /^[\p{L}\p{N}\p{P}\p{S}\s]+$/u.test(text));
}
