import type { Finding } from '../../domain/health/finding.ts';
import type { TypedWords } from '../../domain/installation.ts';
import { type Format, formatFor } from '../format.ts';
import { ENGLISH, type Words } from './english.ts';
import { SPANISH } from './spanish.ts';
import { SPANISH_FINDINGS } from './spanish-findings.ts';
import { inSpanish } from './translate.ts';

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
