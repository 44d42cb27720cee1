/** Figures and times as people of a language write them. */
export interface Format {
  number(value: number): string;
  /** An amount as sent, in the company's currency, whose name nobody states. */
  amount(value: number | string | null): string;
  ago(iso: string | null, nowMs: number): string;
  /** The same where there is little room, as an age. */
  age(iso: string | null, nowMs: number): string;
  duration(ms: number): string;
  /** Hour and minute of this machine's clock. */
  hour(iso: string): string;
  moment(iso: string | null): string;
}

type Unit = 'day' | 'hour' | 'minute' | 'second';

const UNITS: readonly (readonly [Unit, number])[] = [
  ['day', 86_400_000],
  ['hour', 3_600_000],
  ['minute', 60_000],
  ['second', 1_000],
];

export function formatFor(language: string): Format {
  const numbers = new Intl.NumberFormat(language);
  const amounts = new Intl.NumberFormat(language, { maximumFractionDigits: 2 });
  const relative = new Intl.RelativeTimeFormat(language, { numeric: 'auto', style: 'short' });
  const hours = new Intl.DateTimeFormat(language, { hour: '2-digit', minute: '2-digit', hourCycle: 'h23' });
  const moments = new Intl.DateTimeFormat(language, { dateStyle: 'medium', timeStyle: 'short' });
  const age = (ageMs: number) => {
    const { count, unit } = steady(ageMs);
    if (count === 0) return relative.format(0, 'second');
    return new Intl.NumberFormat(language, { style: 'unit', unit, unitDisplay: 'short' }).format(count);
  };
  const within = (iso: string | null, write: (ms: number) => string) => {
    const ms = iso === null ? Number.NaN : Date.parse(iso);
    return Number.isNaN(ms) ? (iso ?? '') : write(ms);
  };
  return {
    number: (value) => numbers.format(value),
    amount(value) {
      const number = value === null || value === '' ? Number.NaN : Number(value);
      return Number.isFinite(number) ? amounts.format(number) : String(value ?? '');
    },
    ago: (iso, nowMs) => within(iso, (ms) => ago(nowMs - ms, relative)),
    age: (iso, nowMs) => within(iso, (ms) => age(nowMs - ms)),
    duration(ms) {
      if (ms < 1_000) return `${Math.round(ms)} ms`;
      const [unit, unitMs] = UNITS.find(([, each]) => ms >= each) ?? ['second', 1_000];
      const digits = ms / unitMs < 10 ? 1 : 0;
      return new Intl.NumberFormat(language, {
        style: 'unit',
        unit,
        unitDisplay: 'short',
        maximumFractionDigits: digits,
      }).format(ms / unitMs);
    },
    hour: (iso) => within(iso, (ms) => hours.format(ms)),
    moment: (iso) => within(iso, (ms) => moments.format(ms)),
  };
}

function ago(ageMs: number, words: Intl.RelativeTimeFormat): string {
  const { count, unit } = steady(ageMs);
  return words.format(-count, unit);
}

/** How old in whole units. A figure that runs with every second is no help. */
function steady(ageMs: number): { count: number; unit: Unit } {
  if (ageMs < 10_000) return { count: 0, unit: 'second' };
  const [unit, unitMs] = UNITS.find(([, each]) => ageMs >= each) ?? ['second', 1_000];
  const count = Math.floor(ageMs / unitMs);
  return { count: unit === 'second' ? count - (count % 10) : count, unit };
}
