import { asTillsyncError } from '../../domain/errors.ts';
import { addressOf } from '../../platform/network-fault.ts';
import { reachPlatform } from '../reach-platform.ts';
import { type Check, failed, type Outcome, outcomeOfError, well } from './check.ts';

/** Whether the platform's address lets itself be connected to. Nothing is asked of it, so no limit is touched. */
export function networkCheck(baseUrl: string, signal: AbortSignal): Check {
  return { id: 'platform.network', run: () => tryToConnect(baseUrl, signal) };
}

async function tryToConnect(baseUrl: string, signal: AbortSignal): Promise<Outcome> {
  const { isTls: tls, ...to } = addressOf(baseUrl);
  const facts = { ...to, tls };
  const startMs = performance.now();
  try {
    await reachPlatform(baseUrl, signal);
  } catch (error) {
    if (signal.aborted) return outcomeOfError(error);
    const { message, hint = '', cause } = asTillsyncError(error);
    const code = cause instanceof Error && 'code' in cause ? String(cause.code) : null;
    return failed(message, hint, { ...facts, code });
  }
  const tookMs = Math.round(performance.now() - startMs);
  return well(`${to.host}:${to.port} takes connections (${tookMs} ms).`, { ...facts, tookMs });
}
