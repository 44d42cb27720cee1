import type { Language } from '../core/values.ts';
import type { Cause, Finding, FindingCode } from './facts.ts';
import spanish from './spanish.json' with { type: 'json' };

// Exported from here, because this file is also sent to browsers.
export { withTimes } from '../core/time.ts';
export { LANGUAGES, type Language } from '../core/values.ts';

/** Each finding and its remedy in Spanish, by code. The English texts are in the table of findings. */
export const SPANISH_FINDINGS: Readonly<
  Record<FindingCode, { message: string; remedy: string; remedies?: Partial<Record<Cause, string>> }>
> = spanish.findings;

/**
 * English sentences with their Spanish translations. `{1}`, `{2}` … stand for inserted values. A test fails if a
 * sentence that people see is missing.
 */
export const SPANISH_TEXTS: Readonly<Record<string, string>> = spanish.texts;

/** Returns a finding in Spanish, with placeholders such as `{tillsync}` in commands; undefined for an unknown code. */
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
/** Position where one sentence may end and the next may begin. */
const SENTENCE_END = /[.!?:](?=\s|$)/;

interface Pattern {
  english: string;
  /** First fixed words of the pattern. Most patterns are excluded by comparing only these words. */
  lead: string;
  /** The compiled pattern, without a placeholder at its end. Compiled on first use. */
  regExp?: RegExp;
  /** True if the pattern ends with a placeholder, which may hold a command, a number, or sentences. */
  isOpen: boolean;
  /**
   * True if other sentences may follow. Otherwise the pattern is an inserted text, which is recognised only as a
   * whole.
   */
  isSentence: boolean;
  places: string[];
  spanish: string;
  /** True if the pattern begins with a placeholder, which may hold another pattern's text. */
  beginsOpen: boolean;
  /** Number of fixed characters. If two patterns match, the one with more fixed characters is used. */
  said: number;
}

interface Reading {
  spanish: string;
  /** Length of the English text in characters. */
  length: number;
}

/** Longest text that is translated. A longer text is not from tillsync. */
const TEXT_MAX = 4_000;
/** Maximum number of parts of one text that are examined, because a foreign text may match in very many ways. */
const LOOKS_MAX = 200;
const REMEMBERED_MAX = 2_000;

/** Translates texts that consist of a table's sentences, one after the other or one inside another. */
export class Translator {
  readonly #table: Readonly<Record<string, string>>;
  #patterns: Pattern[] | undefined;
  /** Cached results for each text and for its parts. */
  readonly #told = new Map<string, string | undefined>();
  #looks = 0;

  constructor(table: Readonly<Record<string, string>>) {
    this.#table = table;
  }

  /** Translates a whole text. Returns undefined if a part is unknown, such as the platform's own words. */
  whole(text: string): string | undefined {
    this.#begin();
    return this.#whole(text);
  }

  /** Translates sentence by sentence. Unknown sentences are left as they are. */
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
    // If the search was given up, the result is not cached, because the part may be found when it is looked up alone.
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

  /** Returns the length of a name in front of a known sentence: `B1: Nothing is heard of it.` → 3 (with the colon). */
  #labelLength(text: string): number | undefined {
    const label = LABEL.exec(text)?.[0];
    return label && this.#readings(text.slice(label.length)).length > 0 ? label.length - 1 : undefined;
  }

  /** Returns the possible readings of the text's beginning, likeliest first. */
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
   * Returns the texts that a placeholder at the end may hold: the whole rest if it is a known sentence, else each part
   * before a possible next sentence.
   */
  #endings(rest: string): string[] {
    if (this.#whole(rest) !== undefined) return [rest];
    const ends = [...rest.matchAll(/ (?=[A-Z])/g)].map(({ index }) => index);
    const [word = rest] = rest.split(' ', 1);
    return [...new Set([...ends.map((end) => rest.slice(0, end)), word, rest])];
  }

  /** Inserts the values into a Spanish sentence. A value that is itself a known text is translated. */
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
/**
 * Patterns of placeholders that match one kind of value only. A sentence such as `{time} ago` would otherwise match
 * any text.
 */
const VALUES: Readonly<Record<string, string>> = {
  time: '(\\d+(?:ms|[smhd])(?: \\d+[smhd])?)',
  count: '(\\d+)',
};

function isSentence(english: string): boolean {
  return /^[A-Z]/.test(english) || SENTENCE_END.test(english);
}

/** Compiles a pattern. A sentence must end with the text or before another sentence. */
function regExpOf(english: string): RegExp {
  const isOpen = OPEN.test(english);
  const escaped = english
    .replace(OPEN, '')
    .replaceAll(/[.*+?^$()|[\]\\]/g, String.raw`\$&`)
    .replaceAll(PLACE, (_all, name: string) => VALUES[name] ?? '(.+?)');
  return new RegExp(`^${escaped}${isOpen ? '' : isSentence(english) ? '(?=$| )' : '$'}`, 's');
}

const translator = new Translator(SPANISH_TEXTS);

/** Returns a text in Spanish; undefined if a part of it is unknown. */
export function inSpanish(text: string): string | undefined {
  return translator.whole(text);
}

/** Returns a text in this language. Sentences without a known translation are left in English. */
export function reasonIn(language: Language, text: string): string {
  return language === 'es' ? translator.known(text) : text;
}
