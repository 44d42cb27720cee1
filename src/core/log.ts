/** Log whose methods take fields and then one sentence for a person. A logger of pino has these methods. */
export interface Log {
  debug(fields: object, message: string): void;
  info(fields: object, message: string): void;
  warn(fields: object, message: string): void;
  error(fields: object, message: string): void;
}

/** Log that discards all lines, for tests and tools. */
export const silentLog: Log = { debug() {}, info() {}, warn() {}, error() {} };

export const LOG_LEVELS = ['fatal', 'error', 'warn', 'info', 'debug', 'trace', 'silent'] as const;

/** Section `[log]` of the configuration. */
export interface LogConfig {
  readonly level: (typeof LOG_LEVELS)[number];
}

/** Length of the shortest secret that is hidden. A shorter one may be part of ordinary words. */
const LENGTH_MIN = 4;

/**
 * Returns every form in which a secret may be in a text: plain, escaped by JSON once or twice, URL-encoded once or
 * twice, in hex, and in base64 or base64url, alone or inside a longer text.
 */
export function secretForms(secret: string): string[] {
  if (secret.length < LENGTH_MIN) return [];
  const json = jsonEscaped(secret);
  const url = encodeURIComponent(secret);
  const hex = Buffer.from(secret).toString('hex');
  const forms = [
    ...[secret, json, jsonEscaped(json), url, encodeURIComponent(url), hex, hex.toUpperCase()],
    ...[url.replace(/%[0-9A-F]{2}/g, (code) => code.toLowerCase()), encodeURI(secret)],
    ...base64Forms(secret),
  ];
  return [...new Set(forms)].filter((form) => form.length >= LENGTH_MIN);
}

/**
 * Returns the parts of the secret's base64 text that stay the same inside a longer text. There are up to three, because
 * base64 encodes groups of three bytes, and the secret may begin at each byte of a group.
 */
function base64Forms(secret: string): string[] {
  const bytes = Buffer.from(secret);
  return [0, 1, 2].flatMap((before) => {
    const padded = Buffer.concat([Buffer.alloc(before), bytes]);
    const first = Math.ceil((before * 8) / 6);
    const whole = Math.floor((padded.length * 8) / 6);
    const inner = padded.toString('base64').slice(first, whole);
    // A shorter part would also match unrelated text.
    if (inner.length < 6) return [];
    return [inner, inner.replaceAll('+', '-').replaceAll('/', '_')];
  });
}

function jsonEscaped(text: string): string {
  return JSON.stringify(text).slice(1, -1);
}
