/** Tests src/daemon/daemon.ts. */

import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { request } from 'undici';
import { afterEach, beforeEach, expect, it } from 'vitest';
import { sampleConfig } from '../../config/package/configuration.ts';
import { loadSetup } from '../../src/config/config.ts';
import { TillsyncError } from '../../src/core/errors.ts';
import { silentLog } from '../../src/core/log.ts';
import { type Daemon, startDaemon } from '../../src/daemon/daemon.ts';
import { systemHolders } from '../../src/db/lease.ts';
import type { Transport } from '../../src/platform/transport.ts';
import { invoke } from '../cli/invoke.ts';
import { API_KEY } from '../support/api-key.ts';
import { seededRandom } from '../support/fake-clock.ts';
import { hastyClock } from '../support/hasty-clock.ts';
import { until } from '../support/workplace.ts';

let directory: string;
const daemons: Daemon[] = [];

beforeEach(() => {
  directory = mkdtempSync(path.join(tmpdir(), 'tillsync-new-'));
});

afterEach(async () => {
  await Promise.all(daemons.splice(0).map((daemon) => daemon.stop()));
  rmSync(directory, { recursive: true, force: true });
});

/** Starts a store with the sample configuration, but with paths and ports of its own. */
async function start(name: string, baseUrl?: string) {
  const file = path.join(directory, `${name}.toml`);
  const text = sampleConfig()
    .replace('"/var/lib/tillsync"', JSON.stringify(path.join(directory, name)))
    .replaceAll(/127\.0\.0\.1:878[78]/g, '127.0.0.1:0')
    .replace('*/2 * * * *', '* * * * * *');
  writeFileSync(file, baseUrl === undefined ? text : text.replace('https://api.example.com', baseUrl));
  let calls = 0;
  const transport: Transport = {
    send() {
      calls++;
      return Promise.reject(new TillsyncError('platform-unreachable', 'No such name.'));
    },
    close: async () => {},
  };
  const env = {
    TILLSYNC_CONFIG: file,
    TILLSYNC_REFRESH_TOKEN: 'token-of-the-new-platform',
    TILLSYNC_LOCAL_API_KEY: API_KEY,
  };
  const daemon = await startDaemon({
    ...loadSetup({ env }),
    transport,
    clock: hastyClock(200),
    random: seededRandom(3),
    log: silentLog,
  });
  daemons.push(daemon);
  const get = async (place: string) => {
    const answer = await request(daemon.localUrl + place);
    return { status: answer.statusCode, body: (await answer.body.json()) as Record<string, unknown> };
  };
  return { calls: () => calls, get, run: (...words: string[]) => invoke(words, { env }) };
}

it('calls nobody while the platform is not named, and says what to run', async () => {
  const fresh = await start('fresh');
  const other = await start('other', 'https://api.shop.example');
  await until('the other store has called', () => other.calls() > 2);
  expect(fresh.calls()).toBe(0);

  expect(await fresh.get('/healthz')).toMatchObject({ status: 200 });
  const { verdict } = (await fresh.get('/v1/status')).body as { verdict: { findings: object[] } };
  expect(verdict).toMatchObject({ level: 'amber', findings: [{ code: 'setup.missing' }] });
  expect(verdict.findings).toHaveLength(1);

  const said = /tillsync is not set up yet\.[\s\S]*[Rr]un: .*tillsync --config \S+fresh\.toml init/;
  for (const words of [['status'], ['doctor'], ['config', 'check']]) {
    const { stdout, stderr } = await fresh.run(...words);
    expect(stdout + stderr, words.join(' ')).toMatch(said);
    expect(stdout + stderr, words.join(' ')).not.toMatch(/auth set|webhook-secret|All is well/);
  }
  const checked = await fresh.run('config', 'check', '--json');
  expect(JSON.parse(checked.stdout)).toMatchObject({ ok: false, faults: [{ key: 'platform.base_url' }] });
  expect(await fresh.run('sync', 'orders')).toMatchObject({ code: 2, stderr: expect.stringMatching(said) });
});

it('begins without a file at its usual place alone', () => {
  expect(loadSetup({ env: {} }).config.platform.baseUrl).toBe('https://api.example.com');
  expect(() => loadSetup({ file: path.join(directory, 'typo.toml'), env: {} })).toThrow('no such file');
});

it('does not start beside another tillsync on its directory, and names it', async () => {
  const file = path.join(directory, 'twice.toml');
  const storage = path.join(directory, 'twice');
  const text = sampleConfig().replace('"/var/lib/tillsync"', JSON.stringify(storage));
  writeFileSync(file, text.replace('127.0.0.1:8788', '127.0.0.1:0').replace('127.0.0.1:8787', '127.0.0.1:0'));
  const setup = loadSetup({ env: { TILLSYNC_CONFIG: file } });
  const tools = { clock: hastyClock(200), random: seededRandom(3), log: silentLog };
  // The first daemon gets the process id of this process's parent, so that it looks like a daemon in another process.
  const [, , namespace] = systemHolders.self.split('.');
  const holders = { ...systemHolders, self: `${process.ppid}..${namespace}` };
  const first = await startDaemon({ ...setup, ...tools, holders });
  daemons.push(first);
  await expect(startDaemon({ ...setup, ...tools })).rejects.toMatchObject({
    code: 'config-invalid',
    message: `A tillsync runs on ${storage} already: process ${process.ppid}.`,
    hint: expect.stringContaining(`kill ${process.ppid}`),
  });
  expect((await fetch(`${first.localUrl}/healthz`)).status).toBe(200);
});
