import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { readConfig } from '../../src/config/config.ts';
import { readSecrets, secretValues } from '../../src/config/secrets.ts';

let directory: string;
beforeEach(() => {
  directory = mkdtempSync(path.join(tmpdir(), 'tillsync-alarms-'));
});
afterEach(() => rmSync(directory, { recursive: true, force: true }));

function read(alarms: string, env: Record<string, string> = {}) {
  const file = path.join(directory, 'config.toml');
  writeFileSync(file, `[platform]\nbase_url = "https://api.example.com"\n[alarms]\n${alarms}\n`);
  const result = readConfig({ file, env });
  return 'faults' in result ? result.faults.map(({ key, origin }) => key || origin) : result.config.alarms;
}

describe('[alarms]', () => {
  it('takes a command as a list, an address, and how often', () => {
    const text =
      'command = ["/bin/tell", "a b"]\nurl = "https://x.example/h?k=1"\nrepeat = "24h"\ndaily_max = 3';
    expect(read(text)).toEqual({
      command: ['/bin/tell', 'a b'],
      url: 'https://x.example/h?k=1',
      heartbeatUrl: '',
      heartbeatEveryMs: 60_000,
      level: 'amber',
      settleMs: 60_000,
      repeatMs: 86_400_000,
      dailyMax: 3,
      unbookedAfterMs: 600_000,
      posSilentAfterMs: 'auto',
      timeoutMs: 30_000,
    });
    expect(read('', { TILLSYNC_ALARMS_COMMAND: '["/bin/tell"]' })).toMatchObject({ command: ['/bin/tell'] });
  });

  it.each([
    ['command = "/bin/tell --urgent"', 'alarms.command'],
    ['command = [""]', 'alarms.command'],
    ['url = "https://user:word@x.example/"', 'alarms.url'],
    ['url = "ftp://x.example/"', 'alarms.url'],
    ['level = "green"', 'alarms.level'],
    ['daily_max = 0', 'alarms.daily_max'],
  ])('refuses %s', (text, key) => {
    expect(read(text)).toEqual([key]);
  });

  it('does not repeat a password that stands in an address', () => {
    const file = path.join(directory, 'config.toml');
    writeFileSync(
      file,
      '[platform]\nbase_url = "https://u:hidden@a"\n[alarms]\nurl = "https://u:hidden@b"\n',
    );
    const result = readConfig({ file, env: {} });
    expect(result).toHaveProperty('faults.length', 2);
    expect(JSON.stringify(result)).not.toContain('hidden');
  });

  it('knows what a command finds around it from a slip of the hand', () => {
    expect(read('', { TILLSYNC_ALARM_KEY: 'orders.stale', TILLSYNC_ALARM_TEXT: 'x' })).toHaveProperty(
      'dailyMax',
    );
    expect(read('', { TILLSYNC_ALARM_COMMAND: '[]' })).toEqual([
      'environment variable TILLSYNC_ALARM_COMMAND',
    ]);
  });

  it('takes an address and a token as secrets, and never shows them', () => {
    const handed = {
      TILLSYNC_ALARM_URL: 'https://x.example/hidden-part',
      TILLSYNC_ALARM_TOKEN: 'hidden-token',
    };
    const good = readSecrets(handed);
    expect('secrets' in good && secretValues(good.secrets)).toEqual(Object.values(handed));
    const bad = readSecrets({ TILLSYNC_ALARM_URL: 'x.example/hidden-part' });
    expect(bad).toHaveProperty('faults.length', 1);
    expect(JSON.stringify(bad)).not.toContain('hidden-part');
  });
});
