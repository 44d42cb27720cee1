import type { Random } from '../../../src/core/time.ts';
import { PUBLISHED_LIMITS } from '../../../src/demo/sandbox-platform.ts';
import type { PlatformLimits } from '../../../src/platform/platform.ts';
import type { SandboxOptions } from '../../../src/sandbox/shop.ts';
import { seededRandom } from '../../support/fake-clock.ts';

const MINUTE_MS = 60_000;
const HOUR_MS = 3_600_000;
const DAY_MS = 24 * HOUR_MS;

/** Moments at which America/Santiago changes its clock, or a month or a year ends there. */
const TURNS = [
  '2026-04-05T03:00Z', // the clock goes back an hour at midnight
  '2026-09-06T04:00Z', // the clock goes forward at midnight
  '2026-03-01T03:00Z',
  '2027-01-01T03:00Z',
  '2028-02-29T03:00Z',
  '2026-05-01T04:00Z',
].map((text) => Date.parse(text));

/** Limits so tight that the window's caps delay calls that the intervals alone would allow. */
const TIGHT_LIMITS: PlatformLimits = { ...PUBLISHED_LIMITS, requestsPerWindow: 20, ordersPerWindow: 2 };

/** Properties of a store that the seed decides before it opens. */
export interface Profile {
  seed: number;
  days: number;
  startMs: number;
  holdBack: boolean;
  /** Whether the store receives callbacks; it does if left out. */
  receives?: boolean;
  poll: string;
  /** Interval of checks for other processes' work, and for faults that no flow notices by itself. */
  lookEveryMs: number;
  orderEveryMs: number;
  /**
   * Whether the POS submits by SQL into inbox.db or by HTTP. It uses only one interface, because submissions through
   * two have no defined order.
   */
  bySql: boolean;
  /** Probability that a fault follows each pause; a pause is at most an hour long. */
  mishapShare: number;
  /** Whether mishaps include stops, crashes and reboots of the daemon; otherwise it runs all the time. */
  goesDown: boolean;
  /** The platform's limits, which the store knows. */
  limits: PlatformLimits;
  /** Days for which events, payloads and settled changes are stored; null means longer than any run. */
  keptDays: number | null;
  /** Zone in which the platform reads dates; the store does not know it. */
  calendar: string;
  /** Products per page. A product that is added or removed during a sweep moves others to another page. */
  pageSize: number;
  platform: Pick<
    SandboxOptions,
    'accessTokenLifetimeMs' | 'refreshTokenLifetimeMs' | 'retryAfter' | 'shape' | 'latencyMs' | 'reuseRevokes'
  >;
}

export function drawProfile(seed: number, days: number): Profile {
  const random = seededRandom(seed);
  const of = <T>(values: readonly T[]): T => values[Math.floor(random.next() * values.length)] as T;
  const turnMs = of(TURNS);
  return {
    seed,
    days,
    startMs: Math.floor(turnMs - days * DAY_MS * (0.2 + 0.6 * random.next())),
    holdBack: random.next() < 0.5,
    poll: of(['*/2 * * * *', '*/3 * * * *', '*/5 * * * *']),
    // This interval may be long, because no other process queues anything.
    lookEveryMs: 5 * MINUTE_MS,
    orderEveryMs: of([6, 9, 15]) * MINUTE_MS,
    bySql: random.next() < 0.5,
    mishapShare: of([0.3, 0.7, 1]),
    goesDown: random.next() < 0.75,
    platform: {
      accessTokenLifetimeMs: of([HOUR_MS, HOUR_MS, 10 * MINUTE_MS, 3 * MINUTE_MS]),
      refreshTokenLifetimeMs: of([30, 30, 1]) * DAY_MS,
      retryAfter: of(['seconds', 'date', 'absent']),
      shape: {
        envelope: of(['array', 'data', 'docs', 'orders']),
        record: of(['notification', 'internal', 'snake']),
      },
      latencyMs: [1, of([50, 400, 3_000])],
      reuseRevokes: random.next() < 0.5,
    },
    limits: of([PUBLISHED_LIMITS, PUBLISHED_LIMITS, TIGHT_LIMITS]),
    keptDays: of([null, 1, 7]),
    calendar: of(['America/Santiago', 'UTC', 'Pacific/Auckland', 'Pacific/Pago_Pago']),
    pageSize: of([100, 20, 7]),
  };
}

/** Makes a random source for each part, so that one part's draws change nothing for another. */
export function chanceFor(seed: number, part: number): Random {
  return seededRandom(Math.imul(seed + 1, 0x9e3779b1) ^ Math.imul(part, 0x85ebca6b));
}
