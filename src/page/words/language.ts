import type { TypedWords } from '../../core/errors.ts';
import type { Finding } from '../../health/finding.ts';
import type { OrderStatus } from '../../orders/order.ts';
import type { Change } from '../api.ts';
import { type Format, formatFor } from '../format.ts';
import { ENGLISH, type Words } from './english.ts';
import { SPANISH } from './spanish.ts';
import { SPANISH_FINDINGS } from './spanish-findings.ts';
import { SPANISH_TEXTS } from './spanish-texts.ts';

interface Template {
  pattern: RegExp;
  /** Names of what the pattern captures, in their order. */
  places: readonly string[];
  /** In Spanish; `{1}` is what stood there in the English one, `{tillsync}` a command as it is typed. */
  spanish: string;
}

const PLACE = /\{(\w+)\}/g;

let templates: Template[] | undefined;

/**
 * A text of the daemon in Spanish: a reason, made of one sentence or more. undefined where a part of it is not known,
 * such as words of the platform's own.
 */
export function inSpanish(text: string): string | undefined {
  templates ??= SPANISH_TEXTS.map(([english, spanish]) => ({
    pattern: patternOf(english),
    places: [...english.matchAll(PLACE)].map(([, name = '']) => name),
    spanish,
  }));
  let rest = text.trim();
  const told: string[] = [];
  while (rest !== '') {
    const next = nextSentence(rest, templates);
    if (next === undefined) return undefined;
    told.push(next.spanish);
    rest = rest.slice(next.length).trimStart();
  }
  return told.length === 0 ? undefined : told.join(' ');
}

/** The longest known beginning: a template may hold several sentences. */
function nextSentence(
  text: string,
  all: readonly Template[],
): { spanish: string; length: number } | undefined {
  let best: { spanish: string; length: number } | undefined;
  for (const { pattern, places, spanish } of all) {
    const match = pattern.exec(text);
    if (!match || match[0].length <= (best?.length ?? 0)) continue;
    best = { spanish: filled(spanish, places, match.slice(1)), length: match[0].length };
  }
  return best;
}

/** What was filled in may be a reason itself. */
function filled(spanish: string, places: readonly string[], values: readonly string[]): string {
  return spanish.replaceAll(PLACE, (_all, name: string) => {
    const value = values[places.indexOf(name)] ?? '';
    return inSpanish(value) ?? value;
  });
}

/** Up to the end of the text or to a next sentence. */
function patternOf(english: string): RegExp {
  const escaped = english.replaceAll(/[.*+?^$()|[\]\\]/g, String.raw`\$&`);
  return new RegExp(`^${escaped.replaceAll(PLACE, '(.+?)')}(?=$| )`, 's');
}

export const LANGUAGES = ['en', 'es'] as const;
export type Language = (typeof LANGUAGES)[number];

export type WordKey = keyof Words;

/** A language as the views speak it. */
export interface Speech {
  language: Language;
  format: Format;
  say(key: WordKey, values?: Readonly<Record<string, string | number>>): string;
  /** What is wrong and what to do, in this language. */
  finding(finding: Finding, commands: TypedWords): { message: string; remedy: string };
  /** What the daemon says of a single case, and the language it is in: words of others stay as they came. */
  reason(text: string): { text: string; language: Language };
}

/** The first of the preferred languages that the page speaks, else English. */
export function chooseLanguage(preferred: readonly string[]): Language {
  for (const each of preferred) {
    const known = LANGUAGES.find((language) => each.toLowerCase().split('-')[0] === language);
    if (known) return known;
  }
  return 'en';
}

function withValues(text: string, values: Readonly<Record<string, string | number>>): string {
  return text.replaceAll(/\{(\w+)\}/g, (_all, name: string) => String(values[name] ?? ''));
}

/** Figures are written as in the preferred region of the language, such as es-CL. */
export function speechOf(language: Language, preferred: readonly string[]): Speech {
  const words: Words = language === 'es' ? SPANISH : ENGLISH;
  const region = preferred.find((each) => each.toLowerCase().split('-')[0] === language);
  const say: Speech['say'] = (key, values = {}) => withValues(words[key], values);
  return {
    language,
    format: formatFor(region ?? language),
    say,
    finding({ code, message, remedy, count }, commands) {
      const known = language === 'es' ? SPANISH_FINDINGS[code] : undefined;
      if (!known) return { message, remedy };
      const told = known.message.replace(': {count}', count === null ? '' : `: ${count}`);
      return { message: told, remedy: remedy === '' ? '' : withValues(known.remedy, { ...commands }) };
    },
    reason(text) {
      const spanish = language === 'es' ? inSpanish(text) : undefined;
      return spanish === undefined ? { text, language: 'en' } : { text: spanish, language: 'es' };
    },
  };
}

const KNOWN: Record<OrderStatus, `status.${OrderStatus}`> = {
  pending: 'status.pending',
  'payment-pending': 'status.payment-pending',
  'payment-approved': 'status.payment-approved',
  'payment-canceled': 'status.payment-canceled',
  'picker-pending': 'status.picker-pending',
  inProcess: 'status.inProcess',
  ready: 'status.ready',
  routed: 'status.routed',
  dispatched: 'status.dispatched',
  cancel: 'status.cancel',
  refund: 'status.refund',
  shippingError: 'status.shippingError',
};

/** A status in words; one that nobody knows as it is. */
export function statusWord(status: string | null, { say }: Speech): string {
  if (status === null) return say('status.none');
  return Object.hasOwn(KNOWN, status) ? say(KNOWN[status as OrderStatus]) : status;
}

type Value = string | number;

/** Which product, and of a stock in which branch. */
export function changeSubject({ body, target }: Pick<Change, 'body' | 'target'>, { say }: Speech): string {
  const name =
    textOf(body.externalId) ?? (body.sku === undefined ? undefined : `SKU ${textOf(body.sku)}`) ?? target;
  const branch = textOf(body.subsidiaryExternalId) ?? textOf(body.subsidiaryId);
  return branch === undefined ? name : `${name} · ${say('outbox.branch', { branch })}`;
}

/** The new values, one after the other. */
export function changeValues({ body }: Pick<Change, 'body'>, { say, format }: Speech): string {
  const amount = (value: unknown): Value => format.amount(textOf(value) ?? null);
  const words = [
    body.qty === undefined ? '' : say('value.qty', { value: amount(body.qty) }),
    body.price === undefined ? '' : say('value.price', { value: amount(body.price) }),
    body.name === undefined ? '' : say('value.name', { value: textOf(body.name) ?? '' }),
    body.description === undefined ? '' : say('value.description'),
    typeof body.show === 'boolean' ? say(`value.show.${body.show}`) : '',
  ];
  return words.filter((word) => word !== '').join(', ');
}

function textOf(value: unknown): string | undefined {
  return typeof value === 'string' || typeof value === 'number' ? String(value) : undefined;
}
