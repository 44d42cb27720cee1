import type { Config } from '../../config/config-type.ts';
import type { Wait } from '../../domain/platform/call.ts';
import type { Clock } from '../../domain/time/clock.ts';
import { configuredBranches } from '../reading/read-stores.ts';
import { arrivingCheck, type FirstSights, readFirstSights } from './arriving.ts';
import { type Check, type CheckId, skipped } from './check.ts';
import { type ClockReading, clockCheck } from './clock.ts';
import { attempts, limitsOutcome, productChecks } from './endpoints.ts';
import { outcomeOfFindings } from './from-findings.ts';
import type { PlatformParts } from './platform-parts.ts';
import type { Stored } from './stored.ts';
import { addressChecks, registeredCheck, webhookOffChecks } from './webhook.ts';

export interface PlatformChecksOptions {
  config: Config;
  /** undefined when it cannot be opened; `closed` says why. */
  platform: PlatformParts | undefined;
  closed: string | undefined;
  /** Says why nothing beyond this machine is tried; undefined: it is. */
  whyNot: () => string | undefined;
  stored: Stored | undefined;
  running: boolean | null;
  clock: Clock;
  signal: AbortSignal;
  onWait: (wait: Wait) => void;
}

/** What is on the other side: the platform's endpoints, its clock, its webhook and the way of callbacks to here. */
export function platformChecks(options: PlatformChecksOptions): Check[] {
  const { config, platform, stored } = options;
  const { enabled } = config.webhook;
  const clockAtLast = clockCheck(() => clockReading(platform, stored));
  if (!platform) {
    const ids: CheckId[] = ['platform.limits', 'platform.products', 'platform.product'];
    return [...unopened(ids, options), clockAtLast, ...(enabled ? callbacks(options) : webhookOffChecks())];
  }
  const { parts } = platform;
  const attempt = attempts({ ...options, hopeless: options.whyNot });
  const anySku = () =>
    parts.mirror.read(({ db }) => db.prepare('SELECT sku FROM skus LIMIT 1').pluck().get());
  const registered = registeredCheck({
    wantedUrl: config.webhook.callbackUrl,
    show: (how) => parts.webhookRegistration.show(how),
    memory: () => parts.state.webhook.read(),
    attempt,
  });
  return [
    {
      id: 'platform.limits',
      run: () => {
        const waits = parts.state.ledger.waits(config.limits);
        const found =
          stored && outcomeOfFindings(stored.verdict, ['platform.blocked', 'platform.forbidden'], { waits });
        return found ?? limitsOutcome(waits);
      },
    },
    ...productChecks({
      platform: parts.platform,
      branches: configuredBranches(config),
      anySku: () => asSku(anySku()),
      attempt,
    }),
    ...(enabled ? [orAlarm(registered, stored)] : []),
    clockAtLast,
    ...(enabled ? callbacks(options, parts.webhookSecrets.current()) : webhookOffChecks()),
  ];
}

/** Where it cannot be looked at now, what the daemon saw of it last. */
function orAlarm({ id, run }: Check, stored: Stored | undefined): Check {
  return {
    id,
    async run() {
      const outcome = await run();
      if (outcome.level !== 'skipped' || !stored) return outcome;
      return outcomeOfFindings(stored.verdict, ['webhook.mismatch'], outcome.facts) ?? outcome;
    },
  };
}

/** The receiver here, its public address, and what really comes. */
function callbacks(options: PlatformChecksOptions, secret?: string): Check[] {
  const { config, signal, stored, running, clock, whyNot, platform } = options;
  const addresses = addressChecks({ config, secret, signal, running, whyNot });
  const arriving: Check = stored
    ? arrivingCheck({
        verdict: stored.verdict,
        sights: () => firstSights(stored, clock),
        clock,
      })
    : { id: 'webhook.arriving', run: () => skipped('The mirror cannot be looked into.') };
  const unread = platform ? [] : unopened(['webhook.registered'], options);
  return [...unread, ...addresses, arriving];
}

function firstSights({ readers: { mirror } }: Stored, clock: Clock): FirstSights {
  const callbacks = mirror.freshness().find(({ subject }) => subject === 'orders.webhook');
  return mirror.read(({ db }) => readFirstSights(db, clock.nowMs(), callbacks?.lastOkAt ?? null));
}

function unopened(
  ids: readonly CheckId[],
  { closed = 'Not tried.', whyNot }: PlatformChecksOptions,
): Check[] {
  return ids.map((id) => ({ id, run: () => skipped(whyNot() ?? closed) }));
}

function clockReading(platform: PlatformParts | undefined, stored: Stored | undefined): ClockReading | null {
  const skewMs = platform?.skewMs() ?? null;
  if (skewMs !== null) return { skewMs, source: 'answer' };
  const tokens = stored?.tokens;
  // Tokens that were only handed in, and never refreshed, bring no time of the platform.
  if (!tokens || tokens.generation < 2) return null;
  return { skewMs: tokens.clockSkewMs, source: 'refresh' };
}

function asSku(value: unknown): string | undefined {
  return value === undefined || value === null ? undefined : String(value);
}
