import { once } from 'node:events';
import { createServer } from 'node:net';
import { expect, it, onTestFinished } from 'vitest';
import { freePort } from '../../src/demo/sandbox-platform.ts';

it('a free port is below those of outgoing connections, and none that is taken', async () => {
  const taken = await freePort({ next: () => 0.999_99 });
  // Start of Linux's range for outgoing connections.
  expect(taken).toBeLessThan(32_768);
  const server = createServer().listen(taken, '127.0.0.1');
  onTestFinished(() => void server.close());
  await once(server, 'listening');
  const draws = [0.999_99, 0.5];
  expect(await freePort({ next: () => draws.shift() ?? 0.25 })).not.toBe(taken);
});
