import { describe, expect, test } from 'vitest';
import { Progress } from '../../src/cli/progress.ts';
import { FakeClock } from '../support/fake-clock.ts';

function progressOn(isTTY: boolean, columns?: number) {
  const written: string[] = [];
  const clock = new FakeClock();
  const stderr = { isTTY, columns, write: (text: string) => written.push(text) };
  return { progress: new Progress({ stderr, clock }), clock, written };
}

const WAIT = { endpoint: 'order.all', reason: 'interval', waitMs: 2500 } as const;

describe('on a terminal', () => {
  test('a wait counts down on one line, ends with the next step, and nothing stays', async () => {
    const { progress, clock, written } = progressOn(true);
    progress.wait(WAIT);
    await clock.advance(1000);
    progress.step('asking');
    await clock.advance(5000);
    progress.end();
    expect(written).toEqual([
      '\rwaiting: next order poll allowed in 3s\u001b[K',
      '\rwaiting: next order poll allowed in 2s\u001b[K',
      '\rasking\u001b[K',
      '\r\u001b[K',
    ]);
    expect(clock.sleeping).toBe(0);
  });

  test('a line never runs over the edge', () => {
    const { progress, written } = progressOn(true, 10);
    progress.step('a long step of the way');
    expect(written).toEqual(['\ra long st\u001b[K']);
  });

  test('a wait that is over leaves its last line until something follows', async () => {
    const { progress, clock, written } = progressOn(true);
    progress.wait(WAIT);
    await clock.advance(60_000);
    expect(written.at(-1)).toBe('\rwaiting: next order poll allowed in 0ms\u001b[K');
    expect(clock.sleeping).toBe(0);
  });
});

describe('elsewhere', () => {
  test('each thing is a line of its own, said once', () => {
    const { progress, written } = progressOn(false);
    progress.step('asking');
    progress.step('asking');
    progress.wait(WAIT);
    progress.end();
    expect(written).toEqual(['asking\n', 'waiting: next order poll allowed in 3s\n']);
  });

  test('a wait says every half minute what is left of it, and again when it became longer', async () => {
    const { progress, clock, written } = progressOn(false);
    const wait = { ...WAIT, waitMs: 80_000 };
    progress.wait(wait);
    await clock.advance(1_000);
    progress.wait({ ...wait, waitMs: 79_000 });
    await clock.advance(60_000);
    progress.wait({ ...wait, waitMs: 50_000 });
    progress.end();
    await clock.advance(60_000);
    expect(written).toEqual(
      ['1m 20s', '50s', '20s', '50s'].map((left) => `waiting: next order poll allowed in ${left}\n`),
    );
    expect(clock.sleeping).toBe(0);
  });

  test('counts come seldom, and the last one always', async () => {
    const { progress, clock, written } = progressOn(false);
    for (let done = 1; done <= 30; done++) {
      progress.count('orders', done, 30);
      await clock.advance(1000);
    }
    expect(written).toEqual([
      'orders: 1 of 30\n',
      'orders: 11 of 30\n',
      'orders: 21 of 30\n',
      'orders: 30 of 30\n',
    ]);
  });
});
