import { describe, expect, it } from 'vitest';
import type { AlarmKey, FindingLevel } from '../../src/core/alarm.ts';
import { alarmReport, testReport } from '../../src/health/alarm-receivers.ts';
import {
  type AlarmMemory,
  afterSending,
  NOTHING_SENT,
  type Notification,
  NotificationPolicy,
} from '../../src/health/notification-policy.ts';
import { assess } from '../../src/health/verdict.ts';

const RULES = { level: 'amber', settleMs: 60_000, repeatMs: 0, dailyMax: 3 } as const;
const SINCE = '2026-11-21T10:00:00.000Z';

/** Facts without any fault, except the alarms that a test adds. */
const WELL = {
  nowMs: 0,
  freshness: [],
  tokens: null,
  outbox: null,
  quarantine: 0,
  ordersStaleAfterMs: 600_000,
};

/** Makes a receiver of alarms. `pass` lets time go by for it, and returns its messages. */
function receiver(
  rules: Partial<ConstructorParameters<typeof NotificationPolicy>[0]> = {},
  told = NOTHING_SENT,
) {
  const judge = new NotificationPolicy({ ...RULES, ...rules });
  let memory: AlarmMemory = told;
  let seconds = 0;
  return {
    memory: () => memory,
    /** Advances the time with these alarms raised. Returns the messages of that time. */
    pass(forSeconds: number, ...up: (AlarmKey | [AlarmKey, FindingLevel])[]): string[] {
      const heard: string[] = [];
      // Long times pass in steps of half a minute, because seconds matter only in short ones.
      const stepSeconds = forSeconds > 600 ? 30 : 1;
      for (let passed = 0; passed < forSeconds; passed += stepSeconds) {
        seconds += stepSeconds;
        const ms = seconds * 1000;
        const at = { nowMs: ms, monotonicMs: ms, day: `day ${Math.floor(seconds / 86_400)}` };
        const alarms = up.map((each) => {
          const [key, level] = typeof each === 'string' ? [each, null] : each;
          return { key, level, message: 'Why.', raisedAt: SINCE };
        });
        judge.observe(assess({ ...WELL, alarms }), memory, at);
        for (let news = judge.next(memory, at); news; news = judge.next(memory, at)) {
          heard.push(`${news.state} ${news.key}`);
          memory = afterSending(memory, news, at);
        }
      }
      return heard;
    },
  };
}

