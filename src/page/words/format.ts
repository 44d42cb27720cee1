const NEAR_MS = 12 * 3_600_000;

type Unit = 'day' | 'hour' | 'minute' | 'second';

const UNITS: readonly (readonly [Unit, number])[] = [
  ['day', 86_400_000],
  ['hour', 3_600_000],
  ['minute', 60_000],
  ['second', 1_000],
];

/**
 * Returns formatters of numbers and times for a language and the shop's time zone. Without a zone that this browser has,
 * times are those of this machine. An unreadable time is returned unchanged.
 */
export function formatFor(language: string, shopZone?: string) {
  const timeZone = isZone(shopZone) ? shopZone : undefined;
  const numbers = new Intl.NumberFormat(language);
  const amounts = new Intl.NumberFormat(language, { maximumFractionDigits: 2 });
  const inCurrency = new Map<string, Intl.NumberFormat>();
  const relative = new Intl.RelativeTimeFormat(language, { numeric: 'auto', style: 'short' });
  const hours = new Intl.DateTimeFormat(language, {
    hour: '2-digit',
    minute: '2-digit',
    hourCycle: 'h23',
    timeZone,
  });
  const moments = new Intl.DateTimeFormat(language, {
    dateStyle: 'medium',
    timeStyle: 'short',
    hourCycle: 'h23',
    timeZone,
  });
  const age = (ageMs: number) => {
    const { count, unit } = steady(ageMs);
    if (count === 0) return relative.format(0, 'second');
    return new Intl.NumberFormat(language, { style: 'unit', unit, unitDisplay: 'short' }).format(count);
  };
  const seconds = new Intl.DateTimeFormat(language, {
    dateStyle: 'short',
    timeStyle: 'medium',
    hourCycle: 'h23',
    timeZone,
  });
  const within = (iso: string | null, write: (ms: number) => string) => {
    const ms = iso === null ? Number.NaN : Date.parse(iso);
    return Number.isNaN(ms) ? (iso ?? '') : write(ms);
  };
  return {
    number: (value: number) => numbers.format(value),
    /** Formats a quantity. A text that is no number is returned unchanged. */
    amount: (value: number | string | null) => written(value, amounts),
    /** Formats an amount of money. Without a currency, only the number is shown. */
    money(value: number | string | null, currency: string | null) {
      const format =
        currency === null ? amounts : (inCurrency.get(currency) ?? currencyOf(currency, language));
      if (currency !== null) inCurrency.set(currency, format);
      return written(value, format);
    },
    ago: (iso: string | null, nowMs: number) =>
      within(iso, (ms) => {
        const { count, unit } = steady(nowMs - ms);
        return relative.format(-count, unit);
      }),
    /** Formats an age in short form. */
    age: (iso: string | null, nowMs: number) => within(iso, (ms) => age(nowMs - ms)),
    duration(ms: number) {
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
    /** Formats hour and minute. */
    hour: (iso: string) => within(iso, (ms) => hours.format(ms)),
    /** Formats date and time to the second, for lists in which several things happen in a minute. */
    exact: (iso: string | null) => within(iso, (ms) => seconds.format(ms)),
    moment: (iso: string | null) => within(iso, (ms) => moments.format(ms)),
    /**
     * Formats a time less than 12 hours away as hour and minute, any other as date and time. It does not return an age,
     * because an age changes all the time, and a screen reader would read out each change.
     */
    near: (iso: string | null, nowMs: number) =>
      within(iso, (ms) => (Math.abs(nowMs - ms) < NEAR_MS ? hours : moments).format(ms)),
  };
}

/** A browser may be older than the name of a zone. */
function isZone(timeZone: string | undefined): boolean {
  try {
    new Intl.DateTimeFormat('en', { timeZone });
    return true;
  } catch {
    return false;
  }
}

function currencyOf(currency: string, language: string): Intl.NumberFormat {
  return new Intl.NumberFormat(language, { style: 'currency', currency, currencyDisplay: 'narrowSymbol' });
}

function written(value: number | string | null, format: Intl.NumberFormat): string {
  const number = value === null || value === '' ? Number.NaN : Number(value);
  return Number.isFinite(number) ? format.format(number) : String(value ?? '');
}

/**
 * Returns an age in whole units. Below a minute, the number changes only every ten seconds, so that the text does not
 * flicker.
 */
function steady(ageMs: number): { count: number; unit: Unit } {
  if (ageMs < 10_000) return { count: 0, unit: 'second' };
  const [unit, unitMs] = UNITS.find(([, each]) => ageMs >= each) ?? ['second', 1_000];
  const count = Math.floor(ageMs / unitMs);
  return { count: unit === 'second' ? count - (count % 10) : count, unit };
}
