import { existsSync } from 'node:fs';
import type { Config } from '../config/config-type.ts';
import type { Secrets } from '../config/secrets.ts';
import { asTillsyncError, TillsyncError, whenFree } from '../core/errors.ts';
import { openWhenFree } from '../core/files.ts';
import type { Clock } from '../core/time.ts';
import type { AlarmTestResult, AlarmTestWish, AlarmTestWishes } from '../health/alarm-news.ts';
import { commandReceiver, urlReceiver } from '../health/alarm-receivers.ts';
import { type AlarmReceiver, testReport } from '../health/alarm-teller.ts';
import { programVersion, shopName } from './installation.ts';
import { RUNNING, storagePaths } from './storage.ts';
import { openState } from './stores.ts';

export interface ReceiverSettings {
  config: Pick<Config, 'alarms'>;
  secrets: Pick<Secrets, 'alarmUrl' | 'alarmToken'>;
  /** Of this process; the command gets little of it, and nothing secret. */
  env: NodeJS.ProcessEnv;
}

/** The receivers that are configured; none: alarms are on the status page and in the log only. */
export function alarmReceivers({ config, secrets, env }: ReceiverSettings): AlarmReceiver[] {
  const { command, timeoutMs } = config.alarms;
  const url = secrets.alarmUrl ?? config.alarms.url;
  const receivers: AlarmReceiver[] = [];
  if (command.length > 0) receivers.push(commandReceiver({ command, timeoutMs, env }));
  if (url !== '') receivers.push(urlReceiver({ url, token: secrets.alarmToken, timeoutMs }));
  return receivers;
}

/** Whoever asked has given up after this. */
const WISH_HOLDS_MS = 60_000;
const LOOK_EVERY_MS = 1_000;
const LOOK_FOR_ANSWER_MS = 100;

export interface AlarmTestLoopOptions {
  wishes: AlarmTestWishes;
  test: (signal: AbortSignal) => Promise<AlarmTestResult[]>;
  clock: Clock;
  beat: () => void;
}

/** Sends the test messages that commands ask for, as the service and from within its sandbox. */
export async function alarmTestLoop(options: AlarmTestLoopOptions, signal: AbortSignal): Promise<void> {
  const { wishes, test, clock, beat } = options;
  while (!signal.aborted) {
    beat();
    const wish = await whenFree(clock, () => wishes.read(), undefined, signal);
    if (wish && isOpen(wish) && Math.abs(clock.nowMs() - wish.askedAtMs) < WISH_HOLDS_MS) {
      const done = await tried(test, signal);
      await whenFree(clock, () => wishes.write({ ...wish, ...done }));
    }
    await clock.sleep(LOOK_EVERY_MS, signal);
  }
}

async function tried(
  test: AlarmTestLoopOptions['test'],
  signal: AbortSignal,
): Promise<Pick<AlarmTestWish, 'results' | 'fault'>> {
  try {
    return { results: await test(signal), fault: null };
  } catch (error) {
    return { results: null, fault: asTillsyncError(error).message };
  }
}

/** Asks the running daemon for a test; undefined: it did not answer within `patienceMs`. */
export async function askForTest(options: {
  wishes: AlarmTestWishes;
  clock: Clock;
  patienceMs: number;
  signal: AbortSignal;
}): Promise<AlarmTestWish | undefined> {
  const { wishes, clock, patienceMs, signal } = options;
  const askedAtMs = clock.nowMs();
  const endMs = clock.monotonicMs() + patienceMs;
  await whenFree(clock, () => wishes.write({ askedAtMs, results: null, fault: null }), undefined, signal);
  while (!signal.aborted && clock.monotonicMs() < endMs) {
    await clock.sleep(LOOK_FOR_ANSWER_MS, signal);
    const wish = await whenFree(clock, () => wishes.read(), undefined, signal);
    if (wish?.askedAtMs === askedAtMs && !isOpen(wish)) return wish;
  }
  return undefined;
}

function isOpen({ results, fault }: AlarmTestWish): boolean {
  return results === null && fault === null;
}

/** Sends a test message to every receiver at once, with no effect on what the daemon tells. Throws `usage`. */
export async function testAlarms(
  settings: ReceiverSettings & { clock: Clock; signal: AbortSignal },
): Promise<AlarmTestResult[]> {
  const { config, clock, signal } = settings;
  const receivers = alarmReceivers(settings);
  if (receivers.length === 0) {
    throw new TillsyncError('config-invalid', 'No receiver of alarms is configured.', {
      hint: 'Set alarms.command or alarms.url, or hand in an alarm-url among the secrets.',
    });
  }
  const { dailyMax } = config.alarms;
  const report = testReport({
    shop: shopName(config),
    dailyMax,
    version: programVersion(),
    nowMs: clock.nowMs(),
  });
  return Promise.all(
    receivers.map(async (receiver): Promise<AlarmTestResult> => {
      const result = { receiver: receiver.name, description: receiver.description };
      try {
        await receiver.tell(report, signal);
        return { ...result, ok: true, message: '' };
      } catch (error) {
        return { ...result, ok: false, message: asTillsyncError(error).message };
      }
    }),
  );
}

/** The daemon looks every second, and a receiver has its own time on top. */
const DAEMON_PATIENCE_MS = 10_000;

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
    const patienceMs = config.alarms.timeoutMs + DAEMON_PATIENCE_MS;
    const wish = await askForTest({ wishes: state.alarmTests, clock, patienceMs, signal });
    if (wish?.results) return wish.results;
    throw new TillsyncError(
      signal.aborted ? 'aborted' : 'internal',
      wish?.fault ?? 'The running tillsync did not answer.',
      { hint: 'If the configuration was changed since it started: {restart}' },
    );
  } finally {
    state.close();
  }
}
