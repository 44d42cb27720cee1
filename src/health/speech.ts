import type { Language } from '../core/values.ts';
import type { Cause, Finding, FindingCode } from './facts.ts';
import spanish from './spanish.json' with { type: 'json' };

// This file is sent to browsers too.
export { withTimes } from '../core/time.ts';
export { LANGUAGES, type Language } from '../core/values.ts';

/** Each finding and its remedy in Spanish, by code; the English is in the table of findings. */
export const SPANISH_FINDINGS: Readonly<
  Record<FindingCode, { message: string; remedy: string; remedies?: Partial<Record<Cause, string>> }>
> = spanish.findings;

/**
 * English sentences and their Spanish. `{1}`, `{2}` … stand for inserted values. A test fails for a visible sentence
 * that is missing here.
 */
export const SPANISH_TEXTS: Readonly<Record<string, string>> = spanish.texts;

/** Returns a finding in Spanish, with commands as `{tillsync}`; undefined for a code of another version. */
export function spanishFinding({
  code,
  count,
  cause,
}: Pick<Finding, 'code' | 'count' | 'cause'>): { message: string; remedy: string } | undefined {
  if (!Object.hasOwn(SPANISH_FINDINGS, code)) return undefined;
  const { message, remedy, remedies } = SPANISH_FINDINGS[code];
  return {
    message: message.replace(': {count}', count === null ? '' : `: ${count}`),
    remedy: (cause && remedies?.[cause]) ?? remedy,
  };
}

const PLACE = /\{(\w+)\}/g;
/** A name before a sentence about it, as in `B1: Nothing is heard of it.` */
const LABEL = /^[^:.!?]{1,80}: /;
/** Where one sentence may end and another begin. */
const SENTENCE_END = /[.!?:](?=\s|$)/;

interface Pattern {
  english: string;
  /** The pattern's first fixed words. Most patterns are excluded by comparing these alone. */
  lead: string;
  /** Compiled on first use; without a placeholder at its end. */
  regExp?: RegExp;
  /** True if the pattern ends with a placeholder, which may hold a command, a number, or sentences. */
  isOpen: boolean;
  /** True if other sentences may follow it; otherwise it is an inserted text, known only as a whole. */
  isSentence: boolean;
  places: string[];
  spanish: string;
  /** True if the pattern begins with a placeholder, which may hold another pattern's text. */
  beginsOpen: boolean;
  /** Number of fixed characters. Of two patterns that match, the one with more is used. */
  said: number;
}

interface Reading {
  spanish: string;
  /** Characters of the English. */
  length: number;
}

/** Longest text for a person. A longer text is foreign and is not translated. */
const TEXT_MAX = 4_000;
/** Most parts of one text that are examined, because a foreign text may be readable in many ways. */
const LOOKS_MAX = 200;
const REMEMBERED_MAX = 2_000;

/** Translates texts made of a table's sentences, one after the other or one inside another. */
export class Translator {
  readonly #table: Readonly<Record<string, string>>;
  #patterns: Pattern[] | undefined;
  /** Results for each text and its parts. */
  readonly #told = new Map<string, string | undefined>();
  #looks = 0;

  constructor(table: Readonly<Record<string, string>>) {
    this.#table = table;
  }

  /** Returns undefined if a part of the text is unknown, such as the platform's own words. */
  whole(text: string): string | undefined {
    this.#begin();
    return this.#whole(text);
  }

  /** Translates sentence by sentence; unknown ones stay as they are. */
  known(text: string): string {
    if (text.length > TEXT_MAX) return text;
    this.#begin();
    const told: string[] = [];
    for (let rest = text.trim(); rest !== ''; ) {
      const whole = this.#whole(rest);
      if (whole !== undefined) return [...told, whole].join(' ');
      const [first] = this.#readings(rest);
      const length = first?.length ?? this.#labelLength(rest) ?? sentenceLength(rest);
      told.push(first?.spanish ?? rest.slice(0, length));
      rest = rest.slice(length).trimStart();
    }
    return told.join(' ');
  }

  #begin(): void {
    this.#looks = 0;
    if (this.#told.size > REMEMBERED_MAX) this.#told.clear();
  }

