import { writeFileSync } from 'node:fs';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { type NewPlace, newPlace, talk } from '../cli/init-rig.ts';
import { invoke } from '../cli/invoke.ts';

let place: NewPlace;
beforeEach(async () => {
  place = await newPlace(23);
  writeFileSync(
    place.file,
    `[platform]\nbase_url = "${place.sandbox.url}"\n[storage]\ndirectory = "${place.storage}"\n`,
  );
});
afterEach(() => place.sandbox.close());

test('at a terminal the new refresh token is asked for, tried, and not shown', async () => {
  const words = ['--config', place.file, 'auth', 'set'];
  const ask = 'Paste the new refresh token, then press Enter:';
  const { refreshToken } = place.sandbox.issueTokens();
  const told = await talk(words, [[ask, refreshToken]]);
  expect(told).toMatchObject({ code: 0, stdout: expect.stringContaining('The platform took the tokens') });
  expect(told.screen + told.stdout).not.toMatch(/eyJ[\w-]{8}/);

  const pair = JSON.stringify(place.sandbox.issueTokens(), null, 2).replaceAll('\n', '\r');
  expect(await talk(words, [[ask, pair]])).toMatchObject({ code: 0 });
  const wrong = await talk(words, [[ask, 'eyJ-of-nobody']]);
  expect(wrong.code).toBe(4);
  expect(wrong.screen).toContain('The platform refuses this refresh token; nothing was changed.');
  expect(wrong.screen).not.toMatch(/eyJ[\w-]{8}/);
  expect((await talk(words, [[ask, '\u0003']])).code).toBe(130);
  const status = await invoke(['--config', place.file, 'auth', 'status', '--json']);
  expect(JSON.parse(status.stdout)).toMatchObject({ state: 'ok', generation: 2 });
});
