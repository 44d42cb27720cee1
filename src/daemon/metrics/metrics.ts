import type { Config } from '../../config/config-type.ts';
import { isSetUp } from '../../config/sample-config.ts';
import { whenFree } from '../../domain/busy.ts';
import { verdictOf } from '../../domain/health/verdict.ts';
import type { Log } from '../../domain/log.ts';
import type { Clock } from '../../domain/time/clock.ts';
import type { LoopBeat } from '../../local/health.ts';
import { gauge, type MetricFamily, plainGauge } from '../../local/metrics/metric-family.ts';
import type { Parts } from '../parts.ts';
import { mirrorCounts } from '../reading/mirror-counts.ts';
import { ordersStaleAfterMs } from '../reading/orders-stale.ts';
import { storageSpace } from '../storage/storage-space.ts';
import type { Counters } from './counters.ts';
import { EventCounts } from './event-counts.ts';
import { ProcessMetrics } from './process-metrics.ts';
import { QuarantineCounts } from './quarantine-counts.ts';
import { mirrorFamilies, outboxFamilies, storageFamilies, tokenFamilies } from './stored-metrics.ts';
import { verdictFamilies } from './verdict-metrics.ts';

export interface MetricsOptions {
  parts: Pick<Parts, 'mirror' | 'changeDesk' | 'platform'>;
  config: Config;
  counters: Counters;
  loopsAlive: () => readonly LoopBeat[];
  version: string;
  clock: Clock;
  log: Log;
}

const READ_WITHIN_MS = 2_000;

/** Everything `/metrics` tells. A source that cannot be read is named, and the others are told all the same. */
export class Metrics {
  readonly #options: MetricsOptions;
  readonly #process = new ProcessMetrics();
  readonly #quarantine = new QuarantineCounts();
  readonly #events: EventCounts;

  constructor(options: MetricsOptions) {
    this.#options = options;
    this.#events = new EventCounts(options.parts.mirror.newestSeq());
  }

  async collect(): Promise<MetricFamily[]> {
    const { parts, config, counters, clock, log } = this.#options;
    const { mirror, changeDesk, platform } = parts;
    const startMs = clock.monotonicMs();
    const disk = storageSpace(config.storage.directory);
    const readable = { mirror: 1, state: 1 };
    const families: MetricFamily[] = [];
    const read = async (source: keyof typeof readable, look: () => MetricFamily[]) => {
      try {
        families.push(...(await whenFree(clock, look, READ_WITHIN_MS)));
      } catch (error) {
        readable[source] = 0;
        log.debug({ source, err: error }, 'a source of the metrics cannot be read');
      }
    };
    await read('mirror', () => [
      ...mirrorFamilies(mirror),
      mirror.read(({ db }) => this.#quarantine.family(db)),
      ...outboxFamilies(changeDesk, clock),
      ...mirror.read(({ db }) => this.#events.families(db, mirror.newestSeq())),
    ]);
    await read('state', () => tokenFamilies(platform.tokens.describe()));
    await read('mirror', () => verdictFamilies(this.#verdict(disk)));
    const tookSeconds = (clock.monotonicMs() - startMs) / 1000;
    return [
      ...this.#about(readable),
      ...families,
      ...storageFamilies(config, disk),
      ...counters.families(),
      ...counters.inbox.families(clock),
      ...this.#process.families(),
      plainGauge('tillsync_scrape_duration_seconds', 'Time that looking these figures up took.', tookSeconds),
    ];
  }

  close(): void {
    this.#process.close();
  }

  #about(readable: Record<string, number>): MetricFamily[] {
    const { loopsAlive, version, clock } = this.#options;
    const nowMs = clock.monotonicMs();
    return [
      gauge('tillsync_build_info', 'Always 1; the versions are in the labels.', [
        { labels: { version, node: process.version }, value: 1 },
      ]),
      gauge(
        'tillsync_source_readable',
        'Whether the database could be read for this scrape; where it is 0, its figures are absent.',
        Object.entries(readable).map(([source, value]) => ({ labels: { source }, value })),
      ),
      gauge(
        'tillsync_loop_silent_seconds',
        'Time since the last sign of life of each loop; systemd restarts tillsync after ten minutes.',
        loopsAlive().map(({ name, lastBeatMs }) => ({
          labels: { loop: name },
          value: Math.max(0, nowMs - lastBeatMs) / 1000,
        })),
      ),
    ];
  }

  #verdict(disk: ReturnType<typeof storageSpace>) {
    const { parts, config, clock } = this.#options;
    const { mirror, changeDesk, platform } = parts;
    return verdictOf({
      nowMs: clock.nowMs(),
      isSetUp: isSetUp(config),
      freshness: mirror.freshness(),
      alarms: mirror.raisedAlarms(),
      tokens: platform.tokens.describe(),
      outbox: changeDesk.counts(),
      quarantine: mirrorCounts(mirror).quarantine,
      disk,
      ordersStaleAfterMs: ordersStaleAfterMs({ config, lastPollOkMs: mirror.lastPollOkMs() }),
    });
  }
}
