/** Tests src/api/branch-routes.ts. */

import { readFileSync } from 'node:fs';
import path from 'node:path';
import { expect, it, onTestFinished } from 'vitest';
import { ChangeSignal } from '../../src/api/api.ts';
import { localApi } from '../../src/api/local-api.ts';
import { Metrics } from '../../src/api/metrics.ts';
import { createLocalServer } from '../../src/api/server.ts';
import { branchesAnswer, statusAnswer } from '../../src/api/status-schemas.ts';
import type { Services } from '../../src/app/services.ts';
import { TillsyncError } from '../../src/core/errors.ts';
import { silentLog } from '../../src/core/log.ts';
import type { Clock } from '../../src/core/time.ts';
import { Counters } from '../../src/health/counters.ts';
import { exposition } from '../../src/health/metrics-format.ts';
import { type Chain, openChain } from '../link/chain-rig.ts';
import { product } from '../outbox/outbox-fixture.ts';
import { API_KEY } from '../support/api-key.ts';
import { NO_RECEIVERS } from '../support/no-receivers.ts';
import { ROOT } from '../support/workplace.ts';

/** Serves the local API of one store of the chain. */
async function serve(services: Services, clock: Clock): Promise<(path: string) => Promise<Response>> {
  const api = localApi({
    services,
    apiKey: API_KEY,
    changes: new ChangeSignal(),
    version: '1.2.3',
    receivers: NO_RECEIVERS,
    clock,
    log: silentLog,
  });
  const server = createLocalServer({ host: '127.0.0.1', port: 0, clock, log: silentLog, plugins: [api] });
  const { url } = await server.listen();
  onTestFinished(() => server.close());
  return (path) => fetch(`${url}/v1${path}`, { headers: { connection: 'close' } });
}

/** Returns a function that reads the hub's metrics. */
function scrapes({ hub: { services }, clock }: Chain): () => Promise<string> {
  const { config } = services;
  const options = { services, config, counters: new Counters(), loopsAlive: () => [], version: '1.2.3' };
  const metrics = new Metrics({ ...options, clock, log: silentLog });
  onTestFinished(() => metrics.close());
  return async () => exposition(await metrics.collect(), 'text');
}

it('a hub tells how its branches fare, as documented', async () => {
  const chain = await openChain();
  const { hub, branches, clock } = chain;
  await chain.settle();
  await hub.order(1, 'B1');
  await clock.advance(120_000);
  await branches[1].follower.hello();
  const get = await serve(hub.services, clock);
  const answer = branchesAnswer.strict().parse(await (await get('/branches')).json());
  expect(answer.branches).toMatchObject([
    { branch: 'B1', level: 'amber', reason: 'absent', behind: 1 },
    { branch: 'B2', level: 'green', behind: 0 },
  ]);
  expect(statusAnswer.parse(await (await get('/status')).json()).role).toBe('hub');
  const { paths } = (await (await get('/openapi.json')).json()) as { paths: object };
  expect(Object.keys(paths)).toContain('/branches');
  expect(JSON.stringify(answer)).not.toMatch(/publicKey|seed/);
});

it('a branch tells nothing of others, and misses no tokens of the platform', async () => {
  const chain = await openChain();
  await chain.settle();
  const get = await serve(chain.branches[0].services, chain.clock);
  expect((await get('/branches')).status).toBe(404);
  const { paths } = (await (await get('/openapi.json')).json()) as { paths: object };
  expect(Object.keys(paths)).not.toContain('/branches');
  const status = statusAnswer.parse(await (await get('/status')).json());
  expect(status).toMatchObject({ role: 'branch', tokens: null, tokensFault: null });
  expect(status.verdict.findings.map(({ code }) => code)).not.toContain('auth.none');
});

it('a hub measures its branches', async () => {
  const chain = await openChain();
  const { hub, branches, clock } = chain;
  await chain.settle();
  await branches[1].count('A', 3, 'first');
  await branches[1].follower.hello();
  await hub.order(1, 'B1');
  await clock.advance(30_000);
  // The branch reports before it has received the order.
  await branches[0].follower.hello();
  const metrics = await scrapes(chain)();
  for (const line of [
    'tillsync_branches{verdict="green"} 2',
    'tillsync_branches{verdict="red"} 0',
    'tillsync_branch_behind_entries{branch="B1"} 1',
    'tillsync_branch_behind_age_seconds{branch="B1"} 30',
    'tillsync_branch_behind_age_seconds{branch="B2"} 0',
    'tillsync_branch_waiting_changes{branch="B2"} 1',
    'tillsync_branch_oldest_waiting_age_seconds{branch="B2"} 30',
  ]) {
    expect(metrics).toContain(`\n${line}\n`);
  }
  // Each metric of branches that the alert rules and the dashboard use must exist.
  const files = ['config/prometheus/alerts.yml', 'config/grafana/tillsync.json'];
  const text = files.map((file) => readFileSync(path.join(ROOT, file), 'utf8')).join('\n');
  const names = new Set(text.match(/\btillsync_branch\w*/g));
  expect(names.size).toBeGreaterThan(1);
  for (const name of names) expect(metrics, name).toMatch(new RegExp(`^${name}[{ ]`, 'm'));
});

it('a scrape tells the verdict, and of the mirror, though state.db cannot be read', async () => {
  const chain = await openChain();
  chain.hub.services.platform.tokens.describe = () => {
    throw new TillsyncError('storage-failed', 'state.db cannot be read.');
  };
  const metrics = await scrapes(chain)();
  expect(metrics).toContain('\ntillsync_source_readable{source="mirror"} 1\n');
  expect(metrics).toContain('\ntillsync_source_readable{source="state"} 0\n');
  expect(metrics).toContain('\ntillsync_finding{code="state.unusable"} 2\n');
  expect(metrics).toContain('\ntillsync_verdict 2\n');
});

it('scrapes read the whole catalogue every five minutes only', async () => {
  const chain = await openChain();
  const { hub, clock } = chain;
  const scrape = scrapes(chain);
  const unmapped = async () =>
    /^tillsync_catalog_unmapped_products\{branch="B1"\} (\d+)$/m.exec(await scrape())?.[1];
  await hub.sweep([product('p1', 'Tea', [{ sku: '10', stocks: { 'sub-1': ['A', 5] } }])]);
  expect(await unmapped()).toBe('0');
  await hub.services.mirror.write((db) => db.exec('DELETE FROM _stocks'));
  await clock.advance(299_000);
  expect(await unmapped()).toBe('0');
  await clock.advance(1_000);
  expect(await unmapped()).toBeUndefined();
});
