import { secretForms } from './secret-forms.ts';

const HIDDEN = '[redacted]';
const JWT = /\beyJ[\w-]{6,}\.[\w-]{6,}(?:\.[\w-]*)?/g;
const BEARER = /\b(Bearer\s+)[^\s"'\\,;]+/gi;
/** Opaque tokens that rotate twice an hour fill this in days, long after the platform forgot the oldest. */
const REGISTERED_MAX = 256;

export interface LogScrubber {
  /** Hides `value`, however it is written, in every line from now on. */
  register(value: string): void;
  scrub(line: string): string;
}

/** The last gate before a log line leaves: hides registered secrets and anything that looks like a JWT. */
export function createLogScrubber(lasting: readonly string[] = []): LogScrubber {
  const kept = new Set(lasting.flatMap(secretForms));
  const rotating = new Map<string, string[]>();
  let forms: string[] = [];
  const rebuild = () => {
    // The longest first, so that a secret that contains another is hidden whole.
    forms = [...kept, ...[...rotating.values()].flat()].sort((a, b) => b.length - a.length);
  };
  rebuild();
  return {
    register(value) {
      rotating.delete(value);
      rotating.set(value, secretForms(value));
      if (rotating.size > REGISTERED_MAX) rotating.delete(rotating.keys().next().value ?? '');
      rebuild();
    },
    scrub(line) {
      let text = line;
      for (const form of forms) if (text.includes(form)) text = text.replaceAll(form, HIDDEN);
      return text.replace(JWT, HIDDEN).replace(BEARER, `$1${HIDDEN}`);
    },
  };
}
