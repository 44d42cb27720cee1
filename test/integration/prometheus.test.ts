import { spawnSync } from 'node:child_process';
import { readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { FINDINGS, type FindingCode } from '../../src/health/findings.ts';
import { openWorkplace, ROOT, until, type Workplace } from '../support/workplace.ts';

/** Runs `promtool` of the Debian package `prometheus`. */
function promtool(words: string[], input = '') {
  const { status, stdout, stderr } = spawnSync('promtool', words, { cwd: ROOT, input, encoding: 'utf8' });
  return { status, text: `${stdout}${stderr}` };
}
const hasPromtool = promtool(['--version']).status === 0;
const RULES = path.join(ROOT, 'config/prometheus/alerts.yml');
const CODES = Object.keys(FINDINGS) as FindingCode[];

/** Rules about another figure, which tell of these findings. */
const TOLD_BY_FIGURE: Partial<Record<FindingCode, string>> = {
  'auth.expiring': 'TillsyncTokenEnding',
  'auth.locked-out': 'TillsyncTokensNeedPerson',
  'auth.none': 'TillsyncTokensNeedPerson',
  'outbox.held': 'TillsyncChangesHeld',
  'outbox.rejected': 'TillsyncChangesRefused',
  'outbox.stuck': 'TillsyncChangesStuck',
  'platform.blocked': 'TillsyncPlatformBlocks',
  'platform.forbidden': 'TillsyncPlatformBlocks',
  'platform.limits-shared': 'TillsyncPlatformBlocks',
};
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
    expect(promtool(['check', 'rules', '--lint-fatal', RULES])).toMatchObject({ status: 0 });
    const tested = promtool(['test', 'rules', path.join(ROOT, 'test/health/alerts.test.yml')]);
    expect(tested.text).toContain('SUCCESS');
    expect(tested.status).toBe(0);
  });

  it('of each finding: one alert, within two minutes and critical where it is red', () => {
    const series = (instance: string, code: string, value: number) => ({
      series: `tillsync_finding{job="tillsync",instance="${instance}",code="${code}"}`,
      values: `${value}x60`,
    });
    const once = (codes: readonly string[]) =>
      codes.map((code) => ({ labels: `{code="${code}"}`, value: 1 }));
    const alerts = (filter: string) => `count by (code) (ALERTS{alertstate="firing",${filter}})`;
    const ambers = CODES.filter((code) => FINDINGS[code].level === 'amber');
    const reds = CODES.filter((code) => code !== 'auth.locked-out' && code !== 'auth.none');
    const test = {
      interval: '1m',
      input_series: [
        ...CODES.map((code) => series('red', code, 2)),
        ...ambers.map((code) => series('amber', code, 1)),
      ],
      promql_expr_test: [
        { expr: alerts('instance="red",severity="critical"'), eval_time: '2m', exp_samples: once(reds) },
        {
          expr: alerts('instance="amber"'),
          eval_time: '40m',
          exp_samples: once(ambers.filter((code) => TOLD_BY_FIGURE[code] === undefined)),
        },
      ],
    };
    const file = path.join(place.storage, '../every-finding.json');
    writeFileSync(file, JSON.stringify({ rule_files: [RULES], evaluation_interval: '1m', tests: [test] }));
    expect(promtool(['test', 'rules', file]).text).toContain('SUCCESS');
    const rules = readFileSync(RULES, 'utf8');
    for (const alert of Object.values(TOLD_BY_FIGURE)) expect(rules).toContain(`- alert: ${alert}\n`);
  });
});
