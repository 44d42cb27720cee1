import { readFileSync } from 'node:fs';
import { isDeepStrictEqual } from 'node:util';
import { asWebhookMemory, NO_WEBHOOK_MEMORY } from '../../domain/platform/webhook-memory.ts';
import type { State } from '../../store/state/open-state.ts';
import { tokensSchema } from './manifest.ts';

/**
 * - `none`: the backup has none
 * - `taken`: they are used from now on
 * - `own-kept`: this machine has a pair that works, and the newer pair always wins
 */
export type TokensRestored = 'none' | 'taken' | 'own-kept';

/** Tokens and webhook secrets of a backup, where this machine has none that are of use. */
export function restoreTokens(file: string, state: Pick<State, 'tokens' | 'webhook'>): TokensRestored {
  const { tokens, webhook } = tokensSchema.parse(JSON.parse(readFileSync(file, 'utf8')));
  if (isDeepStrictEqual(state.webhook.read(), NO_WEBHOOK_MEMORY)) {
    // What a tillsync of another version remembers more or less than this one.
    state.webhook.update(() => asWebhookMemory(webhook));
  }
  if (tokens === null) return 'none';
  const own = state.tokens.read();
  if (own !== null && own.lockedOut === null) {
    return own.refreshToken === tokens.refreshToken ? 'taken' : 'own-kept';
  }
  if (own?.refreshToken === tokens.refreshToken) return 'own-kept';
  state.tokens.save(tokens, null);
  return 'taken';
}
