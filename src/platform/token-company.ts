import { decodeJwt } from 'jose';
import { TillsyncError } from '../domain/errors.ts';
import type { TokenStore } from '../domain/platform/tokens.ts';

/** Where a token may name its company; the document shows no claims. The id may lie in a record of its own. */
const CLAIMS = ['websiteId', 'companyId', 'company_id', 'company', 'website', 'tenantId', 'tenant'] as const;
const RECORD_IDS = ['_id', 'id'] as const;

/** The company that a token speaks for, by its claims; undefined where it shows none. */
export function companyOf(token: string | null | undefined): string | undefined {
  if (!token) return undefined;
  try {
    const claims = decodeJwt(token);
    for (const name of CLAIMS) {
      const id = idOf(claims[name]);
      if (id !== undefined) return id;
    }
  } catch {
    // Not a JWT: nothing is known.
  }
  return undefined;
}

/** Which company tokens are certainly of, where that is not the one this store belongs to. */
export function otherCompanyOf(
  store: Pick<TokenStore, 'company'>,
  ...tokens: (string | null | undefined)[]
): { own: string; offered: string } | undefined {
  const own = store.company();
  const offered = tokens.map(companyOf).find((id) => id !== undefined);
  return own === null || offered === undefined || offered === own ? undefined : { own, offered };
}

/** Throws `usage` for tokens of another company. */
export function refuseOtherCompany(
  store: Pick<TokenStore, 'company'>,
  ...tokens: (string | null | undefined)[]
): void {
  const other = otherCompanyOf(store, ...tokens);
  if (!other) return;
  throw new TillsyncError(
    'usage',
    `These tokens are of company ${other.offered}, and this store is of company ${other.own}. Nothing was changed.`,
    {
      hint:
        'For another company of this machine, name its configuration with --config FILE. ' +
        'To move this store to the other company: {tillsync} auth set --other-company',
    },
  );
}

function idOf(value: unknown): string | undefined {
  if (typeof value === 'number' && Number.isFinite(value)) return String(value);
  if (typeof value === 'string') return value.trim() === '' ? undefined : value.trim();
  if (typeof value !== 'object' || value === null) return undefined;
  const record = value as Record<string, unknown>;
  for (const name of RECORD_IDS) {
    const id = record[name];
    if (typeof id === 'string' || typeof id === 'number') return idOf(id);
  }
  return undefined;
}
