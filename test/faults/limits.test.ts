import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { writeFileSync } from 'node:fs';
import path from 'node:path';
import { afterEach, describe, expect, it } from 'vitest';
import { limitMs } from '../support/shared-config.ts';
import { MAIN, NODE, until, type Workplace } from '../support/workplace.ts';
import { lastOk, openFaultPlace } from './support/fault-place.ts';

let place: Workplace;
afterEach(() => place.close());

const EVERY_SECOND = '* * * * * *';
const polled = () => until('orders were polled', () => lastOk(place, 'orders.poll') !== null, 20_000);

describe('the limits', () => {
  it('hold for a daemon with five commands beside it', async () => {
    const limits = {
      endpointIntervalMs: 200,
      ordersIntervalMs: 600,
      windowMs: 6_000,
      requestsPerWindow: 14,
      ordersPerWindow: 5,
    };
    place = await openFaultPlace({ poll: EVERY_SECOND, sandbox: { limits } });
    const { control } = place.sandbox;
    await place.run();
    await polled();
    const commands = [
      ['sync', 'orders'],
      ['sync', 'catalog'],
      ['sync', 'orders'],
      ['product', 'show', '--sku', '1001', '--live'],
      ['webhook', 'show'],
    ].map((words) => place.command(...words));
    const results = await Promise.all(commands);
    expect(results.map(({ code, stderr }) => (code === 0 ? 0 : stderr))).toEqual([0, 0, 0, 0, 0]);
    await until('the window has passed once', () => control.calls().length > 14);
    expect(control.violations()).toEqual([]);
  });

  it(
    'hold over fifty crashes in a row',
    async () => {
      const limits = {
        endpointIntervalMs: 100,
        ordersIntervalMs: 1_500,
        windowMs: 120_000,
        requestsPerWindow: 60,
        ordersPerWindow: 12,
      };
      place = await openFaultPlace({ poll: EVERY_SECOND, sandbox: { limits } });
      const { control } = place.sandbox;
      const beganMs = performance.now();
      const first = await place.run();
      await polled();
      await first.end('SIGTERM');
      const crash = path.join(place.directory, 'crash.mjs');
      writeFileSync(
        crash,
        `const { write } = process.stdout;
       process.stdout.write = function (text, ...rest) {
         if (String(text).includes('tillsync is running')) setTimeout(() => process.exit(1), 200 + 900 * Math.random());
         return write.call(this, text, ...rest);
       };`,
      );
      const env = { ...place.env, NODE_OPTIONS: `--import ${crash}` };
      for (let crashes = 0; crashes < 50; crashes++) {
        const [code] = await once(spawn(NODE, [MAIN, 'run'], { env, stdio: 'ignore' }), 'exit');
        expect(code).toBe(1);
      }
      expect(control.calls('order.all').length).toBeGreaterThan(5);
      // On a slow machine fifty crashes take longer than one window.
      const windows = Math.ceil((performance.now() - beganMs) / limits.windowMs);
      expect(control.calls('order.all').length).toBeLessThanOrEqual(limits.ordersPerWindow * windows);
      expect(control.violations()).toEqual([]);
      expect(control.deadRefreshUses()).toEqual([]);
    },
    limitMs(240_000),
  );
});
