/** Tests src/health/health-store.ts. */

import { describe, expect, it } from 'vitest';
import { openMirror } from '../../src/app/mirror.ts';
import { openTestMirror, receive, sampleNotification } from '../orders/open-test-mirror.ts';

const of = (mirror: ReturnType<typeof openTestMirror>['mirror'], subject: string) =>
  mirror.health.freshness().find((each) => each.subject === subject);

describe('freshness', () => {
  it('has a row for every flow from the start', () => {
    const { mirror } = openTestMirror();
    expect(mirror.health.freshness().map(({ subject, state }) => [subject, state])).toEqual([
      ['orders.poll', 'unknown'],
      ['orders.webhook', 'unknown'],
      ['catalog.sweep', 'unknown'],
      ['outbox.push', 'unknown'],
      ['auth', 'unknown'],
      ['backup', 'unknown'],
    ]);
    expect(mirror.polls.lastOkMs()).toBeNull();
  });

  it('counts at once, and is in the file soon', async () => {
    const { mirror, clock, path } = openTestMirror();
    mirror.health.ok('orders.poll');
    expect(mirror.polls.lastOkMs()).toBe(clock.nowMs());
    await clock.advance(60_000);
    mirror.health.report('orders.poll', 'failing', 'No answer.');
    const wanted = {
      subject: 'orders.poll',
      lastOkAt: '2026-01-15T12:00:00.000Z',
      lastTryAt: '2026-01-15T12:01:00.000Z',
      state: 'failing',
      message: 'No answer.',
    };
    expect(of(mirror, 'orders.poll')).toEqual(wanted);
    await mirror.health.flush();
    const other = openMirror({ path, clock, readonly: true });
    expect(of(other, 'orders.poll')).toEqual(wanted);
    await other.close();
  });

  it('knows for which reason the last tries failed, since when and how often, also after a restart', async () => {
    const { mirror, clock, path } = openTestMirror();
    const fail = async (code: string) => {
      mirror.health.report('orders.poll', 'failing', 'No answer.', code);
      await mirror.health.flush();
      await clock.advance(60_000);
      return of(mirror, 'orders.poll')?.failure;
    };
    await fail('ETIMEDOUT');
    expect(await fail('ECONNREFUSED')).toEqual({
      code: 'ECONNREFUSED',
      since: '2026-01-15T12:01:00.000Z',
      tries: 1,
    });
    expect(await fail('ECONNREFUSED')).toMatchObject({ since: '2026-01-15T12:01:00.000Z', tries: 2 });
    await mirror.close();
    const again = openMirror({ path, clock });
    again.health.report('orders.poll', 'failing', 'No answer.', 'ECONNREFUSED');
    expect(of(again, 'orders.poll')?.failure?.tries).toBe(3);
    again.health.ok('orders.poll');
    expect(of(again, 'orders.poll')?.failure).toBeUndefined();
    await again.close();
  });

  it('is in the file soon at whatever moment of an earlier write it is reported', async () => {
    const { mirror, clock, path } = openTestMirror();
    const other = openMirror({ path, clock, readonly: true });
    for (let turns = 0; turns < 20; turns++) {
      mirror.health.ok('orders.poll');
      for (let turn = 0; turn < turns; turn++) await Promise.resolve();
      mirror.health.report('auth', 'failing', `after ${turns} turns`);
      await new Promise(setImmediate);
      expect(of(other, 'auth')?.message).toBe(`after ${turns} turns`);
    }
    await other.close();
  });

  it('and alarms end with the newer of two reports, whenever the second one comes', async () => {
    const { mirror, clock, path } = openTestMirror();
    const other = openMirror({ path, clock, readonly: true });
    for (let turns = 0; turns < 20; turns++) {
      mirror.health.report('auth', 'failing', `first ${turns}`);
      mirror.health.note('orders.stale', `first ${turns}`);
      for (let turn = 0; turn < turns; turn++) await Promise.resolve();
      mirror.health.report('auth', 'failing', `second ${turns}`);
      mirror.health.note('orders.stale', `second ${turns}`);
      await new Promise(setImmediate);
      expect([of(other, 'auth')?.message, other.health.raised()[0]?.message]).toEqual([
        `second ${turns}`,
        `second ${turns}`,
      ]);
    }
    await other.close();
  });

  it('of webhooks moves with the first of a burst, and again a second later', async () => {
    const { mirror, clock } = openTestMirror();
    await receive(mirror, sampleNotification(1));
    expect(of(mirror, 'orders.webhook')).toMatchObject({ state: 'ok', lastOkAt: '2026-01-15T12:00:00.000Z' });
    await clock.advance(999);
    await receive(mirror, sampleNotification(2));
    expect(of(mirror, 'orders.webhook')?.lastOkAt).toBe('2026-01-15T12:00:00.000Z');
    await clock.advance(1);
    await receive(mirror, sampleNotification(2));
    expect(of(mirror, 'orders.webhook')?.lastOkAt).toBe('2026-01-15T12:00:01.000Z');
  });
});

describe('alarms', () => {
  it('stay up over a restart until they are lowered', async () => {
    const first = openTestMirror();
    first.mirror.health.note('orders.stale', 'No poll since noon.');
    await first.clock.advance(1000);
    first.mirror.health.note('orders.stale', 'No poll since one.');
    await first.mirror.close();
    const { mirror } = openTestMirror({ path: first.path });
    expect(mirror.health.raised()).toEqual([
      {
        key: 'orders.stale',
        level: null,
        message: 'No poll since one.',
        raisedAt: '2026-01-15T12:00:00.000Z',
        changedAt: '2026-01-15T12:00:01.000Z',
      },
    ]);
    mirror.health.note('orders.stale', null);
    mirror.health.note('webhook.refused', null);
    expect(mirror.health.raised()).toEqual([]);
    await mirror.health.flush();
    expect(mirror.read((db) => db.prepare('SELECT key FROM alarms').all())).toEqual([]);
  });

  it('keep foreign text cleaned and cut', async () => {
    const { mirror } = openTestMirror();
    mirror.health.note('hub.misuse', `a\0b\u001b[31m ${'x'.repeat(200_000)}`);
    mirror.health.report('orders.poll', 'failing', 'c\0d\u009b31m\u202ee');
    await mirror.health.flush();
    const message = mirror.health.raised()[0]?.message ?? '';
    expect(message).toMatch(/^a b \[31m x+…$/);
    expect(message.length).toBeLessThan(2_100);
    expect(mirror.health.freshness()[0]?.message).toBe('c d 31m e');
  });

  it('cost no write when nothing is new', async () => {
    const { mirror } = openTestMirror();
    mirror.health.note('orders.stale', 'x');
    await mirror.health.flush();
    const before = mirror.walBytes();
    mirror.health.note('orders.stale', 'x');
    mirror.health.note('webhook.refused', null);
    await mirror.health.flush();
    expect(mirror.walBytes()).toBe(before);
  });
});
