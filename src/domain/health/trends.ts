/** What went on within one hour. */
export interface TrendHour {
  /** Its begin, ISO 8601 UTC. */
  from: string;
  /** Orders created in it. */
  orders: number;
  /** Changes that the platform took in it. */
  pushed: number;
  /** From hand-over to the platform's yes: half of them were quicker. null: none was sent. */
  pushMedianMs: number | null;
  /** 95 of 100 were quicker. */
  pushP95Ms: number | null;
}

/** Begins of the last `count` hours, oldest first, the present one last. */
export function lastHours(nowMs: number, count: number): number[] {
  const present = Math.floor(nowMs / HOUR_MS) * HOUR_MS;
  return Array.from({ length: count }, (_, i) => present - (count - 1 - i) * HOUR_MS);
}

export const HOUR_MS = 3_600_000;

/** The value below which a share (0 to 1) of the values lies, by nearest rank; null when there are none. */
export function quantile(values: readonly number[], share: number): number | null {
  const sorted = values.toSorted((a, b) => a - b);
  return sorted[Math.max(Math.ceil(share * sorted.length) - 1, 0)] ?? null;
}
