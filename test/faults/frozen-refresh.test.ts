import { describe, expect, it } from 'vitest';
import { systemClock } from '../../src/core/system-clock.ts';
import { limitMs } from '../support/shared-config.ts';
import { until } from '../support/workplace.ts';
import { lastOk, openFaultPlace, rowsOf } from './support/fault-place.ts';

interface Pair {
  generation: number;
  locked_out_cause: string | null;
}

describe.concurrent('a refresh whose process stands still while the answer arrives', () => {
  it.for([
    { secondsStill: 24, isAlone: true },
    { secondsStill: 40, isAlone: true },
    { secondsStill: 24, isAlone: false },
    { secondsStill: 40, isAlone: false },
  ])(
    'keeps its tokens: $secondsStill s, alone: $isAlone',
    { timeout: limitMs(120_000) },
    async ({ secondsStill, isAlone }, { onTestFinished }) => {
      const place = await openFaultPlace({ poll: '* * * * * *' });
      onTestFinished(() => place.close());
      const stored = () => rowsOf<Pair>(place, 'SELECT * FROM tokens', 'state.db')[0] as Pair;
      const { control } = place.sandbox;
      const polled = () => lastOk(place, 'orders.poll');
      const first = await place.run();
      await until('orders were polled', () => polled() !== null);
      await first.end('SIGTERM');
      const daemon = await place.run();
      const startedAt = new Date().toISOString();
      await until('orders were polled again', () => (polled() ?? '') > startedAt);

      const { generation } = stored();
      const refreshes = control.calls('token.refresh').length;
      control.setFault({ kind: 'slow-body', endpoint: 'token.refresh', delayMs: 1_000, times: 1 });
      control.expireAccessTokens();
      await until('the platform got the refresh', () => control.calls('token.refresh').length > refreshes);
      daemon.child.kill('SIGSTOP');
      const stillSince = performance.now();
      // The other process waits for the lease of the refresh while the daemon stands still.
      const other = isAlone ? undefined : place.command('auth', 'refresh');
      await systemClock.sleep(secondsStill * 1_000 - (performance.now() - stillSince));
      const goesOnAt = new Date().toISOString();
      daemon.child.kill('SIGCONT');

      await until('polls go on', () => (polled() ?? '') > goesOnAt, 30_000);
      if (other) expect(await other).toMatchObject({ code: 0 });
      expect(control.deadRefreshUses()).toEqual([]);
      expect(stored()).toMatchObject({ generation: generation + 1, locked_out_cause: null });
      expect(control.calls('token.refresh')).toHaveLength(refreshes + 1);
      expect(await daemon.end('SIGTERM')).toBe(0);
    },
  );
});
