/** A separate process that uses the platform as the daemon and its commands do. Its arguments contain its job. */

import { openState } from '../../../src/app/state.ts';
import { silentLog } from '../../../src/core/log.ts';
import { whenFree } from '../../../src/core/loop.ts';
import { systemClock, systemRandom } from '../../../src/core/system-clock.ts';
import { PlatformClient } from '../../../src/platform/client.ts';
import type { PlatformLimits } from '../../../src/platform/platform.ts';
import type { TokenStore } from '../../../src/platform/tokens.ts';
import { createHttpTransport } from '../../../src/platform/transport.ts';

export const KILL_POINTS = ['before-intent', 'intent-written', 'answered', 'saved'] as const;
export type KillPoint = (typeof KILL_POINTS)[number];

export interface Job {
  path: string;
  url: string;
  limits: PlatformLimits;
  do: 'calls' | 'refresh';
  /** Number of calls of each of three endpoints. */
  rounds?: number;
  /** Point at which the process kills itself, as a power cut would. */
  killAt?: KillPoint;
}

const job: Job = JSON.parse(process.argv[2] ?? '{}');
const state = await whenFree(systemClock, () => openState({ path: job.path, clock: systemClock }));
const http = createHttpTransport({ userAgent: 'tillsync/test', baseUrl: job.url, clock: systemClock });

function dieAt(point: KillPoint): void {
  if (job.killAt === point) process.kill(process.pid, 'SIGKILL');
}

const tokens: TokenStore = Object.assign(Object.create(state.tokens), {
  read: () => state.tokens.read(),
  readIntent: () => state.tokens.readIntent(),
  clearIntent: (generation: number) => state.tokens.clearIntent(generation),
  wasHandedIn: (token: string) => state.tokens.wasHandedIn(token),
  acquireLease: (holdMs: number) => state.tokens.acquireLease(holdMs),
  releaseLease: (fence: number) => state.tokens.releaseLease(fence),
  markLockedOut: (...args: Parameters<TokenStore['markLockedOut']>) => state.tokens.markLockedOut(...args),
  writeIntent(generation: number) {
    dieAt('before-intent');
    state.tokens.writeIntent(generation);
    dieAt('intent-written');
  },
  save(...args: Parameters<TokenStore['save']>) {
    dieAt('answered');
    const saved = state.tokens.save(...args);
    dieAt('saved');
    return saved;
  },
});

const platform = new PlatformClient({
  transport: http,
  ledger: state.ledger,
  tokens,
  limits: job.limits,
  clock: systemClock,
  random: systemRandom,
  log: silentLog,
});

process.on('SIGTERM', async () => {
  await platform.close();
  state.close();
  process.exit(0);
});

if (job.do === 'refresh') {
  await platform.tokens.refresh();
} else {
  for (let i = 0; i < (job.rounds ?? 1); i++) {
    await Promise.all([
      platform.productGet({ sku: '1' }),
      platform.webhookGet(),
      platform.orderAll({ startDate: '2026-01-01', endDate: '2026-01-02' }),
    ]);
  }
}
await platform.close();
state.close();
