import { appendFileSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { request } from 'undici';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { commandsAt } from '../cli/invoke.ts';
import { openWorkplace, type Workplace } from '../support/workplace.ts';

let place: Workplace;
let at: ReturnType<typeof commandsAt>;

beforeAll(async () => {
  place = await openWorkplace(48);
  at = commandsAt(place);
});
afterAll(() => place.close());

test('keys of the configuration that changed since the last start, and decisions by HTTP, are noted', async () => {
  const first = await place.run();
  await first.end('SIGTERM');
  appendFileSync(place.configFile, '[shop]\nname = "Corner"\n');
  const env = place.env as Record<string, string>;
  env.TILLSYNC_LOCAL_API_KEY = 'a-key-that-nobody-sees';
  env.TILLSYNC_WEBHOOK_SECRET = 'another-secret';
  const second = await place.run();
  const change = await at.json(['stock', 'set', '--external-id', 'NOBODY', '--qty', '1', '--wait']);
  const answer = await request(`${second.localUrl}/v1/outbox/${change.document.changeId}/discard`, {
    method: 'POST',
    headers: { 'x-api-key': env.TILLSYNC_LOCAL_API_KEY },
  });
  expect(answer.statusCode, await answer.body.text()).toBe(200);
  await second.end('SIGTERM');
  const third = await place.run();
  await third.end('SIGTERM');
  const [discarded, changed, seen] = (await at.json(['audit'])).document.audit;
  expect(discarded).toMatchObject({ who: 'http 127.0.0.1, with the key', action: 'outbox.discard' });
  expect(changed).toMatchObject({ who: 'tillsync', action: 'config.changed' });
  expect(changed?.detail).toBe('shop.name, the secret local-api-key, the secret webhook-secret');
  expect(seen).toMatchObject({ action: 'config.changed', detail: 'first seen' });
  const mirror = readFileSync(path.join(place.storage, 'mirror.db'), 'latin1');
  expect(mirror).not.toContain('a-key-that-nobody-sees');
});
