import type { Services } from '../app/services.ts';
import { isBranch } from '../config/roles.ts';
import { asTillsyncError, formatCommands, hasCode, TillsyncError } from '../core/errors.ts';
import { formatDuration, isoUtc } from '../core/time.ts';
import { beginOtherCompany } from '../orders/reading/order-queries.ts';
import type { TokenStatus } from '../platform/tokens.ts';
import { type Cli, EXIT, readAll } from './cli.ts';
import {
  type CommandTools,
  command,
  configOf,
  group,
  type Result,
  requirePlatform,
  withPlatform,
  withServices,
} from './command.ts';
import { askSecret } from './init/terminal.ts';

/**
 * Returns the state of the token pair, without the tokens. Times are ISO 8601 UTC by this machine's clock; null if
 * unknown. `needsNone` is true at a branch, which needs no tokens.
 */
export function authReport(status: TokenStatus, nowMs: number, needsNone = false) {
  const { lockedOut, accessExpiresInMs, refreshExpiresInMs } = status;
  return {
    state: status.state,
    /** True if calls are impossible until a person brings new tokens. */
    needsNewTokens: !needsNone && (status.state !== 'ok' || hasEnded(refreshExpiresInMs)),
    savedAt: iso(status.savedAtMs),
    accessExpiresAt: iso(accessExpiresInMs === null ? null : nowMs + accessExpiresInMs),
    refreshExpiresAt: iso(refreshExpiresInMs === null ? null : nowMs + refreshExpiresInMs),
    /** Number of the token pair, which rises with each rotation. */
    generation: status.generation,
    /** Milliseconds by which the platform's clock is ahead of this machine's. */
    clockSkewMs: status.clockSkewMs,
    /** `triesAgainAt` is when tillsync tries the refused token again; null if it does not. */
    lockedOut: lockedOut && {
      at: isoUtc(lockedOut.atMs),
      cause: lockedOut.cause,
      triesAgainAt: iso(status.triesAgainAtMs),
    },
    /** Start of a refresh that is running or whose answer was never saved; null if there is none. */
    openRefreshSince: iso(status.openIntentAtMs),
    message: needsNone ? NEEDS_NONE : formatCommands(sentence(status, nowMs)),
  };
}

export type AuthReport = ReturnType<typeof authReport>;

/** Longest duration of a refresh. A younger refresh may still be running, so its missing answer is no fault. */
const REFRESH_TAKES_MS = 60_000;
const NEEDS_NONE = 'This is a branch, which needs no tokens: only its hub calls the platform.';
const NEW_PAIR = 'Get a new pair from the company panel and hand it over: {tillsync} auth set';

function sentence(status: TokenStatus, nowMs: number): string {
  if (status.state === 'none') {
    return 'No tokens are stored yet. Hand over a refresh token: {tillsync} init, or {tillsync} auth set';
  }
  if (status.lockedOut?.cause === 'reply-lost') {
    const why = 'its answer to an earlier refresh was lost before it could be saved';
    return `The platform refuses the refresh token: ${why}. ${again(status, nowMs)}${NEW_PAIR}`;
  }
  if (status.state === 'locked-out') {
    return `The platform refuses the refresh token. ${again(status, nowMs)}${NEW_PAIR}`;
  }
  const refresh = rest('the refresh token', status.refreshExpiresInMs);
  if (hasEnded(status.refreshExpiresInMs)) {
    return `${capital(refresh)}, so the platform takes it no more. ${NEW_PAIR}`;
  }
  const both = `${accessRest(status)}, ${refresh}`;
  const openMs = status.openIntentAtMs === null ? 0 : nowMs - status.openIntentAtMs;
  if (openMs < REFRESH_TAKES_MS) return `${capital(both)}.`;
  return (
    `A refresh began ${formatDuration(openMs)} ago and its answer was never stored, ` +
    `so the platform may refuse the refresh token at the next one: ${both}.`
  );
}

function again({ triesAgainAtMs }: TokenStatus, nowMs: number): string {
  if (triesAgainAtMs === null) return '';
  if (triesAgainAtMs <= nowMs) return 'tillsync tries it again with its next call. ';
  return `tillsync tries it again in ${formatDuration(triesAgainAtMs - nowMs)}. `;
}

function accessRest({ hasAccessToken, accessExpiresInMs }: TokenStatus): string {
  if (!hasAccessToken) return 'an access token is fetched with the first call';
  const told = rest('the access token', accessExpiresInMs);
  return hasEnded(accessExpiresInMs) ? `${told} and is renewed with the next call` : told;
}

function rest(what: string, restMs: number | null): string {
  if (restMs === null) return `${what} has no known end`;
  return restMs > 0
    ? `${what} is good for ${formatDuration(restMs)}`
    : `${what} ended ${formatDuration(-restMs)} ago`;
}

function hasEnded(restMs: number | null): boolean {
  return restMs !== null && restMs <= 0;
}

function capital(text: string): string {
  return `${text.slice(0, 1).toUpperCase()}${text.slice(1)}`;
}

function iso(ms: number | null): string | null {
  return ms === null ? null : isoUtc(ms);
}

