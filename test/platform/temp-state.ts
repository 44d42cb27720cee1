import { mkdtempSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { onTestFinished } from 'vitest';
import { openState, type State } from '../../src/app/state.ts';
import type { Clock } from '../../src/core/time.ts';
import type { PlatformLimits } from '../../src/platform/platform.ts';
import { freshState } from '../support/fresh-mirror.ts';

export const documentLimits: PlatformLimits = {
  endpointIntervalMs: 1000,
  ordersIntervalMs: 120_000,
  windowMs: 300_000,
  requestsPerWindow: 1000,
  ordersPerWindow: 100,
};

export function tempDirectory(): string {
  return mkdtempSync(join(tmpdir(), 'tillsync-state-'));
}

/** Opens a state.db and closes it after the test. Several may be open on one path. */
export function tempState(clock: Clock, path = freshState(tempDirectory())): State & { path: string } {
  const state = openState({ path, clock });
  let open = true;
  const close = () => {
    if (open) state.close();
    open = false;
  };
  onTestFinished(close);
  return { ...state, close, path };
}
