import { existsSync } from 'node:fs';
import type { Config } from '../../config/config-type.ts';
import { whenFree } from '../../domain/busy.ts';
import { asTillsyncError, TillsyncError } from '../../domain/errors.ts';
import type { AlarmTestResult } from '../../domain/health/alarm-test.ts';
import type { Clock } from '../../domain/time/clock.ts';
import { openState } from '../../store/state/open-state.ts';
import { RUNNING } from '../service/running-mark.ts';
import { shopName } from '../shop-name.ts';
import { openWhenFree } from '../storage/open-when-free.ts';
import { storagePaths } from '../storage/storage-directory.ts';
import { programVersion } from '../version.ts';
import { alarmReceivers, type ReceiverSettings } from './alarm-receivers.ts';
import { testReport } from './alarm-report.ts';
import { askForTest } from './alarm-test-loop.ts';

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
