import { TillsyncError } from '../domain/errors.ts';

/** The pair that a person handed over; the access token only when they had one. */
export interface TokenInput {
  refreshToken: string;
  accessToken?: string;
}

const INPUT_MAX_BYTES = 64 * 1024;
const HINT =
  'Give the bare refresh token, or JSON such as {"refreshToken": "…", "token": "…"}, on standard input:\n' +
  '  {tillsync} auth set < FILE';

/** Reads all of standard input, which is never echoed and never part of an error. */
export async function readTokenInput(
  stdin: AsyncIterable<string | Uint8Array> & { readonly isTTY?: boolean | undefined },
): Promise<TokenInput> {
  if (stdin.isTTY) {
    throw new TillsyncError('usage', 'Tokens are not typed at a terminal, where they would be shown.', {
      hint: HINT,
    });
  }
  const parts: Buffer[] = [];
  let bytes = 0;
  for await (const part of stdin) {
    const buffer = Buffer.from(part);
    bytes += buffer.length;
    if (bytes > INPUT_MAX_BYTES) throw unusable(`more than ${INPUT_MAX_BYTES} bytes`);
    parts.push(buffer);
  }
  return parseTokenInput(Buffer.concat(parts).toString('utf8'));
}

/**
 * A bare refresh token, or JSON with `refreshToken` and perhaps `token` or `accessToken`; the platform's own
 * answer, with the pair in `data`, is understood, too. Throws `usage` without a word of the input.
 */
export function parseTokenInput(input: string): TokenInput {
  const text = input.replace(/^\ufeff/, '').trim();
  if (text === '') throw unusable('nothing');
  if (!/^[{["]/.test(text)) return { refreshToken: token(text, 'the refresh token') };
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch {
    throw unusable('text that looks like JSON and is not');
  }
  if (typeof value === 'string') return { refreshToken: token(value, 'the refresh token') };
  const outer = recordOf(value);
  const pair = 'refreshToken' in outer ? outer : recordOf(outer.data);
  if (pair.refreshToken === undefined) throw unusable('JSON without "refreshToken"');
  const refreshToken = token(pair.refreshToken, '"refreshToken"');
  const access = pair.token ?? pair.accessToken;
  return access === undefined || access === null || access === ''
    ? { refreshToken }
    : { refreshToken, accessToken: token(access, '"token"') };
}

function token(value: unknown, what: string): string {
  if (typeof value !== 'string') throw unusable(`${what} that is no text`);
  const text = value.trim().replace(/^Bearer\s+/i, '');
  if (!/^[\x21-\x7e]+$/.test(text)) throw unusable(`${what} with spaces, line breaks or unusual characters`);
  return text;
}

function recordOf(value: unknown): Record<string, unknown> {
  return typeof value === 'object' && value !== null ? (value as Record<string, unknown>) : {};
}

function unusable(found: string): TillsyncError {
  return new TillsyncError('usage', `No tokens were read: found ${found}. Nothing was changed.`, {
    hint: HINT,
  });
}
