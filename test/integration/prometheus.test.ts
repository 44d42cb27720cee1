import { spawnSync } from 'node:child_process';
import path from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { openWorkplace, ROOT, until, type Workplace } from '../support/workplace.ts';

/** Runs `promtool` of the Debian package `prometheus`. */
function promtool(words: string[], input = '') {
  const { status, stdout, stderr } = spawnSync('promtool', words, { cwd: ROOT, input, encoding: 'utf8' });
  return { status, text: `${stdout}${stderr}` };
}
const hasPromtool = promtool(['--version']).status === 0;
if (!hasPromtool) console.warn('promtool is not installed: what Prometheus itself thinks is not tried');

let place: Workplace;
beforeEach(async () => {
  place = await openWorkplace(3);
});
afterEach(() => place.close());

describe.skipIf(!hasPromtool)('what Prometheus thinks', () => {
  it('of a scrape of a running daemon: nothing to find fault with', async () => {
    const daemon = await place.run();
    place.sandbox.control.createOrder();
    let scrape = '';
    await until('an order came in', async () => {
      scrape = await (await fetch(`${daemon.localUrl}/metrics`)).text();
      return scrape.includes('tillsync_orders 1');
    });
    expect(promtool(['check', 'metrics'], scrape)).toEqual({ status: 0, text: '' });
    // Counters have to begin at 0, because Prometheus sees no rise in a counter that begins at 1.
    expect(scrape).toContain('tillsync_platform_calls_total{endpoint="order.all",outcome="rate_limited"} 0');
    expect(scrape).toContain(
      'tillsync_platform_calls_total{endpoint="product.stock.batch",outcome="forbidden"} 0',
    );
    expect(scrape).toContain('tillsync_alarm_messages_total{channel="url",outcome="failed"} 0');
    await daemon.end('SIGTERM');
  });

  it('of the alert rules: sound, quiet when all is well, loud when it is not', () => {
    const rules = path.join(ROOT, 'config/prometheus/alerts.yml');
    expect(promtool(['check', 'rules', '--lint-fatal', rules])).toMatchObject({ status: 0 });
    const tested = promtool(['test', 'rules', path.join(ROOT, 'test/health/alerts.test.yml')]);
    expect(tested.text).toContain('SUCCESS');
    expect(tested.status).toBe(0);
  });
});