describe('alarms as a person hears them', () => {
  it('are told once when they have settled, and once when they are over', () => {
    const owner = receiver();
    expect(owner.pass(60, 'webhook.refused')).toEqual([]);
    expect(owner.pass(3_600, 'webhook.refused')).toEqual(['raised webhook.refused']);
    expect(owner.pass(60)).toEqual([]);
    expect(owner.pass(3_600)).toEqual(['healed webhook.refused']);
  });

  it('that have lasted before they were found are told at once', () => {
    expect(receiver().pass(1, 'orders.stale')).toEqual(['raised orders.stale']);
  });

  it('are not told when they come and go, nor their going when they come back', () => {
    const owner = receiver();
    for (let i = 0; i < 20; i++) {
      expect(owner.pass(50, 'webhook.refused')).toEqual([]);
      expect(owner.pass(5)).toEqual([]);
    }
    owner.pass(70, 'webhook.refused');
    for (let i = 0; i < 20; i++) {
      expect(owner.pass(50)).toEqual([]);
      expect(owner.pass(5, 'webhook.refused')).toEqual([]);
    }
  });

  it('are neither repeated nor forgotten by a restart', () => {
    const before = receiver();
    before.pass(70, 'outbox.rejected', 'orders.stale');
    const after = receiver({}, JSON.parse(JSON.stringify(before.memory())));
    expect(after.pass(600, 'outbox.rejected')).toEqual(['healed orders.stale']);
    expect(after.memory().told['outbox.rejected']?.since).toBe(SINCE);
  });

  it('stop at the daily cap, say so once, and go on the next day with what is still wrong', () => {
    const owner = receiver();
    const up = ['orders.stale', 'webhook.refused', 'outbox.held', 'outbox.rejected', 'storage.low'] as const;
    expect(owner.pass(3_600, ...up)).toEqual([
      'raised orders.stale',
      'raised webhook.refused',
      'raised outbox.rejected',
      'muted alarms.daily-max',
    ]);
    expect(owner.pass(7_200)).toEqual([]);
    expect(owner.pass(7_200, 'storage.low')).toEqual([]);
    expect(owner.pass(86_400, 'storage.low')).toEqual([
      'raised storage.low',
      'healed orders.stale',
      'healed webhook.refused',
      'muted alarms.daily-max',
    ]);
  });

  it('name the cause and not what follows from it', () => {
    const owner = receiver();
    expect(owner.pass(600, 'orders.stale', 'auth.none')).toEqual(['raised auth.none']);
    expect(owner.pass(50, 'orders.stale')).toEqual([]);
    expect(owner.pass(600, 'orders.stale')).toEqual(['raised orders.stale', 'healed auth.none']);
  });

  it('that once ended together with their cause are told at once when they come back', () => {
    const owner = receiver();
    expect(owner.pass(600, 'orders.stale', 'auth.none')).toEqual(['raised auth.none']);
    expect(owner.pass(600)).toEqual(['healed auth.none']);
    expect(owner.pass(1, 'orders.stale')).toEqual(['raised orders.stale']);
  });

  it('leave out changes that wait because nothing gets through, and while they may still follow', () => {
    const owner = receiver();
    const stuck = ['outbox.stuck', 'red'] as [AlarmKey, FindingLevel];
    expect(owner.pass(600, 'orders.stale', stuck)).toEqual(['raised orders.stale']);
    expect(owner.pass(359, stuck)).toEqual(['healed orders.stale']);
    expect(owner.pass(50, stuck)).toEqual([]);
    expect(owner.pass(60, stuck)).toEqual(['raised outbox.stuck']);
    expect(receiver().pass(600, ['outbox.stuck', 'amber'])).toEqual([]);
  });

  it('are told from the wanted level on, and again as often as wanted', () => {
    const owner = receiver({ level: 'red', repeatMs: 1_200_000 });
    expect(owner.pass(3_000, 'storage.low', 'storage.full')).toEqual([
      'raised storage.full',
      'reminder storage.full',
      'reminder storage.full',
    ]);
  });

  it('are told once more when they become red, and to whom wants red alone only then', () => {
    const [owner, boss] = [receiver({ dailyMax: 9 }), receiver({ dailyMax: 9, level: 'red' })];
    const both = (seconds: number, level: FindingLevel) => [
      owner.pass(seconds, ['orders.unbooked', level]),
      boss.pass(seconds, ['orders.unbooked', level]),
    ];
    expect(both(300, 'amber')).toEqual([['raised orders.unbooked'], []]);
    expect(both(300, 'red')).toEqual([['raised orders.unbooked'], ['raised orders.unbooked']]);
    expect(both(300, 'amber')).toEqual([[], []]);
    expect(both(300, 'red')).toEqual([[], []]);
    expect([owner.pass(300), boss.pass(300)]).toEqual([
      ['healed orders.unbooked'],
      ['healed orders.unbooked'],
    ]);
  });
});

