import { currentAssessment } from '../../src/app/read-only-services.ts';
import type { Services } from '../../src/app/services.ts';
import { silentLog } from '../../src/core/log.ts';
import type { Clock } from '../../src/core/time.ts';
import { Heartbeat } from '../../src/health/heartbeat.ts';
import { Notifier } from '../../src/health/notifier.ts';

type Watched = Pick<Services, 'config' | 'mirror' | 'state' | 'platform' | 'outbox'>;

/** Returns a function that calls `onNews` with each alarm message that is due by the store's alarm rules. */
export function listener(
  services: Watched,
  clock: Clock,
  onNews: (news: string, key: string) => void,
): () => Promise<void> {
  const { config, state } = services;
  const now = currentAssessment({ ...services, clock });
  const notifier = new Notifier({
    receiver: { name: 'command', description: '', tell: async ({ state: news, key }) => onNews(news, key) },
    rules: config.alarms,
    rows: state.alarms,
    report: ({ state: news, key }) => ({ state: news, key }) as never,
    dayOf: (nowMs) => new Date(nowMs).toISOString().slice(0, 10),
    onNotified() {},
    clock,
    log: silentLog,
  });
  const { signal } = new AbortController();
  return () => notifier.notify(now.read(), signal);
}

/** Returns a heartbeat that reports on the store to `url`. */
export function heartbeatTo(url: string, services: Watched, clock: Clock): Heartbeat {
  const now = currentAssessment({ ...services, clock });
  return new Heartbeat({
    url,
    everyMs: services.config.alarms.heartbeatEveryMs,
    timeoutMs: 1_000,
    version: '',
    assessment: () => now.read(),
    remember() {},
    onSent() {},
    clock,
    log: silentLog,
  });
}
