import type { WebhookState } from '../../domain/platform/platform.ts';
import { fields } from './table.ts';

/** A webhook configuration for a person; null: none is configured. */
export function webhookText(state: WebhookState | null): string {
  if (state === null) return 'The platform has no webhook configured.\n';
  return fields([
    ['callback url', state.callbackUrl],
    ['active', yesNo(state.active)],
    ['has a secret', yesNo(state.hasSecret)],
  ]);
}

function yesNo(value: boolean | null): string | null {
  return value === null ? null : value ? 'yes' : 'no';
}
