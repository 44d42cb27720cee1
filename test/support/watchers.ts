import type { Parts } from '../../src/app/parts.ts';
import { verdictOn } from '../../src/app/readers.ts';
import { storageSpace } from '../../src/app/storage.ts';
import { silentLog } from '../../src/core/log.ts';
import type { Clock } from '../../src/core/time.ts';
import { Heartbeat } from '../../src/health/heartbeat.ts';
import { AlarmsUp, Notifier } from '../../src/health/notifier.ts';

type Watched = Pick<Parts, 'config' | 'mirror' | 'state' | 'platform' | 'outbox'>;

/** Told of alarms as a receiver is, by the settings of the store; each look tells `onNews` what is to be told then. */
export function listener(
  { config, mirror, state }: Watched,
  clock: Clock,
  onNews: (news: string, key: string) => void,
): () => Promise<void> {
  const up = new AlarmsUp(() => mirror.raisedAlarms(), clock);
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
  return () => notifier.look(up.read(), signal);
}

/** The heartbeat of the store, to this address. */
export function heartbeatTo(
  url: string,
  { config, mirror, platform, outbox }: Watched,
  clock: Clock,
): Heartbeat {
  const up = new AlarmsUp(() => mirror.raisedAlarms(), clock);
  return new Heartbeat({
    ...{ url, everyMs: config.alarms.heartbeatEveryMs, timeoutMs: 1_000, version: '' },
    verdict: () => {
      const tokens = platform.tokens.describe();
      const beside = { alarms: up.read(), tokens, outbox: outbox.counts() };
      return verdictOn(
        mirror,
        { config, clock },
        { ...beside, disk: storageSpace(config.storage.directory) },
      );
    },
    remember() {},
    onSent() {},
    clock,
    log: silentLog,
  });
}
