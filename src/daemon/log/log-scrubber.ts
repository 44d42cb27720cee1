const HIDDEN = '[redacted]';
const JWT = /\beyJ[\w-]{6,}\.[\w-]{6,}(?:\.[\w-]*)?/g;
const BEARER = /\b(Bearer\s+)[^\s"'\\,;]+/gi;
/** Shorter values occur in ordinary words, and hiding them would make the log unreadable. */
const SECRET_LENGTH_MIN = 4;
/** Opaque tokens that rotate twice an hour fill this in days, long after the platform forgot the oldest. */
const REGISTERED_MAX = 256;

export interface LogScrubber {
  /** Hides `value`, however it is escaped, in every line from now on. */
  register(value: string): void;
  scrub(line: string): string;
}

/** The last gate before a log line leaves: hides registered secrets and anything that looks like a JWT. */
export function createLogScrubber(lasting: readonly string[] = []): LogScrubber {
  const kept = new Set(lasting.flatMap(writtenForms));
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
      rotating.set(value, writtenForms(value));
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

/** As it is, as JSON escapes it once and twice (JSON within JSON), and as an address or a header would carry it. */
function writtenForms(value: string): string[] {
  if (value.length < SECRET_LENGTH_MIN) return [];
  const json = jsonEscaped(value);
  const base64 = Buffer.from(value).toString('base64').replace(/=+$/, '');
  const url = encodeURIComponent(value);
  return [...new Set([value, json, jsonEscaped(json), url, base64])];
}

function jsonEscaped(text: string): string {
  return JSON.stringify(text).slice(1, -1);
}
