/** A small fault in one line of a source. */
export interface Mutant {
  /** Path from the root of the checkout. */
  file: string;
  /** Line number; the first line is 1. */
  line: number;
  operator: string;
  before: string;
  /** The changed line; empty if the line is removed. */
  after: string;
}

type Change = (line: string) => string | undefined;

const replacing =
  (from: RegExp, to: string): Change =>
  (line) =>
    from.test(line) ? line.replace(from, to) : undefined;

/** Each operator returns the line with a fault in it; undefined if the operator does not apply to the line. */
const OPERATORS: Readonly<Record<string, Change>> = {
  'equal or not': (line) => {
    if (line.includes(' === ')) return line.replace(' === ', ' !== ');
    return line.includes(' !== ') ? line.replace(' !== ', ' === ') : undefined;
  },
  'off by one': (line) => {
    const swapped = {
      ' >= ': ' > ',
      ' <= ': ' < ',
      ' > ': ' >= ',
      ' < ': ' <= ',
      ' + 1': ' + 0',
      ' - 1': ' - 0',
    };
    const found = Object.entries(swapped).find(([from]) => line.includes(from));
    return found && !/=>|</.test(line.replace(found[0], '')) ? line.replace(...found) : undefined;
  },
  'and or or': (line) => {
    if (line.includes(' && ')) return line.replace(' && ', ' || ');
    return line.includes(' || ') ? line.replace(' || ', ' && ') : undefined;
  },
  'await dropped': replacing(/\bawait (?!using)/, ''),
  'condition turned round': replacing(/^(\s*)if \((.+)\) (?=\S)/, '$1if (!($2)) '),
  'statement gone': (line) => (/^\s*(?:this\.)?#?[\w.]+\([^;]*\);$/.test(line) ? '' : undefined),
  'constant changed': (line) =>
    /^(?:export )?const [A-Z_]+(?:: \w+)? = [\d_.]+( \* [\d_.]+)*;$/.test(line)
      ? line.replace(/= /, '= 3 * ')
      : undefined,
  'condition of SQL gone': replacing(/ AND [\w.]+ (?:=|<|>|<=|>=) [@?]\w*/, ''),
  'guard gone': (line) => (/^\s*if \(.+\) (?:return|throw|continue)\b.*;$/.test(line) ? '' : undefined),
};

/** Returns all faults that can be put into the file, each of which changes a single line. */
export function mutantsOf(file: string, text: string): Mutant[] {
  const found: Mutant[] = [];
  let isComment = false;
  for (const [at, before] of text.split('\n').entries()) {
    const trimmed = before.trim();
    if (trimmed.startsWith('/*')) isComment = true;
    if (
      !isComment &&
      !/^(?:\/\/|\*|import |export \{|export \* |type |interface |export type |export interface )/.test(
        trimmed,
      )
    ) {
      for (const [operator, change] of Object.entries(OPERATORS)) {
        const after = change(before);
        if (after !== undefined && after !== before)
          found.push({ file, line: at + 1, operator, before, after });
      }
    }
    if (trimmed.endsWith('*/')) isComment = false;
  }
  return found;
}
