import { readFileSync } from 'node:fs';

/** Returns the sentences of a source file as templates: `{1}`, `{2}` … stand for inserted values. */
export function sentencesOf(file: string): string[] {
  const found = new Set<string>();
  for (const text of literalsOf(withoutComments(readFileSync(file, 'utf8')))) {
    const sentence = text.trim();
    if (
      isSentence(sentence) &&
      sentence
        .replaceAll(/\{\w+\}/g, '')
        .split(/\s+/)
        .filter((word) => /\w/.test(word)).length > 1 &&
      !SQL.test(sentence)
    )
      found.add(sentence);
  }
  return [...found];
}

/**
 * Returns every text of two or more words in a source file, also texts that become sentences only when values are
 * inserted. Placeholders for whole sentences at the ends of a text are left out.
 */
export function phrasesOf(file: string): string[] {
  const phrases = literalsOf(withoutComments(readFileSync(file, 'utf8')))
    .map((text) => text.trim().replaceAll(/^(\{\d+\} )+(?=[A-Z])|(?<=[.!?:"]) \{\d+\}$/g, ''))
    .filter((text) => !SQL.test(text) && /\p{L}{2,} .*\p{L}{2,}/u.test(text.replaceAll(/\{\w+\}/g, '')));
  return [...new Set(phrases)];
}

/** Whether the text begins and ends like a sentence, or begins like one and names a command of tillsync. */
function isSentence(text: string): boolean {
  return /^[A-Z{`]/.test(text) && (/[.!]$/.test(text) || text.includes('{tillsync}'));
}

const SQL = /^(SELECT|INSERT|UPDATE|DELETE|CREATE|UNION|WITH)\b/;

function withoutComments(source: string): string {
  return source.replaceAll(/\/\*[\s\S]*?\*\//g, '').replaceAll(/^\s*\/\/.*$/gm, '');
}

function literalsOf(source: string): string[] {
  const literals: string[] = [];
  for (let at = 0; at < source.length; at++) {
    const quote = source[at];
    if (quote !== "'" && quote !== '"' && quote !== '`') continue;
    const { text, end, inner } = literalAt(source, at);
    literals.push(text, ...inner);
    at = end;
  }
  return literals;
}

function literalAt(source: string, start: number): { text: string; end: number; inner: string[] } {
  const quote = source[start];
  const inner: string[] = [];
  let text = '';
  let places = 0;
  let at = start + 1;
  for (; at < source.length && source[at] !== quote; at++) {
    if (source[at] === '\\') {
      at += 1;
      text += source[at] === 'n' ? '\n' : source[at];
    } else if (quote === '`' && source.startsWith('${', at)) {
      const end = closingBrace(source, at + 2);
      inner.push(...literalsOf(source.slice(at + 2, end)));
      places += 1;
      text += `{${places}}`;
      at = end;
    } else if (source[at] === '\n' && quote !== '`') {
      break;
    } else {
      text += source[at];
    }
  }
  return { text, end: at, inner };
}

function closingBrace(source: string, start: number): number {
  let depth = 1;
  for (let at = start; at < source.length; at++) {
    const char = source[at];
    if (char === '`' || char === "'" || char === '"') at = literalAt(source, at).end;
    else if (char === '{') depth += 1;
    else if (char === '}') depth -= 1;
    if (depth === 0) return at;
  }
  return source.length;
}
