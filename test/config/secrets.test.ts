import { mkdirSync, mkdtempSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { loadSecrets } from '../../src/config/secrets.ts';
import { TillsyncError } from '../../src/core/errors.ts';

function credentials(files: Record<string, string>): string {
  const directory = mkdtempSync(join(tmpdir(), 'tillsync-credentials-'));
  for (const [name, text] of Object.entries(files)) writeFileSync(join(directory, name), text);
  return directory;
}

function errorOf(env: Record<string, string>): TillsyncError {
  try {
    loadSecrets(env);
  } catch (error) {
    if (error instanceof TillsyncError) return error;
  }
  throw new Error('the secrets were accepted');
}

test('no secrets are a full answer', () => {
  expect(loadSecrets({})).toEqual({ webhookSecrets: [] });
});

test('credentials win over the environment, name by name, and lose their line end', () => {
  const directory = credentials({
    'refresh-token': 'from-file\r\n',
    'webhook-secret': 'current\nprevious\n',
  });
  expect(
    loadSecrets({
      CREDENTIALS_DIRECTORY: directory,
      TILLSYNC_REFRESH_TOKEN: 'from-environment',
      TILLSYNC_ACCESS_TOKEN: 'access\n',
      TILLSYNC_LOCAL_API_KEY: 'key',
    }),
  ).toEqual({
    refreshToken: 'from-file',
    accessToken: 'access',
    webhookSecrets: ['current', 'previous'],
    localApiKey: 'key',
  });
});

test('empty, too many and unfit secrets are refused together and never shown', () => {
  const error = errorOf({
    TILLSYNC_REFRESH_TOKEN: '\n',
    TILLSYNC_ACCESS_TOKEN: 'planted value',
    TILLSYNC_WEBHOOK_SECRET: 'planted-1\nplanted-2\nplanted-3',
    TILLSYNC_LOCAL_API_KEY: 'plantedñ',
  });
  expect(error.code).toBe('config-invalid');
  expect(error.message.split('\n')).toHaveLength(5);
  expect(error.message).toContain('TILLSYNC_REFRESH_TOKEN: found an empty secret');
  expect(error.message).toContain('TILLSYNC_WEBHOOK_SECRET: found 3 lines');
  expect(JSON.stringify(error) + error.message + error.stack).not.toContain('planted');
});

test('a credential that cannot be read is a fault, not an absent secret', () => {
  const directory = credentials({});
  mkdirSync(join(directory, 'refresh-token'));
  const error = errorOf({ CREDENTIALS_DIRECTORY: directory, TILLSYNC_REFRESH_TOKEN: 'fallback' });
  expect(error.message).toContain(
    `${join(directory, 'refresh-token')}: found a file that cannot be read (EISDIR)`,
  );
});
