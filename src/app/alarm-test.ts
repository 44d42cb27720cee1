import { existsSync } from 'node:fs';
import type { Config } from '../config/config-type.ts';
import type { Secrets } from '../config/secrets.ts';
import { asTillsyncError, TillsyncError, whenFree } from '../core/errors.ts';
import { openWhenFree } from '../core/files.ts';
import type { Clock } from '../core/time.ts';
import type { AlarmRows, AlarmTestResult, AlarmTestWish } from '../health/alarm-news.ts';
import { type AlarmReceiver, commandReceiver, testReport, urlReceiver } from '../health/alarm-receivers.ts';
import { type HeartbeatTarget, type Pulse, sendHeartbeat } from '../health/heartbeat.ts';
import { programVersion, shopName } from './installation.ts';
import { RUNNING, storagePaths } from './storage.ts';
import { openState } from './stores.ts';

export interface ReceiverSettings {
  config: Pick<Config, 'shop' | 'alarms'>;
  secrets: Pick<Secrets, 'alarmUrl' | 'alarmToken' | 'heartbeatUrl'>;
  /** Of this process; the command gets little of it, and nothing secret. */
  env: NodeJS.ProcessEnv;
}

/** The receivers that are configured; none: alarms are on the status page and in the log only. */
export function alarmReceivers({ config, secrets, env }: ReceiverSettings): AlarmReceiver[] {
  const { command, timeoutMs } = config.alarms;
  const url = secrets.alarmUrl ?? config.alarms.url;
  const receivers: AlarmReceiver[] = [];
  if (command.length > 0) receivers.push(commandReceiver(command, timeoutMs, env));
  if (url !== '') receivers.push(urlReceiver(url, secrets.alarmToken, timeoutMs));
  return receivers;
}

const HEARTBEAT_TIMEOUT_MS = 10_000;

/** Where signs of life go; undefined: nobody watches from outside. */
export function heartbeatTarget({
  config: { alarms },
  secrets,
}: Pick<ReceiverSettings, 'config' | 'secrets'>): HeartbeatTarget | undefined {
  const url = secrets.heartbeatUrl ?? alarms.heartbeatUrl;
  if (url === '') return undefined;
  const timeoutMs = Math.min(alarms.timeoutMs, HEARTBEAT_TIMEOUT_MS);
  return { url, timeoutMs, version: programVersion() };
}

export interface TestSettings extends ReceiverSettings {
  /** How things stand, as the heartbeat tells it; left out: all is well. */
  pulse?: () => Pulse;
  clock: Clock;
  signal: AbortSignal;
}

/**
 * Sends a test message to every receiver at once, and a heartbeat, with no effect on what the daemon tells. Throws
 * `config-invalid`.
 */
export async function testAlarms(settings: TestSettings): Promise<AlarmTestResult[]> {
  const { config, pulse, clock, signal } = settings;
  const receivers = alarmReceivers(settings);
  const target = heartbeatTarget(settings);
  if (receivers.length === 0 && !target) {
    throw new TillsyncError('config-invalid', 'No receiver of alarms is configured.', {
      hint: 'Set alarms.command, alarms.url or alarms.heartbeat_url, or hand in an alarm-url or a heartbeat-url among the secrets.',
    });
  }
  const { dailyMax } = config.alarms;
  const report = testReport({
    shop: config.alarms.name || shopName(config),
    dailyMax,
    version: programVersion(),
    nowMs: clock.nowMs(),
  });
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
  const alive: Pulse = { isRed: false, codes: [] };
  return Promise.all([
    ...receivers.map((each) => tried(each.name, each.description, () => each.tell(report, signal))),
    ...(target
      ? [
          tried('heartbeat', `the heartbeat at ${new URL(target.url).host}`, () =>
            sendHeartbeat(target, pulse?.() ?? alive, signal),
          ),
        ]
      : []),
  ]);
}

/** Whoever asked has given up after this. */
const WISH_HOLDS_MS = 60_000;
const LOOK_FOR_ANSWER_MS = 100;
/** The daemon looks every second, and a receiver has its own time on top. */
const DAEMON_PATIENCE_MS = 10_000;

function isOpen({ results, fault }: AlarmTestWish): boolean {
  return results === null && fault === null;
}

/** Sends the test message that a command asks for, as the service and from within its sandbox. Throws `storage-…`. */
export async function answerTestWish(
  rows: Pick<AlarmRows, 'testWish' | 'setTestWish'>,
  settings: TestSettings,
): Promise<void> {
  const { clock, signal } = settings;
  const wish = await whenFree(clock, () => rows.testWish(), undefined, signal);
  if (!wish || !isOpen(wish) || Math.abs(clock.nowMs() - wish.askedAtMs) >= WISH_HOLDS_MS) return;
  const done = await testAlarms(settings).then(
    (results) => ({ results, fault: null }),
    (error) => ({ results: null, fault: asTillsyncError(error).message }),
  );
  await whenFree(clock, () => rows.setTestWish({ ...wish, ...done }));
}

/**
 * The same by the running daemon: as its user and in its sandbox, which is what counts at night. undefined: none
 * runs. Throws `internal` when it does not answer, `storage-…` when this user may not ask.
 */
export async function runningTest(options: {
  config: Pick<Config, 'alarms' | 'storage'>;
  clock: Clock;
  signal: AbortSignal;
}): Promise<AlarmTestResult[] | undefined> {
  const { config, clock, signal } = options;
  const { state: path } = storagePaths(config.storage.directory);
  if (!existsSync(path)) return undefined;
  const state = await openWhenFree(clock, () => openState({ path, clock }));
  try {
    if (!(await whenFree(clock, () => state.leases.isHeld(RUNNING)))) return undefined;
    const free = <T>(action: () => T) => whenFree(clock, action, undefined, signal);
    const askedAtMs = clock.nowMs();
    const endMs = clock.monotonicMs() + config.alarms.timeoutMs + DAEMON_PATIENCE_MS;
    await free(() => state.alarms.setTestWish({ askedAtMs, results: null, fault: null }));
    let fault = 'The running tillsync did not answer.';
    while (!signal.aborted && clock.monotonicMs() < endMs) {
      await clock.sleep(LOOK_FOR_ANSWER_MS, signal);
      const wish = await free(() => state.alarms.testWish());
      if (wish?.askedAtMs !== askedAtMs || isOpen(wish)) continue;
      if (wish.results) return wish.results;
      fault = wish.fault ?? fault;
      break;
    }
    throw new TillsyncError(signal.aborted ? 'aborted' : 'internal', fault, {
      hint: 'If the configuration was changed since it started: {restart}',
    });
  } finally {
    state.close();
  }
}
