import { alarmReceivers, answerTestWish } from '../app/alarm-test.ts';
import { programVersion, shopName } from '../app/installation.ts';
import type { Parts, PartsOptions } from '../app/parts.ts';
import { storageSpace } from '../app/storage.ts';
import { zoneCalendar } from '../core/time.ts';
import { FactWatch } from '../health/alarm-facts.ts';
import { alarmReport } from '../health/alarm-receivers.ts';
import type { Counters } from '../health/counters.ts';
import { AlarmsUp, Notifier } from '../health/notifier.ts';
import { WAITING_MAX, waitingOrders } from '../orders/order-queries.ts';
import type { NamedLoop } from './outgoing.ts';

const TEST_EVERY_MS = 1_000;
const FACTS_EVERY_MS = 15_000;
const TELL_EVERY_MS = 5_000;
const TELL_EVERY_MIN_MS = 200;

/**
 * Looks for what no flow notices by itself, tells the receivers of alarms, and sends the test messages that commands
 * ask for. What takes long runs beside it, one at a time for each receiver.
 */
export function alarmLoop(
  { config, secrets, clock, log, lookEveryMs = FACTS_EVERY_MS }: PartsOptions,
  { mirror, state, platform }: Pick<Parts, 'mirror' | 'state' | 'platform'>,
  counters: Pick<Counters, 'alarmMessages'>,
): NamedLoop {
  const { dailyMax, settleMs } = config.alarms;
  const tellEveryMs = Math.min(TELL_EVERY_MS, Math.max(TELL_EVERY_MIN_MS, settleMs / 2));
  const about = { shop: config.alarms.name || shopName(config), dailyMax, version: programVersion() };
  const calendar = zoneCalendar(config.orders.timezone);
  const alarmsUp = new AlarmsUp(() => mirror.raisedAlarms(), clock);
  const receiving = { config, secrets, env: process.env };
  const notifiers = alarmReceivers(receiving).map(
    (receiver) =>
      new Notifier({
        receiver,
        rules: config.alarms,
        rows: state.alarms,
        report: (news) => alarmReport(news, { ...about, nowMs: clock.nowMs() }),
        dayOf: (nowMs) => new Date(calendar.wallMs(nowMs)).toISOString().slice(0, 10),
        onNotified: (channel, outcome) => counters.alarmMessages.add(1, { channel, outcome }),
        clock,
        log,
      }),
  );
  const facts = new FactWatch({
    alarms: mirror.alarms,
    disk: () => storageSpace(config.storage.directory),
    hasNoTokens: () => platform.tokens.describe().state === 'none',
    orderCompanies: () => mirror.orderCompanies(),
    clockSkewMs: () => platform.clock.agreedSkewMs(),
    waitingOrders: () => mirror.read((db) => waitingOrders(db, clock.nowMs(), WAITING_MAX)),
    unbookedAfterMs: config.alarms.unbookedAfterMs,
    localTime: (iso) =>
      new Date(calendar.wallMs(Date.parse(iso))).toISOString().slice(0, 16).replace('T', ' '),
    clock,
  });
  const tell = (signal: AbortSignal) => {
    const up = alarmsUp.read();
    for (const notifier of notifiers) notifier.look(up, signal);
  };
  let testing: Promise<void> | undefined;
  const answerTest = (signal: AbortSignal) => {
    testing ??= answerTestWish(state.alarms, { ...receiving, clock, signal })
      .catch((error) => log.debug({ err: error }, 'a test of alarms cannot be answered now'))
      .finally(() => {
        testing = undefined;
      });
  };
  return {
    name: 'alarms',
    async run(signal, beat) {
      const steps = [
        { act: () => facts.look(), everyMs: lookEveryMs, dueMs: 0 },
        { act: tell, everyMs: tellEveryMs, dueMs: 0 },
        { act: answerTest, everyMs: TEST_EVERY_MS, dueMs: 0 },
      ];
      while (!signal.aborted) {
        beat();
        const nowMs = clock.monotonicMs();
        for (const step of steps.filter(({ dueMs }) => dueMs <= nowMs)) {
          step.dueMs = nowMs + step.everyMs;
          try {
            step.act(signal);
          } catch (error) {
            log.debug({ err: error }, 'what alarms are about cannot be read now');
          }
        }
        await clock.sleep(Math.min(...steps.map(({ dueMs }) => dueMs)) - clock.monotonicMs(), signal);
      }
      await Promise.all([testing, ...notifiers.map((notifier) => notifier.ended())]);
    },
  };
}
