import type { TypedWords } from '../../core/errors.ts';
import type { Finding } from '../../health/facts.ts';
import type { FindingCode } from '../../health/findings.ts';
import {
  inSpanish,
  LANGUAGES,
  type Language,
  SPANISH_FINDINGS,
  spanishFinding,
  withTimes,
} from '../../health/speech.ts';
import type { OrderStatus } from '../../orders/merging/order.ts';
import type { Change } from '../api.ts';
import en from './en.json' with { type: 'json' };
import es from './es.json' with { type: 'json' };
import { formatFor } from './format.ts';

export type WordKey = keyof typeof en.words;

/** All texts of the page; `{…}` is a placeholder. The compiler reports a text that one language lacks. */
export const WORDS: Record<Language, Record<WordKey | `status.${OrderStatus}`, string>> = {
  en: en.words,
  es: es.words,
};

const PLACE = /\{(\w+)\}/g;

/** Texts and formats of one language, for the views. */
export interface Speech {
  language: Language;
  /** The shop's time zone; undefined before the first status, and times are then those of this machine. */
  timezone: string | undefined;
  format: ReturnType<typeof formatFor>;
  say(key: WordKey, values?: Readonly<Record<string, string | number>>): string;
  /** Returns a finding's message and remedy in this language. */
  finding(finding: Finding, commands: TypedWords): { message: string; remedy: string };
  /**
   * Returns the fault of a branch as a text. `reason` may be a finding's code, for which there is a Spanish text; in
   * all other cases, `message` is returned as `reason()` does.
   */
  branch(reason: string | null, message: string): { text: string; language: Language };
  /**
   * Returns a message of the daemon in this language, with times in the shop's time zone. Sentences without a
   * translation are left in English.
   */
  reason(text: string): { text: string; language: Language };
}

/** Returns the first preferred language that the page has, else English. */
export function chooseLanguage(preferred: readonly string[]): Language {
  for (const each of preferred) {
    const known = LANGUAGES.find((language) => each.toLowerCase().split('-')[0] === language);
    if (known) return known;
  }
  return 'en';
}

function withValues(text: string, values: Readonly<Record<string, string | number>>): string {
  return text.replaceAll(PLACE, (_all, name: string) => String(values[name] ?? ''));
}

/** Makes the texts and formats of a language. Numbers have the form of the preferred region, such as es-CL. */
export function speechOf(language: Language, preferred: readonly string[], timezone?: string): Speech {
  const region = preferred.find((each) => each.toLowerCase().split('-')[0] === language);
  const format = formatFor(region ?? language, timezone);
  const say: Speech['say'] = (key, values = {}) => withValues(WORDS[language][key], values);
  const reason: Speech['reason'] = (text) => {
    const spanish = language === 'es' ? inSpanish(text) : undefined;
    const told = withTimes(spanish ?? text, (ms) => format.near(new Date(ms).toISOString(), Date.now()));
    return { text: told, language: spanish === undefined ? 'en' : 'es' };
  };
  return {
    language,
    timezone,
    format,
    say,
    finding(finding, commands) {
      const { message, remedy } = finding;
      const known = language === 'es' ? spanishFinding(finding) : undefined;
      if (!known) return { message, remedy };
      return {
        message: known.message,
        remedy: remedy === '' ? '' : withValues(known.remedy, { ...commands }),
      };
    },
    branch(code, message) {
      if (language === 'en' || code === null || !Object.hasOwn(SPANISH_FINDINGS, code))
        return reason(message);
      const told = SPANISH_FINDINGS[code as FindingCode].message.replace(': {count}', '');
      return { text: told, language: 'es' };
    },
    reason,
  };
}

/** Returns the word for a status; an unknown status is returned unchanged. */
export function statusWord(status: string | null, { say }: Speech): string {
  const key = `status.${status ?? 'none'}`;
  return Object.hasOwn(en.words, key) ? say(key as WordKey) : (status ?? '');
}

/** Returns the product of a change and, for a stock, its branch. */
export function changeSubject({ body, target }: Pick<Change, 'body' | 'target'>, { say }: Speech): string {
  const name =
    textOf(body.externalId) ?? (body.sku === undefined ? undefined : `SKU ${textOf(body.sku)}`) ?? target;
  const branch = textOf(body.subsidiaryExternalId) ?? textOf(body.subsidiaryId);
  return branch === undefined ? name : `${name} · ${say('outbox.branch', { branch })}`;
}

/** Returns the new values of a change, separated by commas. */
export function changeValues(
  { body }: Pick<Change, 'body'>,
  { say, format }: Speech,
  currency: string | null,
): string {
  const amount = (value: unknown) => format.amount(textOf(value) ?? null);
  const words = [
    body.qty === undefined ? '' : say('value.qty', { value: amount(body.qty) }),
    body.price === undefined
      ? ''
      : say('value.price', { value: format.money(textOf(body.price) ?? null, currency) }),
    body.name === undefined ? '' : say('value.name', { value: textOf(body.name) ?? '' }),
    body.description === undefined ? '' : say('value.description'),
    typeof body.show === 'boolean' ? say(`value.show.${body.show}`) : '',
  ];
  return words.filter((word) => word !== '').join(', ');
}

function textOf(value: unknown): string | undefined {
  return typeof value === 'string' || typeof value === 'number' ? String(value) : undefined;
}

/**
 * First words of commands. They are needed to find commands in a text, because `tillsync` may also be a sentence's
 * subject.
 */
export const COMMAND_WORDS =
  'audit auth backup branch bundle config conform customer doctor hooks hub init key order outbox product push quarantine ' +
  'restore run status stock sync webhook';
const INNER = '(?: diff stock| [a-z-]{3,}(?=[ .,;]|$))?';
const OPTIONS = '(?: --[a-z-]+(?: [a-z]+)?)*';
const PLACEHOLDER = '(?: [A-ZÑ]{2,})?';

/**
 * Splits a text at its commands: `see tillsync hooks test NAME, then …` → `['see ', 'tillsync hooks test NAME', ',
 * then …']`. Every second part is a command.
 */
export function splitCommands(text: string, commands: TypedWords): string[] {
  const { tillsync, storage: _storage, ...others } = commands;
  const whole = Object.values(others).map(literal).join('|');
  const first = COMMAND_WORDS.replaceAll(' ', '|');
  const typed = `${literal(tillsync)} (?:${first})${INNER}${OPTIONS}${PLACEHOLDER}`;
  return text.split(new RegExp(`(${whole}|${typed})(?=[ .,;]|$)`));
}

function literal(text: string): string {
  return text.replaceAll(/[.*+?^${}()|[\]\\]/g, '\\$&');
}
