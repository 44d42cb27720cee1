import { asTillsyncError, hasCode } from '../../domain/errors.ts';
import type { AlarmUp } from '../../domain/health/alarm-news.ts';
import { type Clock, isoUtc } from '../../domain/time/clock.ts';

export interface AlarmsUpOptions {
  /** May throw `storage-…`. */
  stored: () => readonly AlarmUp[];
  clock: Clock;
}

/**
 * The alarms that are up, as the mirror has them. Where it can no longer be read, that is an alarm itself, beside
 * those that were up before: none of them is over for that.
 */
export class AlarmsUp {
  readonly #options: AlarmsUpOptions;
  #last: readonly AlarmUp[] = [];
  #failingSince: string | undefined;

  constructor(options: AlarmsUpOptions) {
    this.#options = options;
  }

  /** Throws `storage-busy` alone, and then says nothing of any alarm. */
  read(): readonly AlarmUp[] {
    const { stored, clock } = this.#options;
    try {
      this.#last = stored();
      this.#failingSince = undefined;
      return this.#last;
    } catch (error) {
      if (hasCode(error, 'storage-busy')) throw error;
      this.#failingSince ??= isoUtc(clock.nowMs());
      const others = this.#last.filter(({ key }) => key !== 'storage.failing');
      const message = `The mirror cannot be read: ${asTillsyncError(error).message}`;
      return [...others, { key: 'storage.failing', message, raisedAt: this.#failingSince }];
    }
  }
}
