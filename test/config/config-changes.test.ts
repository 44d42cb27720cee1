import { mkdtempSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { expect, onTestFinished, test } from 'vitest';
import { openMirror } from '../../src/app/mirror.ts';
import { openState } from '../../src/app/state.ts';
import { loadConfig } from '../../src/config/config.ts';
import { noteConfigChanges } from '../../src/config/config-changes.ts';
import type { Secrets } from '../../src/config/secrets.ts';
import { silentLog } from '../../src/core/log.ts';
import { MirrorStores } from '../../src/outbox/sending/repositories.ts';
import { FakeClock } from '../support/fake-clock.ts';
import { freshMirror } from '../support/fresh-mirror.ts';

const NONE: Secrets = { webhookSecrets: [] };

function place() {
  const directory = mkdtempSync(path.join(tmpdir(), 'tillsync-seen-'));
  const clock = new FakeClock();
  const mirror = openMirror({ path: freshMirror(directory), clock });
  const state = openState({ path: path.join(directory, 'state.db'), clock });
  onTestFinished(async () => {
    state.close();
    await mirror.close();
  });
  const stores = new MirrorStores({ mirror, branches: [], clock });
  const start = (text: string, secrets = NONE) => {
    const all = `[platform]\nbase_url = "https://api.shop.test"\n${text}`;
    const config = loadConfig({ file: path.join(directory, 'config.toml'), env: {}, text: all });
    return noteConfigChanges({ state, stores, config }, secrets, silentLog);
  };
  const details = () => stores.read(({ audit }) => audit.list({ limit: 10 }).map(({ detail }) => detail));
  return { start, details, mirror, stores };
}

test('the first start is noted, and a later one only by the keys that are others', async () => {
  const { start, details, stores } = place();
  await start('');
  await start('');
  expect(details()).toEqual(['first seen']);
  await start('[local]\nlisten = "127.0.0.1:9000"\n[shop]\nname = "Corner"');
  await start('[local]\nlisten = "127.0.0.1:9000"\n[shop]\nname = "Corner"');
  await start('[local]\nlisten = "127.0.0.1:9000"');
  expect(details()).toEqual(['shop.name', 'shop.name, local.listen', 'first seen']);
  const subjects = stores.read(({ audit }) => audit.list({ limit: 10 }).map(({ subject }) => subject));
  expect(new Set(subjects).size).toBe(3);
});

test('secrets are told by their names, and neither a value nor a digest of one is in the mirror', async () => {
  const { start, details, stores } = place();
  await start('');
  await start('', { webhookSecrets: ['abc'], hookSecrets: { printer: ['def'] }, localApiKey: 'ghi' });
  await start('', { webhookSecrets: ['abc', 'old'], hookSecrets: { printer: ['def'] } });
  expect(details().slice(0, 2)).toEqual([
    'the secret webhook-secret, the secret local-api-key',
    'the secret local-api-key, the secret webhook-secret, the secret hook-printer',
  ]);
  const entries = stores.read(({ audit }) => audit.list({ limit: 10 }));
  // The configuration was the same all the time.
  expect(new Set(entries.map(({ subject }) => subject)).size).toBe(1);
  expect(JSON.stringify(entries)).not.toMatch(/abc|def|ghi/);
});
