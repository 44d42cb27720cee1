import type { PeopleMask } from './people.ts';
import type { Redactor } from './redactor.ts';
import { faultOf, type Section, type SectionContent } from './section.ts';

export interface RenderedFile {
  name: string;
  what: string;
  text: string;
  /** Why it could not be read; null: it was. */
  fault: string | null;
  /** Whether it was longer than may leave. */
  isCut: boolean;
}

/** Twenty files of this size are what a mail can carry, before they are packed. */
const TEXT_LENGTH_MAX = 1024 * 1024;

type Gate = { redactor: Redactor; people: Pick<PeopleMask, 'text'> };

/** One file as it leaves: gathered, redacted, then cut, so that no secret is cut in two and missed. */
export async function renderSection(section: Section, gate: Gate): Promise<RenderedFile> {
  const { what } = section;
  const name = gate.redactor.known(section.name);
  let fault: string | null = null;
  let content: SectionContent;
  try {
    content = await section.make();
  } catch (error) {
    const document = faultOf(error);
    fault = gate.redactor.text(document.couldNotBeRead);
    content = { document };
  }
  const whole = gate.redactor.known(written(content, section, gate));
  const { text, isCut } = cut(whole, 'lines' in content ? 'newest-first' : 'newest-last');
  return { name, what, text, fault, isCut };
}

function written(content: SectionContent, { mayNamePeople }: Section, { redactor, people }: Gate): string {
  const withoutPeople = (text: string) => (mayNamePeople ? people.text(text) : text);
  const clean = (value: unknown) => eachText(redactor.document(value), withoutPeople);
  if ('text' in content) return withoutPeople(redactor.text(content.text));
  if ('document' in content) return `${JSON.stringify(clean(content.document), null, 2)}\n`;
  return content.lines.map((line) => `${JSON.stringify(clean(line))}\n`).join('');
}

function eachText(value: unknown, change: (text: string) => string): unknown {
  if (typeof value === 'string') return change(value);
  if (Array.isArray(value)) return value.map((each) => eachText(each, change));
  if (typeof value !== 'object' || value === null) return value;
  return Object.fromEntries(
    Object.entries(value).map(([key, each]) => [change(key), eachText(each, change)]),
  );
}

/** Keeps the newest whole lines. */
function cut(text: string, order: 'newest-first' | 'newest-last'): { text: string; isCut: boolean } {
  if (text.length <= TEXT_LENGTH_MAX) return { text, isCut: false };
  if (order === 'newest-first') {
    return { text: text.slice(0, text.lastIndexOf('\n', TEXT_LENGTH_MAX) + 1), isCut: true };
  }
  const end = text.slice(-TEXT_LENGTH_MAX);
  return { text: end.slice(end.indexOf('\n') + 1), isCut: true };
}
