import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { expect, it, onTestFinished } from 'vitest';
import { openState } from '../../src/app/state.ts';
import type { NewTokenPair } from '../../src/platform/tokens.ts';
import { FakeClock } from '../support/fake-clock.ts';

const pair = (refreshToken: string, accessToken: string): NewTokenPair => ({
  refreshToken,
  accessToken,
  accessExpiresAtMs: null,
  accessIssuedAtMs: null,
  refreshExpiresAtMs: null,
  clockSkewMs: 0,
});

it('tells every token and webhook secret before it is used, also those of another process', () => {
  const directory = mkdtempSync(path.join(tmpdir(), 'tillsync-secrets-'));
  onTestFinished(() => rmSync(directory, { recursive: true }));
  const clock = new FakeClock();
  const told: string[] = [];
  const here = openState({
    path: path.join(directory, 'state.db'),
    clock,
    onSecret: (value) => void told.push(value),
  });
  const elsewhere = openState({ path: path.join(directory, 'state.db'), clock });
  onTestFinished(() => [here, elsewhere].forEach((state) => void state.close()));

  here.tokens.save(pair('refresh-1', 'access-1'), 0);
  expect(told.splice(0)).toEqual(['refresh-1', 'access-1']);
  elsewhere.tokens.save(pair('refresh-2', 'access-2'), 1);
  here.tokens.read();
  here.tokens.read();
  expect(told.splice(0)).toEqual(['refresh-2', 'access-2']);

  here.webhook.update((memory) => ({ ...memory, pending: ['secret-1'] }));
  expect(told.splice(0)).toEqual(['secret-1']);
  elsewhere.webhook.update((memory) => ({ ...memory, pending: ['secret-1', 'secret-2'] }));
  here.webhook.read();
  expect(told).toEqual(['secret-1', 'secret-2']);
});
