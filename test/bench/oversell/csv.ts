import type { PlayedStrategy } from './play-all.ts';
import type { DayOutcome } from './shop-floor.ts';

/** The days of some strategies with the same customers. */
export interface Scenario {
  seed: number;
  /** Mean time until staff book an order. */
  bookingS: number;
  /** Share of the customers who order online. */
  onlineShare: number;
  played: readonly PlayedStrategy[];
}

const KEYS = ['seed', 'booking_s', 'online_share', 'strategy', 'day'] as const;
const COUNTS = ['orders', 'sold', 'atsale', 'outside', 'conflict', 'lost', 'calls'] as const;
const HEADER = [...KEYS, ...COUNTS].join(',');
const ROW = /^(\d+,[\d.]+,[\d.]+),"((?:[^"]|"")*)",(\d+),([\d,]+)$/;

/** Returns one row for each scenario, strategy and day. */
export function csvOf(scenarios: readonly Scenario[]): string {
  const rows = scenarios.flatMap(({ seed, bookingS, onlineShare, played }) =>
    played.flatMap(({ name, days }) => {
      const start = `${seed},${bookingS},${onlineShare},"${name.replaceAll('"', '""')}"`;
      return days.map((day, n) => [start, n, ...COUNTS.map((count) => day[count])].join(','));
    }),
  );
  return `${[HEADER, ...rows].join('\n')}\n`;
}

/** Reads the text that `csvOf` returned. The returned function returns the days of a scenario by strategy name. */
export function readCsv(
  text: string,
): (which: Omit<Scenario, 'played'>) => ReadonlyMap<string, readonly DayOutcome[]> {
  const [header, ...rows] = text.trimEnd().split('\n');
  if (header !== HEADER) throw new Error(`its first line is not "${HEADER}"`);
  const scenarios = new Map<string, Map<string, DayOutcome[]>>();
  for (const [n, row] of rows.entries()) {
    const [, scenario = '', quoted = '', day, counts = ''] = ROW.exec(row) ?? [];
    const values = counts.split(',').map(Number);
    const byStrategy = scenarios.get(scenario) ?? new Map<string, DayOutcome[]>();
    const name = quoted.replaceAll('""', '"');
    const days = byStrategy.get(name) ?? [];
    if (values.length !== COUNTS.length || Number(day) !== days.length)
      throw new Error(`its line ${n + 2} is not the next day of a strategy: ${row}`);
    days.push(Object.fromEntries(COUNTS.map((count, at) => [count, values[at]])) as unknown as DayOutcome);
    scenarios.set(scenario, byStrategy.set(name, days));
  }
  return ({ seed, bookingS, onlineShare }) =>
    scenarios.get(`${seed},${bookingS},${onlineShare}`) ?? new Map<string, DayOutcome[]>();
}
