import { expect, test } from 'vitest';
import { invoke } from './invoke.ts';
import { tillsync } from './run-process.ts';

test('the sandbox says where it is, and ends with 0 when it is asked to', { tags: ['bulk'] }, async () => {
  const result = await tillsync(['sandbox', '--orders-every', '0s'], {
    signalWhen: { text: 'End it with Ctrl-C', signal: 'SIGINT' },
  });
  expect(result.code).toBe(0);
  expect(result.stdout).toMatch(/listens on http:\/\/127\.0\.0\.1:\d+\n/);
  expect(result.stderr).toBe('The sandbox has ended; it made 0 orders.\n');
});

test('with --json it gives address and tokens as one document, and takes SIGTERM', async () => {
  const result = await tillsync(['sandbox', '--json', '--envelope', 'array'], {
    signalWhen: { text: '}\n', signal: 'SIGTERM' },
  });
  expect(result.code).toBe(0);
  expect(JSON.parse(result.stdout)).toEqual({
    url: expect.stringMatching(/^http:\/\/127\.0\.0\.1:\d+$/),
    token: expect.stringMatching(/^eyJ/),
    refreshToken: expect.stringMatching(/^eyJ/),
  });
});

test('an address that cannot be had and a wrong duration are wrong usage', async () => {
  const address = await invoke(['sandbox', '--host', '203.0.113.1']);
  expect(address.code).toBe(2);
  expect(address.stderr).toContain('cannot listen on 203.0.113.1:0');
  const duration = await invoke(['sandbox', '--orders-every', 'often', '--json']);
  expect(duration.code).toBe(2);
  expect(JSON.parse(duration.stdout)).toMatchObject({ error: { code: 'usage' } });
});