/** Tokens that a person handed in. The access token is optional, because a refresh token alone is enough. */
interface TokenInput {
  refreshToken: string;
  accessToken?: string;
}

const INPUT_MAX_BYTES = 64 * 1024;
const HINT =
  'Give the bare refresh token, or JSON such as {"refreshToken": "…", "token": "…"}, on standard input:\n' +
  '  {tillsync} auth set < FILE';

/**
 * Reads the tokens from standard input. Throws `usage` at a terminal and for unusable input, without repeating the
 * input.
 */
export async function readTokenInput(stdin: Cli['stdin']): Promise<TokenInput> {
  if (stdin.isTTY) {
    throw new TillsyncError('usage', 'Tokens are not typed at a terminal, where they would be shown.', {
      hint: HINT,
    });
  }
  return parseTokenInput(await readAll(stdin, INPUT_MAX_BYTES, unusable));
}

/**
 * Parses a bare refresh token, or JSON with `refreshToken` and perhaps `token` or `accessToken`. In JSON, they may also
 * be inside `data`, as in the platform's answers. Throws `usage` without repeating the input.
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

const set = command({
  description: 'Set new platform tokens',
  examples: ['auth set', 'auth set < pair.json', 'auth set --untried < refresh-token.txt'],
  options: {
    '--untried': 'Store the tokens without testing them',
    '--other-company': 'Accept tokens of another company',
  },
  async run(call) {
    const { cli, options } = call;
    requirePlatform(call);
    const tokens = cli.stdin.isTTY
      ? parseTokenInput(await askSecret(cli, 'Paste the new refresh token, then press Enter:'))
      : await readTokenInput(cli.stdin);
    return withServices(call, async (tools) => {
      const { platform, mirror, state } = tools.services;
      const offered = { ...tokens, otherCompany: options.otherCompany === true };
      const outcome = options.untried ? await stored(tools.services, offered) : await tried(tools, offered);
      if (offered.otherCompany) await mirror.write(beginOtherCompany);
      if (outcome !== 'known') {
        const how = outcome === 'stored' ? 'not tried' : 'the platform took them';
        const detail = offered.otherCompany ? `${how}; of another company` : how;
        await tools.note({ action: 'auth.set', subject: 'tokens', detail });
      }
      const company = state.tokens.company();
      return {
        json: authReport(platform.tokens.describe(), cli.clock.nowMs()),
        text: `${OUTCOMES[outcome]}${company === null ? '' : ` Company: ${company}.`}\n`,
      };
    });
  },
});

const OUTCOMES = {
  stored: 'The tokens are stored, and nobody has tried them yet; a running tillsync does with its next call.',
  adopted: 'The platform took the tokens; a running tillsync takes them up by itself.',
  known: 'These tokens were handed over before and led to those in use: nothing was changed.',
};

type OfferedTokens = TokenInput & { otherCompany: boolean };

async function stored({ platform, mirror }: Services, tokens: OfferedTokens): Promise<'stored'> {
  await platform.tokens.set(tokens);
  mirror.health.report('auth', 'waiting', 'New tokens were handed over and are not tried yet.');
  return 'stored';
}

/**
 * Tries the tokens at the platform. Throws `auth-required` if the platform refuses them. If the try itself fails, the
 * error says that nothing was changed, and what to do.
 */
async function tried(
  { services, progress, call }: CommandTools,
  { refreshToken, otherCompany }: OfferedTokens,
): Promise<'adopted' | 'known'> {
  const { health } = services.mirror;
  progress.step('trying the new tokens');
  try {
    const outcome = await services.platform.tokens.tryOut(refreshToken, call.onWait, otherCompany);
    if (outcome === 'known') return outcome;
    health.ok('auth');
    return outcome;
  } catch (error) {
    if (hasCode(error, 'auth-required', 'aborted', 'usage')) throw error;
    const { code, message } = asTillsyncError(error);
    throw new TillsyncError(code, `The tokens could not be tried, so nothing was changed: ${message}`, {
      cause: error,
      hint: 'Try it again in a while, or add --untried to store them without a try.',
    });
  }
}

function resultOf(report: AuthReport): Result {
  return { json: report, text: `${report.message}\n` };
}

const status = command({
  description: 'Show whether the tokens are valid, without showing them',
  examples: ['auth status', 'auth status --json'],
  async run(call) {
    const { storedTokens } = await import('../app/read-only-services.ts');
    const { cli } = call;
    const config = configOf(call);
    const tokens = await storedTokens({ config, clock: cli.clock });
    const report = authReport(tokens, cli.clock.nowMs(), isBranch(config));
    return { ...resultOf(report), exit: report.needsNewTokens ? EXIT.authRequired : EXIT.done };
  },
});

const refresh = command({
  description: 'Renew the tokens now',
  examples: ['auth refresh', 'auth refresh --json'],
  run: (context) =>
    withPlatform(context, async ({ services, progress, call }) => {
      progress.step('asking the platform for new tokens');
      await services.platform.tokens.refresh(call);
      services.mirror.health.ok('auth');
      return resultOf(authReport(services.platform.tokens.describe(), context.cli.clock.nowMs()));
    }),
});

export const auth = group('Manage platform tokens', { set, status, refresh });
