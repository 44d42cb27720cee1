import type { AlarmKey, Alarms } from '../../domain/health/alarm.ts';
import type { FreshnessState, FreshnessSubject } from '../../domain/health/freshness.ts';
import { FRESHNESS_SUBJECTS, type Freshness, type FreshnessBoard } from '../../domain/health/freshness.ts';
import { asTyped } from '../../domain/installation.ts';
import { isoUtc } from '../../domain/time/clock.ts';
import type { RaisedAlarm } from './board-rows.ts';
import type { MirrorFile } from './mirror-file.ts';

interface PendingAlarm {
  /** null: lowered. */
  message: string | null;
  at: string;
}

/**
 * Freshness and alarms. Their ports are synchronous while the database may be busy, so a report counts at once
 * for whoever asks here, and goes to the disk right after; what cannot be written is tried again with the next.
 */
export class Boards implements FreshnessBoard, Alarms {
  readonly #file: MirrorFile;
  #freshness = new Map<FreshnessSubject, Freshness>();
  #alarms = new Map<AlarmKey, PendingAlarm>();
  #flushing: Promise<void> | undefined;

  #onUnwritten: (alarms: readonly RaisedAlarm[]) => void = () => {};

  constructor(file: MirrorFile) {
    this.#file = file;
  }

  ok(subject: FreshnessSubject, message = ''): void {
    const now = isoUtc(this.#file.clock.nowMs());
    this.#put({ subject, lastOkAt: now, lastTryAt: now, state: 'ok', message });
  }

  report(subject: FreshnessSubject, state: FreshnessState, message: string): void {
    const lastOkAt = this.#freshness.get(subject)?.lastOkAt ?? null;
    this.#put({ subject, lastOkAt, lastTryAt: isoUtc(this.#file.clock.nowMs()), state, message });
  }

  raise(key: AlarmKey, text: string): void {
    const message = asTyped(text);
    if (this.#isUp(key) !== message) this.#putAlarm(key, message);
  }

  lower(key: AlarmKey): void {
    if (this.#isUp(key) !== null) this.#putAlarm(key, null);
  }

  /** One entry for each subject, those reported last included. */
  freshness(): Freshness[] {
    const stored = new Map(
      this.#file.read(({ board }) => board.freshness()).map((each) => [each.subject, each]),
    );
    return FRESHNESS_SUBJECTS.map((subject) => {
      const pending = this.#freshness.get(subject);
      const before = stored.get(subject) ?? unknown(subject);
      return pending ? { ...pending, lastOkAt: pending.lastOkAt ?? before.lastOkAt } : before;
    });
  }

  /** Alarms that are up, oldest first. */
  alarms(): RaisedAlarm[] {
    const up = new Map(this.#file.read(({ board }) => board.alarms()).map((alarm) => [alarm.key, alarm]));
    for (const [key, { message, at }] of this.#alarms) {
      if (message === null) up.delete(key);
      else up.set(key, { key, message, raisedAt: up.get(key)?.raisedAt ?? at, changedAt: at });
    }
    return [...up.values()];
  }

  /** Tells which raised alarms the disk did not take, from now on after each try; `listener` must not throw. */
  onUnwritten(listener: (alarms: readonly RaisedAlarm[]) => void): void {
    this.#onUnwritten = listener;
  }

  /** Tells the listener now; each try to write does so by itself. */
  tellUnwritten(): void {
    const raised = [...this.#alarms].flatMap(([key, { message, at }]) =>
      message === null ? [] : { key, message, raisedAt: at, changedAt: at },
    );
    this.#onUnwritten(raised);
  }

  /** Waits until what was reported is on the disk, or the disk refused it. */
  async flush(): Promise<void> {
    this.#flushing ??= this.#write();
    await this.#flushing;
  }

  #put({ message, ...rest }: Freshness): void {
    this.#freshness.set(rest.subject, { ...rest, message: asTyped(message) });
    void this.flush();
  }

  #putAlarm(key: AlarmKey, message: string | null): void {
    this.#alarms.set(key, { message, at: isoUtc(this.#file.clock.nowMs()) });
    void this.flush();
  }

  /** Message of the alarm, null when it is down, undefined when the database cannot say. */
  #isUp(key: AlarmKey): string | null | undefined {
    const pending = this.#alarms.get(key);
    if (pending) return pending.message;
    try {
      return (
        this.#file.read(({ board }) => board.alarms()).find((alarm) => alarm.key === key)?.message ?? null
      );
    } catch {
      return undefined;
    }
  }

  async #write(): Promise<void> {
    // Everything reported in this turn of the event loop becomes one transaction.
    await Promise.resolve();
    while ((this.#freshness.size > 0 || this.#alarms.size > 0) && !this.#file.closed) {
      const freshness = [...this.#freshness.values()];
      const alarms = [...this.#alarms];
      try {
        await this.#file.write(({ board }) => {
          for (const each of freshness) board.setFreshness(each);
          for (const [key, { message, at }] of alarms) {
            if (message === null) board.lower(key);
            else board.raise(key, message, at);
          }
        });
      } catch {
        // They stay pending; whoever keeps orders learns of the failing disk and says so.
        break;
      }
      for (const each of freshness) {
        if (this.#freshness.get(each.subject) === each) this.#freshness.delete(each.subject);
      }
      for (const [key, each] of alarms) if (this.#alarms.get(key) === each) this.#alarms.delete(key);
    }
    this.tellUnwritten();
    // In the same turn as the last look: what is reported from now on begins a write of its own.
    this.#flushing = undefined;
  }
}

function unknown(subject: FreshnessSubject): Freshness {
  return { subject, lastOkAt: null, lastTryAt: null, state: 'unknown', message: '' };
}
