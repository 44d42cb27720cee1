import type { Language } from '../health/speech.ts';
import type { CheckLevel, CheckResult } from '../support/doctor/check.ts';
import { broken, EXIT, type ExitCode, printable } from './cli.ts';

/** How checks are shown: with coloured signs on a terminal, with words elsewhere. */
export interface DoctorStyle {
  signs: boolean;
  /** Language of the words that replace signs. */
  language?: Language;
  /** Width of the terminal in characters. Lines are not wrapped if it is undefined. */
  columns?: number | undefined;
}

const SIGNS: Record<CheckLevel, string> = {
  ok: '\u001b[32m✓\u001b[0m',
  warn: '\u001b[33m!\u001b[0m',
  fail: '\u001b[31m✗\u001b[0m',
  skipped: '\u001b[2m-\u001b[0m',
};

const WORDS: Record<Language, Record<CheckLevel, string>> = {
  en: { ok: 'ok  ', warn: 'WARN', fail: 'FAIL', skipped: 'skip' },
  es: { ok: 'bien ', warn: 'OJO  ', fail: 'FALLA', skipped: '-    ' },
};

const LINE_MIN = 30;

/** Returns a check as lines: its state, and its remedy below. */
export function checkText(
  { level, title, message, remedy }: CheckResult,
  titleWidth: number,
  { signs, language = 'en', columns }: DoctorStyle,
): string {
  const lead = signs ? SIGNS[level] : WORDS[language][level];
  const indent = (signs ? 1 : lead.length) + 1 + titleWidth + 2;
  const room = columns === undefined ? Number.POSITIVE_INFINITY : Math.max(columns - indent - 1, LINE_MIN);
  const said = broken(printable(message), room);
  const todo = remedy === null ? [] : broken(`-> ${printable(remedy)}`, room);
  const [first = '', ...more] = said;
  const head = `${lead} ${title.padEnd(titleWidth)}  ${first}`;
  return `${[head, ...[...more, ...todo].map((line) => ' '.repeat(indent) + line)].join('\n')}\n`;
}

/** Returns the result of all checks in one line. */
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

/**
 * Returns a line with the address of the page that explains the checks' messages; '' if all is well or the page does
 * not answer.
 */
export function helpText(results: readonly CheckResult[], language: Language = 'en'): string {
  const isWell = results.every(({ level }) => level === 'ok' || level === 'skipped');
  const api = results.find(({ id }) => id === 'service.api');
  const answer = api?.facts.answer as { url: string } | null | undefined;
  if (isWell || api?.level !== 'ok' || !answer) return '';
  const page = language === 'en' ? 'help.html' : `help.${language}.html`;
  return `What each sentence means: ${answer.url}/page/${page}\n`;
}

/** Returns a sentence about the checks that this user is not permitted to run, and how to run them. */
function withheld(unseen: readonly CheckResult[]): string {
  const titles = unseen.map(({ title }) => title).join(', ');
  return `You do not have permission for: ${titles}. ${unseen[0]?.remedy ?? ''}`.trim();
}

/**
 * Returns the exit code: 0 all is well, 1 something is wrong, 2 the configuration is unusable, 3 only warnings or
 * checks without permission, 4 new tokens are needed.
 */
export function doctorExit(results: readonly CheckResult[]): ExitCode {
  if (results.some(({ id, level }) => id === 'config' && level === 'fail')) return EXIT.usage;
  if (results.some(({ needsTokens }) => needsTokens === true)) return EXIT.authRequired;
  if (results.some(({ level }) => level === 'fail')) return EXIT.failed;
  return results.some(({ level, isHidden }) => level === 'warn' || isHidden) ? EXIT.partial : EXIT.done;
}
