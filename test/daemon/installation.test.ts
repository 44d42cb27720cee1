/** Tests src/app/installation.ts. */

import { chownSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { afterAll, describe, expect, test } from 'vitest';
import { createLocalServer } from '../../src/api/server.ts';
import { healthRoutes } from '../../src/api/status-routes.ts';
import { findInstallation } from '../../src/app/installation.ts';
import { formatCommands, setInstallation, TillsyncError, wordsOf } from '../../src/core/errors.ts';
import { silentLog } from '../../src/core/log.ts';
import { systemClock } from '../../src/core/system-clock.ts';
import { verdictOf } from '../../src/health/verdict.ts';
import { speechOf } from '../../src/page/words/language.ts';
import { invoke } from '../cli/invoke.ts';

const directory = mkdtempSync(path.join(tmpdir(), 'tillsync-second-'));
afterAll(() => rmSync(directory, { recursive: true, force: true }));
const SERVICE_UID = 997;

/** Makes another company's configuration. Its storage directory belongs to `uid`. */
function secondCompany(name: string, uid: number, localPort = 8788): { file: string; storage: string } {
  const file = path.join(directory, `${name}.toml`);
  const storage = path.join(directory, name);
  mkdirSync(storage);
  if (process.geteuid?.() === 0) chownSync(storage, uid, uid);
  writeFileSync(
    file,
    `[platform]\nbase_url = "http://127.0.0.1:9"\n[storage]\ndirectory = "${storage}"\n` +
      `[local]\nlisten = "127.0.0.1:${localPort}"\n[shop]\nname = "South shop"\n[webhook]\nenabled = false\n` +
      '[[branches]]\nexternal_id = "B1"\n',
  );
  return { file, storage };
}

const NO_TOKENS = {
  nowMs: 0,
  freshness: [],
  alarms: [],
  tokens: { state: 'none', refreshExpiresInMs: null },
  outbox: null,
  quarantine: 0,
  ordersStaleAfterMs: 0,
} as const;

describe('commands in texts are as they are typed', () => {
  const packaged = {
    program: 'tillsync',
    needsSudo: true,
    storage: '/var/lib/tillsync',
    configFile: null,
    unit: 'tillsync.service',
  } as const;

  test('on the packaged machine, for a second company, and in a checkout', () => {
    expect(wordsOf(packaged)).toMatchObject({
      tillsync: 'sudo tillsync',
      start: 'sudo systemctl start tillsync',
      stop: 'sudo systemctl stop tillsync.socket tillsync.service',
    });
    const second = {
      ...packaged,
      configFile: '/etc/tillsync/second.toml',
      unit: 'tillsync@second.service',
    };
    expect(wordsOf(second)).toMatchObject({
      tillsync: 'sudo tillsync --config /etc/tillsync/second.toml',
      restart: 'sudo systemctl restart tillsync@second',
      journal: 'sudo journalctl -u tillsync@second -n 50',
    });
    const checkout = { program: 'npm run -s tillsync --', needsSudo: false, storage: '/s', unit: null };
    expect(wordsOf({ ...checkout, configFile: "/home/me/my shop's.toml" })).toMatchObject({
      tillsync: "npm run -s tillsync -- --config '/home/me/my shop'\\''s.toml'",
      start: "npm run -s tillsync -- --config '/home/me/my shop'\\''s.toml' run",
    });
    expect(wordsOf({ ...checkout, configFile: null, runs: 'demo' }).start).toBe(
      'npm run -s tillsync -- demo',
    );
  });

  test.skipIf(process.geteuid?.() !== 0)('with sudo where a service user owns what is stored', () => {
    const { file } = secondCompany('owned', SERVICE_UID);
    expect(findInstallation(file, {})).toMatchObject({ needsSudo: true, configFile: file, unit: null });
    const own = secondCompany('own', process.geteuid?.() ?? 0);
    expect(findInstallation(own.file, {})).toMatchObject({ needsSudo: false });
    expect(findInstallation(undefined, { TILLSYNC_CONFIG: file }).configFile).toBe(file);
  });

  test('in findings, errors and on the page in Spanish', () => {
    const second = {
      program: 'tillsync',
      needsSudo: true,
      storage: '/var/lib/tillsync',
      configFile: '/etc/tillsync/second.toml',
      unit: 'tillsync@second.service',
    };
    setInstallation(() => second);
    const [finding] = verdictOf(NO_TOKENS).findings;
    const [down] = verdictOf({ ...NO_TOKENS, running: false }).findings;
    expect(finding?.remedy).toContain('sudo tillsync --config /etc/tillsync/second.toml auth set');
    expect(down?.remedy).toContain('sudo systemctl start tillsync@second');
    const hint = 'Run: {tillsync} auth set';
    expect(new TillsyncError('usage', 'x', { hint }).hint).toBe(formatCommands(hint));
    expect(formatCommands(hint)).toBe('Run: sudo tillsync --config /etc/tillsync/second.toml auth set');
    setInstallation();
    if (!finding) throw new Error('nothing was found');
    expect(speechOf('es', []).finding(finding, wordsOf(second)).remedy).toContain(
      'sudo tillsync --config /etc/tillsync/second.toml auth set',
    );
  });

  test('in the answer of a command that was given the second company', async () => {
    const { file } = secondCompany('typed', process.geteuid?.() ?? 0);
    const { stderr } = await invoke(['outbox', 'retry', 'x', '--config', file], { env: {} });
    expect(stderr).toContain(`tillsync --config ${file} outbox list`);
  });
});

test("doctor of a stopped company does not take another one's port for its own", async () => {
  const first = createLocalServer({
    host: '127.0.0.1',
    port: 0,
    clock: systemClock,
    log: silentLog,
    plugins: [
      healthRoutes({
        clock: systemClock,
        loopsAlive: () => [],
        notReady: () => [],
        storage: '/var/lib/tillsync',
        apiKey: 'key-of-the-first-company',
      }),
    ],
  });
  const { url } = await first.listen();
  try {
    const { file } = secondCompany('stopped', process.geteuid?.() ?? 0, Number(new URL(url).port));
    const { stdout } = await invoke(
      ['doctor', '--offline', '--only', 'service', '--json', '--config', file],
      {
        env: {},
      },
    );
    const checks = new Map(
      JSON.parse(stdout).checks.map((check: { id: string }) => [check.id, check] as const),
    );
    expect(checks.get('service.api')).toMatchObject({ level: 'fail' });
    expect(checks.get('service.api')).toHaveProperty(
      'message',
      expect.stringContaining('The tillsync of /var/lib/tillsync answers at'),
    );
    expect(checks.get('service.version')).toMatchObject({ level: 'skipped' });
    expect(checks.get('service')).not.toMatchObject({ level: 'ok' });
  } finally {
    await first.close();
  }
});
