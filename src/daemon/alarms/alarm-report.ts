import { hostname } from 'node:os';
import type { AlarmNews } from '../../domain/health/alarm-news.ts';
import { FINDING_SENTENCES, type FindingLevel } from '../../domain/health/finding.ts';
import { asTyped } from '../../domain/installation.ts';
import { isoUtc } from '../../domain/time/clock.ts';

/** One message as a program receives it. Names stay; more may come. */
export interface AlarmReport {
  state: AlarmNews['state'] | 'test';
  /** The code that the status page and `tillsync doctor` use; `alarms.daily-max`, `alarms.test`. */
  key: string;
  level: FindingLevel;
  /** What is wrong, one sentence. */
  message: string;
  /** The words of the part that noticed it. */
  detail: string | null;
  /** What to do about it; null once it is over. */
  remedy: string | null;
  /** ISO 8601 UTC. */
  since: string | null;
  at: string;
  /** `alarms.name`, or the name of the machine. */
  shop: string;
  host: string;
  /** Of tillsync. */
  version: string;
  /** All of it as one text, as chat services take it. */
  text: string;
}

export interface ReportContext {
  shop: string;
  dailyMax: number;
  version: string;
  nowMs: number;
}

export function alarmReport(news: AlarmNews, context: ReportContext): AlarmReport {
  const { state, key, level, detail, since } = news;
  const words =
    key === 'alarms.daily-max'
      ? {
          message: `Alarms were told ${context.dailyMax} times today; what is still wrong tomorrow is told then.`,
          remedy: 'See how things stand with: {tillsync} status',
        }
      : FINDING_SENTENCES[key];
  const message = words.message.replace(': {count}', '');
  const remedy = state === 'healed' ? null : asTyped(words.remedy);
  return complete({ state, key, level, message, detail, remedy, since }, context);
}

/** What `tillsync alarms test` sends. */
export function testReport(context: ReportContext): AlarmReport {
  const message = 'This is a test: alarms of tillsync arrive here.';
  return complete(
    { state: 'test', key: 'alarms.test', level: 'amber', message, detail: null, remedy: null, since: null },
    context,
  );
}

type Told = Omit<AlarmReport, 'at' | 'shop' | 'host' | 'version' | 'text'>;

function complete(told: Told, { shop, version, nowMs }: ReportContext): AlarmReport {
  const host = hostname();
  const at = isoUtc(nowMs);
  return { ...told, at, shop, host, version, text: textOf(told, shop) };
}

const MARKS: Record<AlarmReport['state'], (level: FindingLevel) => string> = {
  raised: (level) => (level === 'red' ? 'RED' : 'AMBER'),
  reminder: (level) => (level === 'red' ? 'STILL RED' : 'STILL AMBER'),
  healed: () => 'OVER',
  muted: () => 'NO MORE TODAY',
  test: () => 'TEST',
};

function textOf({ state, key, level, message, detail, remedy, since }: Told, shop: string): string {
  const place = since === null ? key : `${key}, since ${since}`;
  // Words that name a command say what to do themselves.
  const more = (detail?.includes('tillsync ') ? [detail] : [detail, remedy]).filter(Boolean).join(' ');
  const what = state === 'healed' ? `It is over: ${message}` : message;
  return `[${MARKS[state](level)}] ${shop}: ${what}${more === '' ? '' : ` ${more}`} (${place})`;
}
