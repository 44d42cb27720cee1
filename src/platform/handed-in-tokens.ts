import { whenFree } from '../domain/busy.ts';
import type { TokenStore } from '../domain/platform/tokens.ts';
import type { Clock } from '../domain/time/clock.ts';
import { companyOf, otherCompanyOf, refuseOtherCompany } from './token-company.ts';
import { handedInPair } from './token-times.ts';

/** Tokens that a person obtained from the platform's support or panel. */
export interface HandedInTokens {
  refreshToken: string;
  accessToken?: string | null;
  /** They may be of another company than this store. */
  otherCompany?: boolean;
}

export interface HandInOptions {
  store: TokenStore;
  clock: Clock;
}

/**
 * Offers tokens from the environment or from credentials. They are taken when the store has none, or when it
 * is locked out and this refresh token was never handed in before: a rotated token in the store is newer. Those of
 * another company are never taken.
 */
export function seedTokens(options: HandInOptions, tokens: HandedInTokens): Promise<'adopted' | 'kept'> {
  const { store, clock } = options;
  return whenFree(clock, () => {
    const held = store.read();
    if (held && !(held.lockedOut && isUnknown(store, held.refreshToken, tokens.refreshToken))) return 'kept';
    if (otherCompanyOf(store, tokens.accessToken, tokens.refreshToken)) return 'kept';
    return store.save(handedInPair(tokens), held?.generation ?? 0) ? 'adopted' : 'kept';
  });
}

/** Stores tokens on a person's word, whatever is there. */
export async function setTokens({ store, clock }: HandInOptions, tokens: HandedInTokens): Promise<void> {
  const { refreshToken, accessToken, otherCompany } = tokens;
  const company = companyOf(accessToken) ?? companyOf(refreshToken);
  await whenFree(clock, () => {
    if (!otherCompany) refuseOtherCompany(store, accessToken, refreshToken);
    store.save(handedInPair(tokens), null);
    if (company !== undefined) store.setCompany(company);
  });
}

function isUnknown(store: TokenStore, held: string, offered: string): boolean {
  return held !== offered && !store.wasHandedIn(offered);
}
