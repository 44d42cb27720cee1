import type { Config } from '../../config/config-type.ts';
import type { Clock } from '../../domain/time/clock.ts';
import { describeTokens, type TokenStatus } from '../../platform/token-status.ts';
import { openState } from '../../store/state/open-state.ts';
import { openWhenFree } from '../storage/open-when-free.ts';
import { isReadable, requireRights } from '../storage/rights.ts';
import { storagePaths } from '../storage/storage-directory.ts';

/**
 * How the stored tokens fare, beside a running daemon or before its first start; creates nothing. Throws
 * `storage-…` when this user may not read them.
 */
export async function storedTokens(options: { config: Config; clock: Clock }): Promise<TokenStatus> {
  const { config, clock } = options;
  const { state: path } = storagePaths(config.storage.directory);
  requireRights(config.storage.directory, 'read');
  if (!isReadable(path)) return describeTokens(null, null, 0);
  const state = await openWhenFree(clock, () => openState({ path, clock }));
  try {
    const pair = state.tokens.read();
    const intentAtMs = state.tokens.readIntent()?.startedAtMs ?? null;
    return describeTokens(pair, intentAtMs, clock.nowMs() + (pair?.clockSkewMs ?? 0));
  } finally {
    state.close();
  }
}
