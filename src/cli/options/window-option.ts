import { TillsyncError } from '../../domain/errors.ts';
import { isDate, type PollWindow } from '../../domain/order/poll-window.ts';

/** The days of `--from` and `--to`; undefined without them. Throws `usage`. */
export function windowOption(options: { from?: string; to?: string }): PollWindow | undefined {
  const { from, to } = options;
  if (from === undefined && to === undefined) return undefined;
  if (from === undefined) throw new TillsyncError('usage', '--to needs --from, the first day to ask for.');
  const window = { startDate: dayOption('--from', from), endDate: dayOption('--to', to ?? from) };
  if (window.endDate < window.startDate) {
    throw new TillsyncError('usage', `--to ${window.endDate} lies before --from ${window.startDate}.`);
  }
  return window;
}

function dayOption(name: string, text: string): string {
  if (isDate(text)) return text;
  throw new TillsyncError('usage', `${name}: found "${text}"; allowed: a day such as 2026-03-01.`);
}
