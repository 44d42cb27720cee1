import { alarmReceivers, alarmTestLoop, testAlarms } from '../app/alarm-test.ts';
import { programVersion, shopName } from '../app/installation.ts';
import type { Parts, PartsOptions } from '../app/parts.ts';
import { storageSpace } from '../app/storage.ts';
import { zoneCalendar } from '../core/time.ts';
import { AlarmJudge } from '../health/alarm-news.ts';
import { AlarmsUp, AlarmTeller, alarmReport, standingWatch } from '../health/alarm-teller.ts';
import type { Counters } from '../health/counters.ts';
import type { NamedLoop } from './outgoing.ts';

const LOOK_EVERY_MS = 5_000;
const LOOK_EVERY_MIN_MS = 200;

/** What looks for alarms that no flow notices, and for each receiver what tells it. */
export function alarmLoops(
  { config, secrets, clock, log, lookEveryMs: standingEveryMs }: PartsOptions,
  parts: Parts,
  counters: Pick<Counters, 'alarmMessages'>,
): NamedLoop[] {
  const { mirror, state, platform } = parts;
  const { dailyMax, settleMs } = config.alarms;
  const shop = shopName(config);
  const calendar = zoneCalendar(config.orders.timezone);
  const version = programVersion();
  const lookEveryMs = Math.min(LOOK_EVERY_MS, Math.max(LOOK_EVERY_MIN_MS, settleMs / 2));
  const watch: NamedLoop = {
    name: 'standing',
    run: (signal, beat) =>
      standingWatch(
        {
          alarms: mirror.alarms,
          disk: () => storageSpace(config.storage.directory),
          hasNoTokens: () => platform.tokens.describe().state === 'none',
          orderCompanies: () => mirror.orderCompanies(),
          clockSkewMs: () => platform.clock.agreedSkewMs(),
          lookEveryMs: standingEveryMs,
          clock,
          log,
          beat,
        },
        signal,
      ),
  };
  const alarmsUp = new AlarmsUp({ stored: () => mirror.raisedAlarms(), clock });
  const tellers = alarmReceivers({ config, secrets, env: process.env }).map((receiver): NamedLoop => {
    const run: NamedLoop['run'] = (signal, beat) =>
      new AlarmTeller({
        receiver,
        judge: new AlarmJudge(config.alarms),
        alarmsUp: () => alarmsUp.read(),
        memory: state.alarms,
        report: (news) => alarmReport(news, { shop, dailyMax, version, nowMs: clock.nowMs() }),
        dayOf: (nowMs) => new Date(calendar.wallMs(nowMs)).toISOString().slice(0, 10),
        onTold: (channel, outcome) => counters.alarmMessages.add(1, { channel, outcome }),
        clock,
        log,
        beat,
        lookEveryMs,
      }).run(signal);
    return { name: `alarms.${receiver.name}`, run };
  });
  const test: NamedLoop = {
    name: 'alarms.test',
    run: (signal, beat) =>
      alarmTestLoop(
        {
          wishes: state.alarmTests,
          test: (until) => testAlarms({ config, secrets, env: process.env, clock, signal: until }),
          clock,
          beat,
        },
        signal,
      ),
  };
  return [watch, test, ...tellers];
}
