import { bech32 } from '@scure/base';
import { entropyToMnemonic, mnemonicToEntropy } from '@scure/bip39';
import { wordlist as english } from '@scure/bip39/wordlists/english.js';
import { wordlist as spanish } from '@scure/bip39/wordlists/spanish.js';
import { generateX25519Identity, identityToRecipient } from 'age-encryption';
import { TillsyncError } from '../core/errors.ts';
import { fold } from '../core/folding.ts';
import type { SigningKey } from '../db/signing-keys.ts';
import { signingSecret } from './backup-origin.ts';

const WORDS = 24;

const LISTS = { en: english, es: spanish };

/** Prefix of age identities, in lower case. */
const PREFIX = 'age-secret-key-';

/**
 * Makes an age key as a recovery phrase: 24 words (BIP 39) that a person can write down. Backups are encrypted for
 * `recipient`, its public half, and signed with a key that the phrase gives too.
 */
export async function newRecoveryPhrase(
  language: keyof typeof LISTS,
): Promise<{ phrase: string; recipient: string; signingKey: SigningKey }> {
  const identity = await generateX25519Identity();
  const { bytes } = bech32.decodeToBytes(identity.toLowerCase());
  const signingKey = await signingKeyOf(identity);
  return {
    phrase: entropyToMnemonic(bytes, LISTS[language]).normalize('NFC'),
    recipient: signingKey.recipient,
    signingKey,
  };
}

/** Returns the key that signs the backups that an age identity opens. */
export async function signingKeyOf(identity: string): Promise<SigningKey> {
  const { bytes } = bech32.decodeToBytes(identity.toLowerCase());
  return { recipient: await identityToRecipient(identity), secret: signingSecret(bytes) };
}

/**
 * Returns the age identity of a recovery phrase in any of the languages, or of an age identity itself; undefined for
 * another text.
 */
export function identityOf(secret: string): string | undefined {
  // People write the words down with their numbers: `1 abandon 2 ability`.
  const words = secret
    .trim()
    .toLowerCase()
    .split(/\s+/)
    .filter((word) => !/^\d+[.)]?$/.test(word));
  if (words.length === 1 && words[0]?.startsWith(PREFIX)) return words[0].toUpperCase();
  if (words.length !== WORDS) return undefined;
  // Many words are in both lists, or begin like a word of the other list, so every list is tried before a mistake is
  // reported.
  const readings = Object.values(LISTS).map((list) => readingBy(list, words));
  const right = readings.find((reading) => reading.identity !== undefined);
  if (right !== undefined) return right.identity;
  const [nearest] = readings.toSorted((a, b) => a.wrong.length - b.wrong.length);
  if (nearest === undefined || nearest.wrong.length > WORDS / 2) return undefined;
  const { wrong, cause } = nearest;
  if (wrong.length > 0) throw mistaken(`Word ${wrong.join(', word ')} is in no recovery phrase.`);
  throw mistaken('Each word can be right, but not all of them in this order.', cause);
}

/** Reads a phrase by one word list. `wrong` are the numbers of words not in the list; `cause` is a wrong checksum. */
function readingBy(list: string[], words: string[]): { identity?: string; wrong: number[]; cause?: unknown } {
  const byStart = new Map(list.map((word) => [startOf(word), word]));
  const known = words.map((word) => byStart.get(startOf(word)));
  const wrong = known.flatMap((word, i) => (word === undefined ? [i + 1] : []));
  if (wrong.length > 0) return { wrong };
  try {
    const entropy = mnemonicToEntropy(known.join(' '), list);
    return { identity: bech32.encodeFromBytes(PREFIX, entropy).toUpperCase(), wrong };
  } catch (cause) {
    return { wrong, cause };
  }
}

/** The first four letters without accents, which are unique in each list: `Ábaco` → `abac`. */
function startOf(word: string): string {
  return fold(word).slice(0, 4);
}

function mistaken(why: string, cause?: unknown): TillsyncError {
  const hint = 'Compare it with what was written down, word by word.';
  return new TillsyncError('usage', `The recovery phrase has a mistake. ${why} Nothing was changed.`, {
    hint,
    cause,
  });
}
