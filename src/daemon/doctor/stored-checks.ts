import type { Config } from '../../config/config-type.ts';
import { FINDING_SENTENCES, type FindingCode } from '../../domain/health/finding.ts';
import type { Clock } from '../../domain/time/clock.ts';
import { readStores } from '../reading/read-stores.ts';
import { type Check, type CheckId, hidden, well } from './check.ts';
import { flowChecks } from './flows.ts';
import { outcomeOfFindings } from './from-findings.ts';
import type { Stored } from './stored.ts';
import { tokensCheck } from './tokens.ts';

/** What cannot be told without looking into what is stored. */
export const STORED_CHECKS: readonly CheckId[] = [
  'tokens',
  'orders',
  'catalog',
  'changes',
  'changes.stock',
  'changes.products',
  'outbox',
  'quarantine',
  'alarms',
];

/** Findings that a check of their own tells, or looks at anew. */
const CHECKED: ReadonlySet<string> = new Set<FindingCode>([
  'service.down',
  'state.unusable',
  'storage.full',
  'storage.low',
  'auth',
  'auth.none',
  'auth.locked-out',
  'auth.expiring',
  'orders.stale',
  'orders.unreadable',
  'orders.more-pages',
  'orders.starting',
  'orders.resuming',
  'orders.poll',
  'orders.webhook',
  'webhook.refused',
  'webhook.silent',
  'webhook.unreadable',
  'webhook.mismatch',
  'catalog.incomplete',
  'catalog.sweep',
  'outbox.push',
  'outbox.stuck',
  'outbox.rejected',
  'outbox.held',
  'quarantine',
  'platform.blocked',
  'platform.forbidden',
]);
const OTHERS = (Object.keys(FINDING_SENTENCES) as FindingCode[]).filter((code) => !CHECKED.has(code));

export interface StoredChecksOptions {
  stored: Stored;
  config: Config;
  running: boolean | null;
  clock: Clock;
}

/** Tokens, flows, outbox and quarantine, in the words of the status page. */
export function storedChecks({ stored, config, running, clock }: StoredChecksOptions): Check[] {
  const { readers, verdict, tokens } = stored;
  const { mirror } = readers;
  const stores = readStores(mirror, config, clock);
  const tokenCheck: Check =
    tokens === null
      ? {
          id: 'tokens',
          run: () => hidden('state.db cannot be read, so nothing is known of the tokens.'),
        }
      : tokensCheck({ tokens, verdict, nowMs: clock.nowMs() });
  return [
    tokenCheck,
    ...flowChecks({
      verdict,
      freshness: mirror.freshness(),
      running,
      outbox: stores.read(({ queries }) => queries.counts()),
      sent: (kind) => stores.read(({ queries }) => queries.lastSent(kind)),
      quarantine: readers.counts().quarantine,
      clock,
    }),
    {
      id: 'alarms',
      run: () => outcomeOfFindings(verdict, OTHERS) ?? well('The status page tells of nothing else.'),
    },
  ];
}
