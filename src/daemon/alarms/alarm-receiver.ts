import type { AlarmReport } from './alarm-report.ts';

/** Who is told of alarms. */
export interface AlarmReceiver {
  name: 'command' | 'url';
  /** For people; never the address itself, which may hold a secret. */
  description: string;
  /** Tells once, within the configured time. Throws a TillsyncError when it did not arrive. */
  tell(report: AlarmReport, signal: AbortSignal): Promise<void>;
}
