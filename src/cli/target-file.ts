import { type Clock, isoUtc } from '../domain/time/clock.ts';

/** A name with the day in it, such as `tillsync-backup-2026-03-01.tar.gz`. */
export function datedName(what: string, clock: Pick<Clock, 'nowMs'>): string {
  return `${what}-${isoUtc(clock.nowMs()).slice(0, 10)}.tar.gz`;
}
