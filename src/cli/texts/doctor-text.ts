import type { CheckLevel, CheckResult } from '../../daemon/doctor/check.ts';
import { EXIT, type ExitCode } from '../exit-code.ts';
import { printable } from './printable.ts';

/** How a check is shown: signs in colour on a terminal, words elsewhere. */
export interface DoctorStyle {
  signs: boolean;
  /** Columns of the terminal; undefined: lines are not broken. */
  columns?: number | undefined;
}

const SIGNS: Record<CheckLevel, string> = {
  ok: '\u001b[32m✓\u001b[0m',
  warn: '\u001b[33m!\u001b[0m',
  fail: '\u001b[31m✗\u001b[0m',
  skipped: '\u001b[2m-\u001b[0m',
};
const WORDS: Record<CheckLevel, string> = { ok: 'ok  ', warn: 'WARN', fail: 'FAIL', skipped: 'skip' };
const LINE_MIN = 30;

/** One check as lines: how it is, and below what to do. */
export function checkText(
  { level, title, message, remedy }: CheckResult,
  titleWidth: number,
  { signs, columns }: DoctorStyle,
): string {
  const lead = signs ? SIGNS[level] : WORDS[level];
  const indent = (signs ? 1 : WORDS.ok.length) + 1 + titleWidth + 2;
  const room = columns === undefined ? Number.POSITIVE_INFINITY : Math.max(columns - indent - 1, LINE_MIN);
  const said = broken(printable(message), room);
  const todo = remedy === null ? [] : broken(`-> ${printable(remedy)}`, room);
  const [first = '', ...more] = said;
  const head = `${lead} ${title.padEnd(titleWidth)}  ${first}`;
  return `${[head, ...[...more, ...todo].map((line) => ' '.repeat(indent) + line)].join('\n')}\n`;
}

/** How all checks ended, in one line. */
export function summaryText(results: readonly CheckResult[]): string {
  const unset = results.find(({ facts }) => facts.code === 'setup.missing');
  if (unset) return `${unset.message} ${unset.remedy}`;
  const count = (level: CheckLevel) => results.filter((result) => result.level === level).length;
  const [wrong, odd, fine, left] = [count('fail'), count('warn'), count('ok'), count('skipped')];
  const tail = `${fine} in order${left > 0 ? `, ${left} not checked` : ''}.`;
  const unseen = results.filter(({ isHidden }) => isHidden === true);
  const why = unseen.length === 0 ? '' : ` ${withheld(unseen)}`;
  if (wrong + odd === 0) return why === '' ? `All is well: ${tail}` : `Nothing wrong was seen: ${tail}${why}`;
  const worst = results.find(({ level }) => level === (wrong > 0 ? 'fail' : 'warn'));
  const counts = [wrong > 0 ? `${wrong} wrong` : '', odd > 0 ? `${odd} to look at` : ''].filter(Boolean);
  return `${counts.join(', ')}, ${tail} Begin with: ${worst?.title}.${why}`;
}

/** Which checks this user may not make, and what makes them. */
function withheld(unseen: readonly CheckResult[]): string {
  const titles = unseen.map(({ title }) => title).join(', ');
  return `You do not have permission for: ${titles}. ${unseen[0]?.remedy ?? ''}`.trim();
}

/**
 * What a script learns: 0 all well, 1 something is wrong, 2 the configuration cannot be used, 3 only something to
 * look at, or checks that this user may not make, 4 new tokens are needed.
 */
export function doctorExit(results: readonly CheckResult[]): ExitCode {
  if (results.some(({ id, level }) => id === 'config' && level === 'fail')) return EXIT.usage;
  if (results.some(({ needsTokens }) => needsTokens === true)) return EXIT.authRequired;
  if (results.some(({ level }) => level === 'fail')) return EXIT.failed;
  return results.some(({ level, isHidden }) => level === 'warn' || isHidden) ? EXIT.partial : EXIT.done;
}

function broken(text: string, room: number): string[] {
  const lines: string[] = [];
  let line = '';
  for (const word of text.split(' ')) {
    if (line !== '' && line.length + 1 + word.length > room) {
      lines.push(line);
      line = word;
    } else {
      line = line === '' ? word : `${line} ${word}`;
    }
  }
  return [...lines, line];
}
