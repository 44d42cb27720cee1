import type * as z from 'zod';
import type { alarmTestResult } from '../api/schemas.ts';
import { programVersion, shopName } from '../app/installation.ts';
import type { Config } from '../config/config-type.ts';
import type { Secrets } from '../config/secrets.ts';
import { asTillsyncError } from '../core/errors.ts';
import type { Clock } from '../core/time.ts';
import { type AlarmReceiver, commandReceiver, testReport, urlReceiver } from '../health/alarm-receivers.ts';
import { type HeartbeatTarget, type RedCodes, sendHeartbeat } from '../health/heartbeat.ts';

export interface ReceiverSettings {
  config: Pick<Config, 'shop' | 'alarms' | 'orders'>;
  secrets: Pick<Secrets, 'alarmUrl' | 'alarmToken' | 'heartbeatUrl'>;
  /** Environment of this process. The command in `alarms.command` gets a small part of it, without secrets. */
  env: NodeJS.ProcessEnv;
}

type AlarmTestResult = z.output<typeof alarmTestResult>;

/** Returns the configured receivers. If there are none, alarms are only on the status page and in the log. */
export function alarmReceivers({ config, secrets, env }: ReceiverSettings): AlarmReceiver[] {
  const { command, timeoutMs } = config.alarms;
  const url = secrets.alarmUrl ?? config.alarms.url;
  const receivers: AlarmReceiver[] = [];
  if (command.length > 0) receivers.push(commandReceiver(command, timeoutMs, env));
  if (url !== '') receivers.push(urlReceiver(url, secrets.alarmToken, timeoutMs));
  return receivers;
}

/** Returns the data for alarm messages: the shop's name, language and time zone, and the daily limit of messages. */
export function reportContext({ shop, alarms, orders }: ReceiverSettings['config']) {
  return {
    shop: shopName({ shop }),
    dailyMax: alarms.dailyMax,
    version: programVersion(),
    language: shop.language,
    timeZone: orders.timezone,
  };
}

const HEARTBEAT_TIMEOUT_MS = 10_000;

/** Returns where heartbeats are sent; undefined if nobody watches from outside. */
export function heartbeatTarget({
  config: { alarms },
  secrets,
}: {
  config: Pick<Config, 'alarms'>;
  secrets: ReceiverSettings['secrets'];
}): HeartbeatTarget | undefined {
  const url = secrets.heartbeatUrl ?? alarms.heartbeatUrl;
  if (url === '') return undefined;
  const timeoutMs = Math.min(alarms.timeoutMs, HEARTBEAT_TIMEOUT_MS);
  return { url, timeoutMs, version: programVersion() };
}

export interface TestSettings extends ReceiverSettings {
  /** State that the heartbeat reports; if left out, the heartbeat reports that all is well. */
  redCodes?: () => RedCodes;
  clock: Clock;
  signal: AbortSignal;
}

/**
 * Sends a test message to every receiver, and a heartbeat, all at once. The daemon's own messages are not affected.
 * Returns the result of each; none if nobody is told.
 */
export async function testAlarms(settings: TestSettings): Promise<AlarmTestResult[]> {
  const { config, redCodes, clock, signal } = settings;
  const receivers = alarmReceivers(settings);
  const target = heartbeatTarget(settings);
  const report = testReport({ ...reportContext(config), nowMs: clock.nowMs() });
  const tried = async (
    receiver: AlarmTestResult['receiver'],
    description: string,
    send: () => Promise<void>,
  ): Promise<AlarmTestResult> => {
    try {
      await send();
      return { receiver, description, ok: true, message: '' };
    } catch (error) {
      return { receiver, description, ok: false, message: asTillsyncError(error).message };
    }
  };
  return Promise.all([
    ...receivers.map((each) => tried(each.name, each.description, () => each.tell(report, signal))),
    ...(target
      ? [
          tried('heartbeat', `the heartbeat at ${new URL(target.url).host}`, () =>
            sendHeartbeat(target, redCodes?.() ?? [], signal),
          ),
        ]
      : []),
  ]);
}
