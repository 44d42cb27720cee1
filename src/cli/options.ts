import { type Command, Option } from 'commander';
import { TillsyncError } from '../core/errors.ts';
import { isoUtc, parseDurationMs } from '../core/time.ts';
import { ORDER_ID_LENGTH_MAX, type OrderSource } from '../orders/order.ts';
import { isDate, type PollWindow } from '../orders/poll-window.ts';
import type { CallOptions } from '../platform/platform.ts';
import { waitText } from './progress.ts';

/** Milliseconds from an option such as `--orders-every 5s`; throws `usage` for anything else. */
export function durationOption(name: string): (text: string) => number {
  return (text) => {
    const ms = parseDurationMs(text);
    if (ms !== undefined) return ms;
    throw new TillsyncError(
      'usage',
      `${name}: found "${text}"; allowed: a duration such as "500ms", "5s" or "2m".`,
    );
  };
}

const DAY = /^\d{4}-\d{2}-\d{2}$/;
const LOCAL = /^\d{4}-\d{2}-\d{2}T\d{2}:\d{2}(:\d{2})?$/;
const ZONED = /^\d{4}-\d{2}-\d{2}T\d{2}:\d{2}(:\d{2}(\.\d+)?)?(Z|[+-]\d{2}:\d{2})$/;
const DAY_MS = 86_400_000;

/**
 * An option's day or time as ISO 8601 UTC: a day is its beginning, or with `end` the beginning of the next one, and
 * without a zone both are of the calendar in `timeZone`. Throws `usage`.
 */
export async function instantOption(
  name: string,
  text: string | undefined,
  { timeZone, end }: { timeZone: string; end: boolean },
): Promise<string | undefined> {
  if (text === undefined) return undefined;
  const { zoneCalendar } = await import('../core/time.ts');
  const isDay = DAY.test(text);
  const wallMs = isDay || LOCAL.test(text) ? Date.parse(isDay ? text : `${text}Z`) : Number.NaN;
  const ms = Number.isNaN(wallMs)
    ? Date.parse(ZONED.test(text) ? text : '')
    : zoneCalendar(timeZone).firstInstantMs(wallMs + (isDay && end ? DAY_MS : 0));
  if (!Number.isNaN(ms)) return isoUtc(ms);
  throw new TillsyncError(
    'usage',
    `${name}: found "${text}"; allowed: a day such as 2026-03-01, or a time such as 2026-03-01T18:30 or 2026-03-01T21:30Z.`,
  );
}

export interface NoWaitOption {
  /** False with `--no-wait`. */
  wait: boolean;
}

/** Adds `--no-wait` to a command that calls the platform. */
export function withNoWait(command: Command): Command {
  return command.option('--no-wait', 'end at once, with exit code 1, if the platform may not be called now');
}

/** How a command calls: with `--no-wait` it throws `rate-limited` instead of waiting for its first call. */
export function patienceOf<C extends CallOptions>(call: C, { wait: isPatient }: NoWaitOption): C {
  if (isPatient) return call;
  let hasSent = false;
  return {
    ...call,
    onSend: () => {
      hasSent = true;
    },
    onWait: (wait) => {
      if (hasSent) return call.onWait?.(wait);
      throw notNow(waitText(wait), wait.waitMs);
    },
  };
}

/** That a command with `--no-wait` did nothing. */
export function notNow(why: string, retryAfterMs?: number): TillsyncError {
  return new TillsyncError('rate-limited', `Nothing was asked: ${why}.`, {
    hint: 'Try again then; without --no-wait the command waits for its turn.',
    ...(retryAfterMs !== undefined && { retryAfterMs }),
  });
}

/** The order number that a person typed, such as `1005` or `#1005`; undefined: it is none. */
export function orderCode(word: string): number | undefined {
  const digits = /^#?(\d{1,15})$/.exec(word.trim())?.[1];
  return digits === undefined ? undefined : Number(digits);
}

const INPUT_MAX_BYTES = 16 * 1024 * 1024;

/** Order ids from a stream: one a line, or one JSON array of texts. Throws `usage` naming the first bad one. */
export async function readOrderIds(stdin: AsyncIterable<string | Uint8Array>): Promise<string[]> {
  const parts: Buffer[] = [];
  let bytes = 0;
  for await (const part of stdin) {
    const buffer = Buffer.from(part);
    bytes += buffer.length;
    if (bytes > INPUT_MAX_BYTES) throw bad(`more than ${INPUT_MAX_BYTES} bytes came`);
    parts.push(buffer);
  }
  const text = Buffer.concat(parts)
    .toString('utf8')
    .replace(/^\ufeff/, '')
    .trim();
  if (text === '') throw bad('nothing came on standard input');
  if (text.startsWith('[')) return checkOrderIds(arrayOf(text), 'index');
  return checkOrderIds(
    text
      .split('\n')
      .map((line) => line.trim())
      .filter((line) => line !== ''),
    'id',
  );
}

/** Ids as they may stand in the mirror. */
export function checkOrderIds(ids: readonly unknown[], place: 'index' | 'id'): string[] {
  return ids.map((id, i) => {
    const text = typeof id === 'string' ? id.trim() : '';
    const isSound = text !== '' && text.length <= ORDER_ID_LENGTH_MAX && !/[\0\ufffd]/.test(text);
    if (isSound && text.isWellFormed()) return text;
    throw bad(
      `${place} ${place === 'index' ? i : i + 1} is no order id: ${JSON.stringify(id)?.slice(0, 60)}`,
    );
  });
}

function arrayOf(text: string): unknown[] {
  try {
    const value: unknown = JSON.parse(text);
    if (Array.isArray(value)) return value;
  } catch {
    // Named below: its own message would repeat the input.
  }
  throw bad('what came looks like a JSON array and is none');
}

function bad(found: string): TillsyncError {
  return new TillsyncError('usage', `No order was acknowledged: ${found}.`, {
    hint: 'Give ids as arguments, or one a line on standard input: {tillsync} feed ack < FILE',
  });
}

/** Options that say which of what was received is meant. */
export interface ReceivedOptions {
  order?: string;
  since?: string;
  until?: string;
  source?: OrderSource;
  quarantined?: boolean;
}

/** Adds the options to a command. */
export function withReceivedOptions(command: Command): Command {
  return command
    .option('--order <id>', 'of this order')
    .option(
      '--since <time>',
      'received on this day or since this time, such as 2026-03-01 or 2026-03-01T18:30',
    )
    .option('--until <time>', 'received until the end of this day, or before this time')
    .addOption(new Option('--source <source>', 'how it came').choices(['webhook', 'poll']))
    .option('--quarantined', 'only what could not be read');
}

/** The filter the options stand for; days and times without a zone are the company's. Throws `usage`. */
export async function receivedFilter({ order, since, until, source }: ReceivedOptions, timeZone: string) {
  return {
    orderId: order,
    source,
    since: await instantOption('--since', since, { timeZone, end: false }),
    until: await instantOption('--until', until, { timeZone, end: true }),
  };
}

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