describe('a message', () => {
  const at = { nowMs: Date.parse(SINCE) + 300_000, monotonicMs: 300_000, day: 'one day' };
  const LATER = { ...at, monotonicMs: at.monotonicMs + 300_000 };
  const context = {
    shop: 'Local 7',
    dailyMax: 9,
    version: '',
    nowMs: at.nowMs,
    timeZone: 'America/Santiago',
  };
  const poll = {
    ...({ subject: 'orders.poll', state: 'failing', lastOkAt: SINCE, lastTryAt: SINCE } as const),
    message: 'Cannot reach the platform: api.test refuses connections on port 443 (ECONNREFUSED).',
    failure: { code: 'ECONNREFUSED', since: SINCE, tries: 3 },
  };
  const newsOf = (facts: Partial<Parameters<typeof assess>[0]>) => {
    const judge = new NotificationPolicy(RULES);
    judge.observe(assess({ ...WELL, nowMs: at.nowMs, alarms: [], ...facts }), NOTHING_SENT, at);
    judge.observe(assess({ ...WELL, nowMs: at.nowMs, alarms: [], ...facts }), NOTHING_SENT, LATER);
    const news = judge.next(NOTHING_SENT, LATER);
    if (!news) throw new Error('nothing is told');
    return news;
  };

  it('says the cause and what to do about it, by the clock of the shop', () => {
    const { text, remedy, since } = alarmReport(newsOf({ freshness: [poll] }), {
      ...context,
      language: 'en',
    });
    expect(remedy).toContain('refuses connections');
    expect(text).toBe(
      `[RED] Local 7: tillsync can't fetch orders from the platform. ${poll.message} ${remedy} (orders.stale, since 07:00)`,
    );
    expect(since).toBe(SINCE);
  });

  it('keeps to the command that its detail names, unless what to do is known from the cause', () => {
    const english = { ...context, language: 'en' } as const;
    const message = 'It is refused. See why with: tillsync doctor';
    const known = alarmReport(newsOf({ freshness: [{ ...poll, message }] }), english);
    expect(known.text).toContain(`${message} ${known.remedy}`);
    const { words: _ofTheCause, ...news } = newsOf({ freshness: [{ ...poll, message }] });
    const { text, remedy } = alarmReport(news, english);
    expect(remedy).toMatch(/./);
    expect(text).toContain(`${message} (orders.stale`);
  });

  it('speaks the language of the shop, with the same codes and the same times for programs', () => {
    const spanish = { ...context, language: 'es' } as const;
    expect(alarmReport(newsOf({ freshness: [poll] }), spanish)).toMatchObject({
      state: 'raised',
      key: 'orders.stale',
      level: 'red',
      since: SINCE,
      at: new Date(at.nowMs).toISOString(),
      message: 'tillsync no puede traer los pedidos de la plataforma.',
      detail:
        'No se puede conectar con la plataforma: api.test rechaza conexiones en el puerto 443 (ECONNREFUSED).',
      remedy:
        'El servidor de la plataforma rechaza las conexiones. Revise platform.base_url. Si está bien, pregunte al soporte de la plataforma si el servidor está caído.',
      text: expect.stringMatching(
        /^\[ROJO\] Local 7: tillsync no puede traer .* \(orders\.stale, desde 07:00\)$/,
      ),
    });
    const outbox = { pending: 0, held: 0, rejected: 3, oldestPendingAt: null };
    expect(alarmReport(newsOf({ outbox }), spanish)).toMatchObject({
      message: 'Cambios rechazados por la plataforma: 3.',
      text: expect.stringMatching(/^\[AMARILLO\] Local 7: Cambios .* tillsync outbox list --state rejected/),
    });
  });

  it('says in that language too that it is still so, that it is over, and that no more is told', () => {
    const spanish = { ...context, language: 'es' } as const;
    const news = newsOf({ freshness: [poll] });
    const yesterday = new Date(Date.parse(SINCE) - 86_400_000).toISOString();
    expect(alarmReport({ ...news, state: 'reminder', since: yesterday }, spanish).text).toMatch(
      /^\[SIGUE EN ROJO\] .*\(orders\.stale, desde 2026-11-20 07:00\)$/,
    );
    const over = { state: 'healed', key: 'orders.stale', level: 'red', detail: null, since: SINCE } as const;
    expect(alarmReport(over, spanish).text).toBe(
      '[TERMINÓ] Local 7: Ya terminó: tillsync no puede traer los pedidos de la plataforma. (orders.stale, desde 07:00)',
    );
    const muted = { state: 'muted', key: 'alarms.daily-max', level: 'amber', detail: null, since: null };
    expect(alarmReport(muted as Notification, spanish).text).toBe(
      '[HOY NO HAY MÁS] Local 7: Hoy ya se enviaron 9 alarmas; lo que siga mal mañana se avisa mañana. Para ver cómo está todo: tillsync status (alarms.daily-max)',
    );
    expect(testReport(spanish).text).toBe(
      '[PRUEBA] Local 7: Esta es una prueba: las alarmas de tillsync llegan aquí. (alarms.test)',
    );
  });

  it('tells times within its words by the clock of the shop, and keeps the words of others', () => {
    const refused = {
      ...poll,
      message: 'Since 2026-11-21 09:50 UTC the platform asks for new tokens: Acceso denegado.',
    };
    const { detail } = alarmReport(newsOf({ freshness: [refused] }), { ...context, language: 'es' });
    expect(detail).toBe('Desde 06:50 la plataforma pide tokens nuevos: Acceso denegado.');
  });
});