  #whole(text: string): string | undefined {
    const rest = text.trim();
    if (rest === '' || rest.length > TEXT_MAX) return undefined;
    if (this.#told.has(rest)) return this.#told.get(rest);
    if (this.#looks >= LOOKS_MAX) return undefined;
    this.#looks += 1;
    const told = this.#read(rest);
    // A result that was given up is not cached, because it may be found when asked for alone.
    if (told !== undefined || this.#looks < LOOKS_MAX) this.#told.set(rest, told);
    return told;
  }

  #read(text: string): string | undefined {
    for (const { spanish, length } of this.#readings(text)) {
      if (length === text.length) return spanish;
      const more = this.#whole(text.slice(length));
      if (more !== undefined) return `${spanish} ${more}`;
    }
    const label = LABEL.exec(text)?.[0] ?? '';
    const named = label === '' ? undefined : this.#whole(text.slice(label.length));
    return named === undefined ? undefined : `${label}${named}`;
  }

  /** Returns the length of the name that a known sentence is about: `B1: Nothing is heard of it.` → 3. */
  #labelLength(text: string): number | undefined {
    const label = LABEL.exec(text)?.[0];
    return label && this.#readings(text.slice(label.length)).length > 0 ? label.length - 1 : undefined;
  }

  /** Returns the possible beginnings of the text, likeliest first. */
  #readings(text: string): Reading[] {
    this.#patterns ??= patternsOf(this.#table);
    const found: (Reading & Pick<Pattern, 'said' | 'beginsOpen'>)[] = [];
    for (const pattern of this.#patterns) {
      const { isOpen, isSentence, places, spanish, said, beginsOpen } = pattern;
      if (beginsOpen ? !text.includes(pattern.lead) : !text.startsWith(pattern.lead)) continue;
      pattern.regExp ??= regExpOf(pattern.english);
      const [all, ...values] = pattern.regExp.exec(text) ?? [];
      if (all === undefined) continue;
      const rest = text.slice(all.length);
      for (const last of isOpen ? (isSentence ? this.#endings(rest) : [rest]) : ['']) {
        if (isOpen && last === '') continue;
        const told = this.#filled(spanish, places, isOpen ? [...values, last] : values);
        found.push({ spanish: told, length: all.length + last.length, said, beginsOpen });
      }
    }
    return found.sort((a, b) => Number(a.beginsOpen) - Number(b.beginsOpen) || b.said - a.said);
  }

  /**
   * Returns the text that a placeholder at the end may hold: the whole rest if it is a known sentence, else
   * the part before the next sentence.
   */
  #endings(rest: string): string[] {
    if (this.#whole(rest) !== undefined) return [rest];
    const ends = [...rest.matchAll(/ (?=[A-Z])/g)].map(({ index }) => index);
    const [word = rest] = rest.split(' ', 1);
    return [...new Set([...ends.map((end) => rest.slice(0, end)), word, rest])];
  }

  /** Inserts the values, of which each may itself be a translatable reason. */
  #filled(spanish: string, places: readonly string[], values: readonly string[]): string {
    return spanish.replaceAll(PLACE, (_all, name: string) => {
      const value = values[places.indexOf(name)] ?? '';
      return this.#whole(value) ?? value;
    });
  }
}

function sentenceLength(text: string): number {
  const end = /[.!?](?= )/.exec(text);
  return end ? end.index + 1 : text.length;
}

function patternsOf(table: Readonly<Record<string, string>>): Pattern[] {
  return Object.entries(table).map(([english, spanish]) => ({
    english,
    lead: english.split(/\{\w+\}/).find((words) => words !== '') ?? '',
    isOpen: OPEN.test(english),
    isSentence: isSentence(english),
    places: [...english.matchAll(PLACE)].map(([, name = '']) => name),
    spanish,
    beginsOpen: english.startsWith('{'),
    said: english.replaceAll(PLACE, '').length,
  }));
}

const OPEN = /\{(?!time\}|count\})\w+\}$/;
/** Placeholders of one kind of value, for words too common to be recognised alone: `{time} ago`. */
const VALUES: Readonly<Record<string, string>> = {
  time: '(\\d+(?:ms|[smhd])(?: \\d+[smhd])?)',
  count: '(\\d+)',
};

function isSentence(english: string): boolean {
  return /^[A-Z]/.test(english) || SENTENCE_END.test(english);
}

/** A sentence ends with the text or before another sentence. */
function regExpOf(english: string): RegExp {
  const isOpen = OPEN.test(english);
  const escaped = english
    .replace(OPEN, '')
    .replaceAll(/[.*+?^$()|[\]\\]/g, String.raw`\$&`)
    .replaceAll(PLACE, (_all, name: string) => VALUES[name] ?? '(.+?)');
  return new RegExp(`^${escaped}${isOpen ? '' : isSentence(english) ? '(?=$| )' : '$'}`, 's');
}

const translator = new Translator(SPANISH_TEXTS);

/** Returns a reason in Spanish; undefined if a part of it is unknown. */
export function inSpanish(text: string): string | undefined {
  return translator.whole(text);
}

/** Returns a reason in this language, as far as its sentences are known. */
export function reasonIn(language: Language, text: string): string {
  return language === 'es' ? translator.known(text) : text;
}
