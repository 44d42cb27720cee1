import type { Wait } from '../../domain/platform/call.ts';
import type { Endpoint } from '../../domain/platform/limits.ts';
import { formatDuration } from '../../domain/time/duration.ts';

const CALL_NAMES: Record<Endpoint, string> = {
  'token.refresh': 'token refresh',
  'order.all': 'order poll',
  'product.put': 'product change',
  'product.stock.put': 'stock change',
  'product.batch': 'product batch',
  'product.stock.batch': 'stock batch',
  'product.list': 'product page',
  'product.get': 'product query',
  'webhook.put': 'webhook change',
  'webhook.get': 'webhook query',
};

/** Why a call waits, and how long, in one line: `next order poll allowed in 1m 12s`. */
export function waitText(wait: Wait): string {
  const call = CALL_NAMES[wait.endpoint];
  const rest = formatDuration(wait.waitMs);
  switch (wait.reason) {
    case 'interval':
      return `next ${call} allowed in ${rest}`;
    case 'in-flight':
      return `another ${call} is under way; at most ${rest} more`;
    case 'window':
      return `the platform's cap on calls is reached; next ${call} allowed in ${rest}`;
    case 'retry-after':
      return `the platform asked for patience (429); next ${call} allowed in ${rest}`;
    case 'blocked':
      return `the platform blocked the token (403); next ${call} allowed in ${rest}`;
    case 'refreshing':
      return `another process is refreshing the tokens; at most ${rest} more`;
  }
}
