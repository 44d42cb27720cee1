/** One value of a metric, or one bucket of a histogram. */
export interface Sample {
  /** Suffix of the family's name: `_bucket`, `_sum` or `_count`. */
  suffix?: string;
  labels: Readonly<Record<string, string>>;
  value: number;
}

/** All values of one metric name, in base units: seconds, bytes. */
export interface MetricFamily {
  /** Name of the metric. The name of a counter ends in `_total`. */
  name: string;
  type: 'counter' | 'gauge' | 'histogram';
  help: string;
  samples(): Iterable<Sample>;
}

const NO_LABELS: Readonly<Record<string, string>> = {};

/** Makes a gauge from one value, or from samples such as those of `by`. Null means unknown, and gives no sample. */
export function gauge(name: string, help: string, found: number | null | readonly Sample[]): MetricFamily {
  const samples = typeof found === 'number' ? [{ labels: NO_LABELS, value: found }] : (found ?? []);
  return { name, help, type: 'gauge', samples: () => samples };
}

/** Makes one sample for each known figure, labelled by its name: by('code', { full: 2 }) → {code="full"} 2. */
export function by(label: string, figures: Readonly<Record<string, number | null | undefined>>): Sample[] {
  return Object.entries(figures).flatMap(([text, value]) =>
    value == null ? [] : [{ labels: { [label]: text }, value }],
  );
}

/** Makes one sample for each state: 1 for the present state, 0 for the others. */
export function byState(
  states: readonly string[],
  state: string,
  labels: Sample['labels'] = NO_LABELS,
): Sample[] {
  return states.map((one) => ({ labels: { ...labels, state: one }, value: one === state ? 1 : 0 }));
}

/** `text` is the Prometheus text format 0.0.4, `openmetrics` is OpenMetrics 1.0. */
export type MetricsFormat = 'text' | 'openmetrics';

export const CONTENT_TYPES: Record<MetricsFormat, string> = {
  text: 'text/plain; version=0.0.4; charset=utf-8',
  openmetrics: 'application/openmetrics-text; version=1.0.0; charset=utf-8',
};

/** Returns the format that the Accept header asks for. Only Prometheus asks for OpenMetrics. */
export function wantedFormat(accept: string | undefined): MetricsFormat {
  return accept?.includes('application/openmetrics-text') ? 'openmetrics' : 'text';
}

/** Formats the families as one text. A family without samples is left out. */
export function exposition(families: readonly MetricFamily[], format: MetricsFormat): string {
  const lines: string[] = [];
  for (const family of families) {
    const samples = [...family.samples()];
    if (samples.length === 0) continue;
    const { name, type, help } = family;
    // OpenMetrics names a counter's family without the suffix of its samples.
    const familyName = format === 'openmetrics' && type === 'counter' ? name.replace(/_total$/, '') : name;
    lines.push(`# HELP ${familyName} ${escapedHelp(help, format)}`, `# TYPE ${familyName} ${type}`);
    for (const sample of samples) lines.push(line(name, sample));
  }
  if (format === 'openmetrics') lines.push('# EOF');
  return `${lines.join('\n')}\n`;
}

function line(name: string, { suffix = '', labels, value }: Sample): string {
  const pairs = Object.entries(labels).map(([label, text]) => `${label}="${escapedLabel(text)}"`);
  return `${name}${suffix}${pairs.length === 0 ? '' : `{${pairs.join(',')}}`} ${figure(value)}`;
}

function figure(value: number): string {
  if (value === Number.POSITIVE_INFINITY) return '+Inf';
  if (value === Number.NEGATIVE_INFINITY) return '-Inf';
  return String(value);
}

function escapedHelp(text: string, format: MetricsFormat): string {
  const escaped = text.replaceAll('\\', '\\\\').replaceAll('\n', '\\n');
  return format === 'openmetrics' ? escaped.replaceAll('"', '\\"') : escaped;
}

function escapedLabel(text: string): string {
  return text.replaceAll('\\', '\\\\').replaceAll('"', '\\"').replaceAll('\n', '\\n');
}
