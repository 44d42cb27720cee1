import { asTillsyncError, TillsyncError } from '../../domain/errors.ts';
import type { Clock } from '../../domain/time/clock.ts';
import { programVersion } from '../version.ts';
import { alarmReceivers, type ReceiverSettings } from './alarm-receivers.ts';
import { testReport } from './alarm-report.ts';

/** What became of a test message. */
export interface AlarmTestResult {
  receiver: 'command' | 'url';
  description: string;
  ok: boolean;
  /** Why it did not arrive; empty when it did. */
  message: string;
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
  const { name, dailyMax } = config.alarms;
  const report = testReport({ name, dailyMax, version: programVersion(), nowMs: clock.nowMs() });
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
