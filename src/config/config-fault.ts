import { TillsyncError } from '../domain/errors.ts';
import { jsonText } from '../domain/json/json-text.ts';

/** One thing wrong with the configuration. */
export interface ConfigFault {
  /** The file, or `environment variable NAME`. */
  origin: string;
  /** As written in the file: `orders.poll`, `branches[1].external_id`; empty when it is about the whole file. */
  key: string;
  /** What stands there, shortened, never a secret; `nothing` when a required key is missing. */
  found: string;
  /** What may stand there. */
  allowed: string;
  /** The known key or value that was probably meant. */
  suggestion?: string;
}

/** All faults as one `config-invalid` error whose message has one line for each. */
export function configError(faults: readonly ConfigFault[]): TillsyncError {
  const count = faults.length === 1 ? 'one fault' : `${faults.length} faults`;
  const lines = faults.map((fault) => `  ${describeFault(fault)}`);
  return new TillsyncError('config-invalid', `The configuration has ${count}:\n${lines.join('\n')}`, {
    hint: 'Correct the file or the environment, then try it with: {tillsync} config check',
  });
}

/** One line for a person. */
export function describeFault(fault: ConfigFault): string {
  const where = fault.key === '' ? fault.origin : `${fault.origin}: ${fault.key}`;
  const suggestion = fault.suggestion === undefined ? '' : `; did you mean ${fault.suggestion}?`;
  return `${where}: found ${fault.found}; allowed: ${fault.allowed}${suggestion}`;
}

const SHOWN_MAX = 60;
const TOKEN_LIKE = /eyJ[\w-]{4,}\.|^"[A-Za-z0-9_+=-]{32,}"$/;
/** A user and perhaps a password in an address. */
const USER_INFO = /:\/\/[^/\s"]*@/;
const SECRET_NAME = /secret|token|password|api_?key/i;

/** A value as a fault shows it: short, and hidden when it could be a secret that strayed into the file. */
export function shownValue(key: string, value: unknown): string {
  if (value === undefined) return 'nothing';
  const text = jsonText(value);
  if (text === undefined) return 'a value that is nested too deeply';
  if (SECRET_NAME.test(key) || [SECRET_NAME, TOKEN_LIKE, USER_INFO].some((sign) => sign.test(text))) {
    return 'a value that is not shown';
  }
  return text.length > SHOWN_MAX ? `${text.slice(0, SHOWN_MAX)}…` : text;
}

/** The candidate nearest to `word`, when it is near enough to be a slip of the hand. */
export function nearest(word: string, candidates: Iterable<string>): string | undefined {
  let best: string | undefined;
  let bestDistance = Math.max(1, Math.floor(word.length / 3)) + 1;
  for (const candidate of candidates) {
    const distance = editDistance(word.toLowerCase(), candidate.toLowerCase());
    if (distance < bestDistance) {
      best = candidate;
      bestDistance = distance;
    }
  }
  return best;
}

/** Levenshtein distance, with a swap of neighbours as one step. */
function editDistance(a: string, b: string): number {
  let before: number[] = [];
  let previous = Array.from({ length: b.length + 1 }, (_, j) => j);
  for (let i = 1; i <= a.length; i++) {
    const current = [i];
    for (let j = 1; j <= b.length; j++) {
      const same = a[i - 1] === b[j - 1];
      let least = Math.min(at(previous, j) + 1, at(current, j - 1) + 1, at(previous, j - 1) + (same ? 0 : 1));
      if (i > 1 && j > 1 && a[i - 1] === b[j - 2] && a[i - 2] === b[j - 1]) {
        least = Math.min(least, at(before, j - 2) + 1);
      }
      current.push(least);
    }
    before = previous;
    previous = current;
  }
  return at(previous, b.length);
}

function at(row: readonly number[], index: number): number {
  return row[index] ?? Number.POSITIVE_INFINITY;
}
