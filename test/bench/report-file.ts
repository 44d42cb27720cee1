import { mkdirSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { type BenchResult, countVerdicts, type Section, verdictOf } from './bench-result.ts';
import { figure, latenciesPlot, ratesPlot, ratiosPlot } from './report-plots.ts';

export interface ReportOptions {
  /** Directory of the report. It is created if missing; files of an earlier report with the same names are replaced. */
  directory: string;
  /** ISO 8601 UTC. */
  date: string;
  machine: string;
  quick: boolean;
  /** Whether some modules were left out. */
  partial: boolean;
  sections: readonly Section[];
}

/** Writes report.md and its plots; returns the report's path. */
export function writeReport(options: ReportOptions): string {
  const { directory, sections } = options;
  mkdirSync(directory, { recursive: true });
  const put = (name: string, content: string) => {
    writeFileSync(path.join(directory, name), content);
    return name;
  };
  const parts = [heading(options)];
  const judged = sections.flatMap(({ results }) => results).filter((each) => verdictOf(each) !== '-');
  if (judged.length > 0) {
    parts.push(image('Ratios against their bounds', put('ratios.svg', ratiosPlot(judged))));
  }
  for (const section of sections) {
    parts.push(`## ${section.name}`, ...plots(section, put), table(section));
  }
  return path.join(directory, put('report.md', `${parts.join('\n\n')}\n`));
}

function heading({ date, machine, quick, partial, sections }: ReportOptions): string {
  const { judged, kept } = countVerdicts(sections);
  const lines = [
    '# Measurements',
    '',
    `${date.slice(0, 16).replace('T', ' ')} UTC on ${machine}: ${kept} of ${judged} bounds kept.`,
  ];
  if (quick) {
    lines.push(
      '',
      '**Quick run: shorter and smaller than the bounds are meant for. Not to be quoted; run `npm run bench` for that.**',
    );
  }
  if (partial) lines.push('', `Only ${sections.map(({ name }) => name).join(', ')}.`);
  lines.push(
    '',
    'Each ratio compares two things that were measured in turns in one run, so it outlives the machine better than its figures do. Bars show how much of what is allowed is used.',
    '',
    'What is sold twice when a till and a web shop share a shelf has [a page of its own](oversell.md).',
  );
  return lines.join('\n');
}

function plots({ name, results }: Section, put: (name: string, content: string) => string): string[] {
  const comparisons = results.flatMap(({ comparison }) => (comparison ? [comparison] : []));
  return comparisons.flatMap((comparison, n) => [
    image(`Rates: ${comparison.title}`, put(`${name}-${n + 1}-rates.svg`, ratesPlot(comparison))),
    image(`Latencies: ${comparison.title}`, put(`${name}-${n + 1}-latencies.svg`, latenciesPlot(comparison))),
  ]);
}

const image = (title: string, file: string) => `![${title}](${file})`;

function table({ results, failure }: Section): string {
  const rows = results.map((result) => `| ${cells(result).map(escapeCell).join(' | ')} |`);
  const lines = ['| verdict | ratio | bound | compared | figures |', '|---|--:|---|---|---|', ...rows];
  if (failure !== undefined) lines.push('', `**It ended early:** ${escapeCell(failure)}`);
  return (rows.length > 0 ? lines : lines.slice(3)).join('\n');
}

function cells(result: BenchResult): string[] {
  const { ratio, bound, name, detail } = result;
  const shown = ratio === null ? 'n/a' : figure(ratio);
  const verdict = verdictOf(result);
  return [
    verdict === '-' ? '–' : verdict === 'pass' ? 'kept' : '**missed**',
    shown,
    bound.replace('>=', '≥').replace('<=', '≤'),
    name,
    detail,
  ];
}

const escapeCell = (words: string) =>
  words.replaceAll('|', '\\|').replaceAll('<', '&lt;').replaceAll(/\s+/g, ' ');
