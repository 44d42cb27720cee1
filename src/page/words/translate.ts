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
