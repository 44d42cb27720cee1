/** Tests src/health/metrics-format.ts, Counter and Histogram of src/health/counters.ts. */

import { afterEach, describe, expect, it } from 'vitest';
import { createLocalServer } from '../../src/api/server.ts';
import { metricsRoutes } from '../../src/api/status-routes.ts';
import { silentLog } from '../../src/core/log.ts';
import { Counter, Histogram } from '../../src/health/counters.ts';
import { exposition, gauge } from '../../src/health/metrics-format.ts';
import { API_KEY } from '../support/api-key.ts';
import { FakeClock } from '../support/fake-clock.ts';

type LocalServer = ReturnType<typeof createLocalServer>;

const calls = () => {
  const counter = new Counter({ name: 'calls_total', help: 'Calls "made".', labels: ['to'] });
  counter.add(2, { to: 'a"b\\c\nd' });
  counter.add(1, { to: 'a"b\\c\nd' });
  return counter;
};

describe('the exposition', () => {
  it('writes counters and gauges, with labels escaped', () => {
    const free = gauge('free_bytes', 'Back\\slash\nand line.', [{ labels: {}, value: 12.5 }]);
    expect(exposition([calls(), free, gauge('unknown', 'Not known.', [])], 'text')).toBe(
      '# HELP calls_total Calls "made".\n# TYPE calls_total counter\ncalls_total{to="a\\"b\\\\c\\nd"} 3\n' +
        '# HELP free_bytes Back\\\\slash\\nand line.\n# TYPE free_bytes gauge\nfree_bytes 12.5\n',
    );
  });

  it('names counters as OpenMetrics wants them, and ends', () => {
    expect(exposition([calls()], 'openmetrics')).toBe(
      '# HELP calls Calls \\"made\\".\n# TYPE calls counter\ncalls_total{to="a\\"b\\\\c\\nd"} 3\n# EOF\n',
    );
  });

  it('counts a value in every bucket that it fits', () => {
    const seconds = new Histogram({ name: 's', help: 'S.', labels: ['kind'], buckets: [0.5, 2] });
    for (const value of [0.5, 1, 3]) seconds.observe(value, { kind: 'x' });
    expect(exposition([seconds], 'text').split('\n').slice(2, -1)).toEqual([
      's_bucket{kind="x",le="0.5"} 1',
      's_bucket{kind="x",le="2"} 2',
      's_bucket{kind="x",le="+Inf"} 3',
      's_sum{kind="x"} 4.5',
      's_count{kind="x"} 3',
    ]);
  });
});

describe('GET /metrics', () => {
  let server: LocalServer | undefined;
  afterEach(() => server?.close());

  async function serve(apiKey = API_KEY): Promise<string> {
    const plugins = [metricsRoutes({ apiKey }, async () => [calls()])];
    server = createLocalServer({
      host: '127.0.0.1',
      port: 0,
      clock: new FakeClock(),
      log: silentLog,
      plugins,
    });
    return `${(await server.listen()).url}/metrics`;
  }

  it('answers a program on this machine in the format it asks for', async () => {
    const url = await serve();
    const text = await fetch(url);
    expect(text.headers.get('content-type')).toBe('text/plain; version=0.0.4; charset=utf-8');
    expect(await text.text()).toContain('\ncalls_total{');
    const accept = 'application/openmetrics-text;version=1.0.0;q=0.8,text/plain;version=0.0.4;q=0.5';
    const open = await fetch(url, { headers: { accept } });
    expect(open.headers.get('content-type')).toMatch(/^application\/openmetrics-text; version=1\.0\.0/);
    expect(await open.text()).toMatch(/# EOF\n$/);
  });

  it('wants the key from elsewhere, as Prometheus sends it', async () => {
    const url = await serve('key-1');
    // A request through a proxy did not come from this machine.
    const from = { 'x-forwarded-for': '192.0.2.7' };
    expect((await fetch(url, { headers: { ...from, 'x-api-key': '' } })).status).toBe(401);
    expect((await fetch(url, { headers: { ...from, authorization: 'Bearer wrong' } })).status).toBe(401);
    expect((await fetch(url, { headers: { ...from, authorization: 'Bearer key-1' } })).status).toBe(200);
  });
});
