import { readFileSync } from 'node:fs';
import path from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { silentLog } from '../../src/core/log.ts';
import { systemClock, systemRandom } from '../../src/core/system-clock.ts';
import { type Daemon, startDaemon } from '../../src/daemon/daemon.ts';
import { demoConfig } from '../../src/demo/sandbox-platform.ts';
import { Counters } from '../../src/health/counters.ts';
import { API_KEY } from '../support/api-key.ts';
import { openWorkplace, QUICK_LIMITS, ROOT, SECRET, until, type Workplace } from '../support/workplace.ts';

const read = (file: string) => readFileSync(path.join(ROOT, file), 'utf8');
const METRIC = /\b(?:tillsync|process|nodejs)_[a-z0-9_]+\b/g;

interface Panel {
  id: number;
  type: string;
  title: string;
  description?: string;
  gridPos: { x: number; y: number; w: number; h: number };
  targets?: { expr: string }[];
  fieldConfig?: { defaults: { unit?: string; mappings?: unknown[] } };
}

const dashboard = JSON.parse(read('config/grafana/tillsync.json')) as {
  panels: Panel[];
  templating: { list: { name: string; type: string }[] };
};
const panels = dashboard.panels.filter(({ type }) => type !== 'row');
const figures = () => new Set([...scrape.matchAll(/^([a-z0-9_]+)[{ ]/gm)].map((match) => match[1]));

let place: Workplace;
let daemon: Daemon;
let scrape = '';

const look = async () => {
  scrape = await (await fetch(`${daemon.localUrl}/metrics`)).text();
  return scrape;
};

/**
 * Starts a daemon in this process, and waits until it has polled, swept, received callbacks, sent one change and had
 * another rejected.
 */
beforeAll(async () => {
  place = await openWorkplace(5);
  const { control } = place.sandbox;
  control.createOrder();
  const { port } = place.config.webhook;
  const demo = demoConfig({ baseUrl: place.sandbox.url, directory: place.storage, webhookPort: port });
  // Polls are switched off after the first one, so that the next order comes by a callback.
  const config = { ...demo, orders: { ...demo.orders, poll: '0 0 1 1 *' }, limits: QUICK_LIMITS };
  const secrets = { refreshToken: place.refreshToken, webhookSecrets: [SECRET], localApiKey: API_KEY };
  daemon = await startDaemon({ config, secrets, clock: systemClock, random: systemRandom, log: silentLog });
  await until('the daemon has polled and swept', async () => {
    await look();
    return ['flow="catalog.sweep",state="ok"} 1', 'tillsync_orders 1\n'].every((text) =>
      scrape.includes(text),
    );
  });
  await fetch(daemon.webhookUrl as string, {
    method: 'POST',
    headers: { 'x-webhook-secret': SECRET },
    body: 'no JSON',
  });
  await fetch(daemon.webhookUrl as string, { method: 'POST', body: '{}' });
  control.createOrder();
  await control.settled();
  const items = [
    { externalId: 'A-1001-1', qty: 3 },
    { externalId: 'no-such-product', qty: 1 },
  ];
  await fetch(`${daemon.localUrl}/v1/stock`, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify(items),
  });
  await until('one change was sent and one refused', async () => {
    await look();
    const wanted = [
      'changes{state="rejected"} 1',
      'kind="stock",outcome="done"} 1',
      'eventloop_lag_max_seconds',
    ];
    return wanted.every((text) => scrape.includes(text));
  });
});
afterAll(async () => {
  await daemon?.stop();
  await place?.close();
});

