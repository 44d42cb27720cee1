/** When something is due, from a cron expression in a time zone. */
export interface Schedule {
  /** The first due moment strictly after `afterMs`, both milliseconds since the epoch. */
  nextAfter(afterMs: number): number;
}
