import type { Judgement, Report, Verdict } from './conform.ts';

const MARKS: Record<Verdict, string> = { passed: 'passed', failed: 'FAILED', 'not-judged': 'not judged' };
const MANUAL = 'docs/pos.md';

/** Returns the line that is printed when a behaviour was judged. */
export function lineOf({ id, does, verdict }: Pick<Judgement, 'id' | 'does' | 'verdict'>): string {
  return `${MARKS[verdict].padEnd(10)}  ${String(id).padStart(2)}  ${does}`;
}

/** Returns the report as text: a line for each behaviour, with advice below each failed one. */
export function textOf(report: Report): string {
  const lines = report.behaviours.map((each) => {
    const saw = each.verdict === 'passed' ? '' : `\n                ${each.saw}`;
    const printed =
      each.printed === null
        ? ''
        : `\n                It printed: ${each.printed.replaceAll('\n', `\n${' '.repeat(28)}`)}`;
    const mend = each.mend === null ? '' : `\n                ${each.mend} (${MANUAL}#${each.chapter})`;
    return `${lineOf(each)}${saw}${printed}${mend}\n`;
  });
  return `${lines.join('')}\n${verdictOf(report)}\n`;
}

/** Whether the till passed: every chosen behaviour was judged and none failed. */
export function hasPassed({ failed, notJudged }: Report): boolean {
  return failed === 0 && notJudged === 0;
}

function verdictOf(report: Report): string {
  const { passed, failed, notJudged, durationMs, seed } = report;
  const seconds = Math.round(durationMs / 1000);
  const rest = notJudged === 0 ? '' : `, ${notJudged} not judged`;
  return `${passed} passed, ${failed} failed${rest}, in ${seconds} s with seed ${seed}.`;
}

/** Returns the certificate as an HTML page that loads no other files. */
export function certificateOf(report: Report, till: string): string {
  const { version, at, seed, way, leadS, command, behaviours } = report;
  const title = hasPassed(report) ? 'passed' : 'did not pass';
  const rows = behaviours.map(
    ({ id, does, verdict, saw }) =>
      `<tr class="${verdict}"><td>${id}</td><td>${escaped(does)}</td><td>${MARKS[verdict]}</td><td>${escaped(saw)}</td></tr>`,
  );
  const facts = [
    ['Till', till],
    ['Started by', command === null ? 'a person' : command.join(' ')],
    ['Way in', way],
    ['Lead', `${leadS} s`],
    ['Date', at],
    ['tillsync', version],
    ['Seed', String(seed)],
    ['Result', verdictOf(report)],
  ].map(([name = '', value = '']) => `<dt>${name}</dt><dd>${escaped(value)}</dd>`);
  return `<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>tillsync conform: ${escaped(till)} ${title}</title>
<style>
@page { size: A4; margin: 12mm }
body { font: 10px/1.35 system-ui, sans-serif; max-width: 190mm; margin: 6mm auto; color: #111 }
h1 { font-size: 18px; margin: 0 0 3mm } dl { display: grid; grid-template-columns: 24mm 1fr; margin: 0 0 4mm }
dt { color: #555 } dd { margin: 0; overflow-wrap: anywhere } table { border-collapse: collapse; width: 100% }
td, th { border-bottom: 1px solid #ccc; padding: 1px 4px; text-align: left; vertical-align: top; overflow-wrap: anywhere }
th, td:nth-child(odd) { white-space: nowrap }
.passed td:nth-child(3) { color: #060 } .failed td:nth-child(3) { color: #b00; font-weight: bold }
</style></head><body>
<h1>tillsync conform: the till ${title}</h1>
<dl>${facts.join('')}</dl>
<table><tr><th></th><th>The till</th><th>Verdict</th><th>Seen</th></tr>
${rows.join('\n')}
</table></body></html>
`;
}

function escaped(text: string): string {
  const names: Record<string, string> = {
    '&': '&amp;',
    '<': '&lt;',
    '>': '&gt;',
    '"': '&quot;',
    "'": '&#39;',
  };
  return text.replace(/[&<>"']/g, (char) => names[char] ?? char);
}
