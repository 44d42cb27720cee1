import { createHmac } from 'node:crypto';
import { formatDuration } from '../core/time.ts';
import { drawHex } from './draws.ts';
import { platformNowMs, type SandboxEnvironment } from './settings.ts';

const HEADER = Buffer.from(JSON.stringify({ alg: 'HS256', typ: 'JWT' })).toString('base64url');

/**
 * Signs a JWT with HS256. It is synchronous because jose signs on the thread pool, and a simulation's fake clock must
 * not advance during a signature.
 */
function signJwt(claims: object, secret: string): string {
  const payload = Buffer.from(JSON.stringify(claims)).toString('base64url');
  const signature = createHmac('sha256', secret).update(`${HEADER}.${payload}`).digest('base64url');
  return `${HEADER}.${payload}.${signature}`;
}

export interface IssuedPair {
  token: string;
  refreshToken: string;
}

/**
 * The company of a token, and its lineage. All pairs rotated from one pair have one lineage and are blocked together.
 */
export interface Session {
  company: string;
  lineage: string;
}

/** Why a refresh token was refused. */
type DeadCause = 'rotated' | 'revoked' | 'expired' | 'unknown';

interface DeadRefreshUse {
  /** Platform's wall clock, ISO 8601. */
  at: string;
  cause: DeadCause;
}

interface TokenRecord extends Session {
  expiresAtMs: number;
  dead: DeadCause | null;
}

/** Issues, checks and rotates token pairs. A token that it did not issue is invalid. */
export class TokenOffice {
  readonly #environment: SandboxEnvironment;
  readonly #accessLifetimeMs: number;
  readonly #refreshLifetimeMs: number;
  /** Signs the JWTs; exposed for tests that verify them. */
  readonly signingSecret: string;
  readonly #access = new Map<string, TokenRecord>();
  readonly #refresh = new Map<string, TokenRecord>();
  readonly #deadUses: DeadRefreshUse[] = [];

  constructor(environment: SandboxEnvironment, accessLifetimeMs: number, refreshLifetimeMs: number) {
    this.#environment = environment;
    this.#accessLifetimeMs = accessLifetimeMs;
    this.#refreshLifetimeMs = refreshLifetimeMs;
    this.signingSecret = drawHex(environment.random, 64);
  }

  /** Lifetime text of the access token, such as `1h`. */
  get expiresIn(): string {
    return formatDuration(this.#accessLifetimeMs);
  }

  issue(company: string, lineage = drawHex(this.#environment.random, 16)): IssuedPair {
    const session = { company, lineage };
    return {
      token: this.#mint('access', session, this.#accessLifetimeMs, this.#access),
      refreshToken: this.#mint('refresh', session, this.#refreshLifetimeMs, this.#refresh),
    };
  }

  /** Returns the session of a bearer token; undefined if the token is expired, revoked or was not issued here. */
  session(accessToken: string | undefined): Session | undefined {
    const record = this.#access.get(accessToken ?? '');
    return record && this.#deadCause(record) === null ? record : undefined;
  }

  /** Returns the session of a valid refresh token. Use of a dead refresh token is counted and returns undefined. */
  refreshSession(refreshToken: string | undefined): Session | undefined {
    if (refreshToken === undefined) return undefined;
    const record = this.#refresh.get(refreshToken);
    const cause = record ? this.#deadCause(record) : 'unknown';
    if (record && cause === null) return record;
    this.#deadUses.push({
      at: new Date(platformNowMs(this.#environment)).toISOString(),
      cause: cause ?? 'unknown',
    });
    if (record && this.#environment.settings.reuseRevokes) this.#kill(record.lineage);
    return undefined;
  }

  /** Exchanges a valid refresh token for a new pair; the old one is dead from now on. */
  rotate(refreshToken: string, session: Session): IssuedPair {
    const record = this.#refresh.get(refreshToken);
    if (record) record.dead = 'rotated';
    return this.issue(session.company, session.lineage);
  }

  deadUses(): readonly DeadRefreshUse[] {
    return this.#deadUses;
  }

  expireAccessTokens(): void {
    for (const record of this.#access.values()) record.dead ??= 'expired';
  }

  revokeRefreshTokens(): void {
    for (const record of this.#refresh.values()) record.dead ??= 'revoked';
  }

  #kill(lineage: string): void {
    for (const record of [...this.#access.values(), ...this.#refresh.values()]) {
      if (record.lineage === lineage) record.dead ??= 'revoked';
    }
  }

  #deadCause(record: TokenRecord): DeadCause | null {
    return record.dead ?? (record.expiresAtMs <= platformNowMs(this.#environment) ? 'expired' : null);
  }

  #mint(use: string, session: Session, lifetimeMs: number, into: Map<string, TokenRecord>): string {
    const iat = Math.floor(platformNowMs(this.#environment) / 1000);
    const exp = iat + Math.floor(lifetimeMs / 1000);
    const jti = drawHex(this.#environment.random, 16);
    const token = signJwt({ iat, exp, company: session.company, use, jti }, this.signingSecret);
    into.set(token, { ...session, expiresAtMs: exp * 1000, dead: null });
    return token;
  }
}