describe('a scrape', () => {
  it('tells what happened', () => {
    expect(scrape).toContain('tillsync_token_state{state="ok"} 1');
    expect(scrape).toMatch(/tillsync_platform_calls_total{endpoint="order.all",outcome="ok"} [1-9]/);
    expect(scrape).toMatch(/tillsync_callbacks_total{status="200"} [1-9]/);
    expect(scrape).toContain('tillsync_callbacks_total{status="400"} 1');
    expect(scrape).toContain('tillsync_callbacks_total{status="401"} 1');
    expect(scrape).toContain('tillsync_quarantine_entries_by_source{source="webhook"} 1');
    expect(scrape).toContain('tillsync_orders 2');
    expect(scrape).toMatch(/^tillsync_catalog_unmapped_products\{branch="\S+"\} \d+$/m);
    expect(scrape).toMatch(/tillsync_orders_received_total{source="webhook"} 1/);
    expect(scrape).toContain('tillsync_finding{code="outbox.rejected"} 1');
    expect(scrape).toContain('tillsync_verdict 1');
    expect(scrape).toContain('tillsync_source_readable{source="mirror"} 1');
    expect(scrape).toContain('tillsync_outbox_items_total{kind="stock",outcome="done"} 1');
    expect(scrape).toContain('tillsync_outbox_push_delay_seconds_count{kind="stock"} 1');
  });

  it('tells nothing secret and nothing of a single order or product', () => {
    for (const { order_id: id } of place.mirrorRows()) expect(scrape).not.toContain(id);
    for (const secret of [place.refreshToken, SECRET, 'no-such-product'])
      expect(scrape).not.toContain(secret);
    expect(scrape).not.toMatch(/eyJ[\w-]{8}/);
  });

  it('names every figure with its unit, and explains it', () => {
    for (const [, name, type] of scrape.matchAll(/^# TYPE (\S+) (\S+)$/gm)) {
      expect(scrape).toMatch(new RegExp(`^# HELP ${name} \\S.{10,}$`, 'm'));
      expect(type === 'counter', `${name} is a ${type}`).toBe(name?.endsWith('_total') === true);
    }
    const series = scrape.split('\n').filter((line) => line !== '' && !line.startsWith('#'));
    expect(new Set(series.map((line) => line.replace(/ \S+$/, ''))).size).toBe(series.length);
    expect(series.length).toBeLessThan(500);
  });
});

describe('the alert rules and the dashboard', () => {
  it.each(['config/prometheus/alerts.yml', 'config/grafana/tillsync.json'])(
    '%s know only figures there are',
    (file) => {
      const names = new Set(read(file).match(METRIC));
      expect(names.size).toBeGreaterThan(10);
      // Waiting times are left out, because nothing waited here; metrics of branches are tested in
      // test/api/branches.test.ts.
      const { name: waits } = new Counters().waitSeconds;
      const isElsewhere = (name: string) => name === waits || name.startsWith('tillsync_branch');
      const unknown = [...names].filter((name) => !figures().has(name) && !isElsewhere(name));
      expect(unknown).toEqual([]);
    },
  );

  it('give every panel a unit or meaning, a description, and a place of its own', () => {
    expect(panels.length).toBeGreaterThan(20);
    expect(new Set(dashboard.panels.map(({ id }) => id)).size).toBe(dashboard.panels.length);
    for (const { title, type, description, fieldConfig, targets = [] } of panels) {
      expect(description, title).toMatch(/.{10,}\.$/);
      const { unit, mappings } = fieldConfig?.defaults ?? {};
      expect(unit !== undefined || mappings !== undefined || type === 'table', title).toBe(true);
      for (const { expr } of targets) expect(expr, title).toContain('instance=~"$instance"');
    }
    for (const [i, { gridPos: a, title }] of dashboard.panels.entries()) {
      expect(a.x + a.w, title).toBeLessThanOrEqual(24);
      for (const { gridPos: b } of dashboard.panels.slice(i + 1)) {
        const apart = a.x + a.w <= b.x || b.x + b.w <= a.x || a.y + a.h <= b.y || b.y + b.h <= a.y;
        expect(apart, title).toBe(true);
      }
    }
  });

  it('can be imported anywhere: the data source is chosen', () => {
    expect(dashboard.templating.list.map(({ name, type }) => `${type} ${name}`)).toEqual([
      'datasource datasource',
      'query job',
      'query instance',
    ]);
    expect(read('config/grafana/tillsync.json')).not.toMatch(/"uid": "(?!\$\{datasource\}|tillsync")/);
  });
});
