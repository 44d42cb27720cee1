import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { openWorkplace, until, type Workplace } from '../support/workplace.ts';
import { commandsAt } from './at-workplace.ts';

let place: Workplace;
let at: ReturnType<typeof commandsAt>;

beforeAll(async () => {
  place = await openWorkplace(21);
  at = commandsAt(place);
  expect((await at.run(['sync', 'products'])).code).toBe(0);
});
afterAll(async () => {
  expect(place.sandbox.control.violations()).toEqual([]);
  await place.close();
});

describe('waiting', () => {
  test('is left to a daemon that sends', async () => {
    const daemon = await place.run();
    const alone = 'No daemon is sending';
    const set = (qty: number) =>
      at.run(['stock', 'set', '--external-id', 'A-1001-1', '--qty', String(qty), '--wait']);
    await until('the daemon sends', async () => !(await set(31)).stderr.includes(alone));
    const sent = await set(32);
    expect(await daemon.end('SIGTERM')).toBe(0);
    expect(sent.code).toBe(0);
    expect(sent.stderr).not.toContain(alone);
    expect(place.sandbox.control.stockOf(1001, 'sub-1')).toBe(32);
  });

  test('ends at Ctrl-C with the change in line, and without tokens with 4', async () => {
    const { control } = place.sandbox;
    control.setFault({ kind: 'status', endpoint: 'product.stock.put' });
    control.setFault({ kind: 'status', endpoint: 'product.stock.batch' });
    const stop = new AbortController();
    const running = at.run(['push', 'stock', '-', '--wait'], '[{"externalId":"A-1001-1","qty":40}]', stop);
    await until(
      'it was tried',
      () =>
        control.calls('product.stock.batch').at(-1)?.status === 500 ||
        control.calls('product.stock.put').at(-1)?.status === 500,
    );
    stop.abort();
    const stopped = await running;
    expect(stopped.code).toBe(130);
    expect(stopped.stderr).toContain('Still queued: 1 change.');
    control.clearFaults();
    control.expireAccessTokens();
    control.revokeRefreshTokens();
    const locked = await at.run(['push', 'stock', '-', '--wait'], '[{"externalId":"A-1001-1","qty":41}]');
    expect(locked.code).toBe(4);
    expect(locked.stderr).toContain('Still queued: 1 change.');
    const pair = control.issueTokens();
    expect((await at.run(['auth', 'set'], pair.refreshToken)).code).toBe(0);
    expect(
      (await at.json(['push', 'stock', '-', '--wait'], '[{"externalId":"A-1001-1","qty":42}]')).code,
    ).toBe(0);
    expect(control.stockOf(1001, 'sub-1')).toBe(42);
  });
});
