import type { MetricFamily, Sample } from './metric-family.ts';

/** `text`: the Prometheus text format 0.0.4. `openmetrics`: OpenMetrics 1.0. */
export type MetricsFormat = 'text' | 'openmetrics';

export const CONTENT_TYPES: Record<MetricsFormat, string> = {
  text: 'text/plain; version=0.0.4; charset=utf-8',
  openmetrics: 'application/openmetrics-text; version=1.0.0; charset=utf-8',
};

/** Prometheus names OpenMetrics first where it takes it; nobody else asks for it. */
export function wantedFormat(accept: string | undefined): MetricsFormat {
  return accept?.includes('application/openmetrics-text') ? 'openmetrics' : 'text';
}

/** The families as one text. A family without a figure is left out. */
export function exposition(families: readonly MetricFamily[], format: MetricsFormat): string {
  const lines: string[] = [];
  for (const family of families) {
    const samples = [...family.samples()];
    if (samples.length === 0) continue;
    const { name, type, help } = family;
    // OpenMetrics names a counter's family without the ending that its figures have.
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
