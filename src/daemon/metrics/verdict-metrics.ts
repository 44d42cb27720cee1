import { FINDING_SENTENCES } from '../../domain/health/finding.ts';
import type { Verdict } from '../../domain/health/verdict.ts';
import { gauge, type MetricFamily, plainGauge } from '../../local/metrics/metric-family.ts';

const LEVELS: Record<Verdict['level'], number> = { green: 0, amber: 1, red: 2 };

/** The verdict of the status page, so that a rule need not know how it comes about. */
export function verdictFamilies({ level, findings }: Verdict): MetricFamily[] {
  const found = new Map(findings.map((finding) => [finding.code, finding.level]));
  return [
    plainGauge(
      'tillsync_verdict',
      'What the status page says: 0 green, 1 amber (look at it today), 2 red (orders or changes do not get through).',
      LEVELS[level],
    ),
    gauge(
      'tillsync_finding',
      'What is wrong now, by the code that the status page and `tillsync doctor` use: 0 no, 1 amber, 2 red.',
      (Object.keys(FINDING_SENTENCES) as (keyof typeof FINDING_SENTENCES)[]).map((code) => ({
        labels: { code },
        value: LEVELS[found.get(code) ?? 'green'],
      })),
    ),
  ];
}
