import { once } from 'node:events';
import { createServer } from 'node:net';
import { expect, it, onTestFinished } from 'vitest';
import { freePort as anyFreePort } from '../../src/demo/sandbox-platform.ts';
import { freePort } from './free-port.ts';

it('a free port is below those of outgoing connections, and none that is taken', async () => {
  const taken = await anyFreePort({ next: () => 0.999_99 });
  // Start of Linux's range for outgoing connections.
  expect(taken).toBeLessThan(32_768);
  const server = createServer().listen(taken, '127.0.0.1');
  onTestFinished(() => void server.close());
  await once(server, 'listening');
  const draws = [0.999_99, 0.5];
  expect(await anyFreePort({ next: () => draws.shift() ?? 0.25 })).not.toBe(taken);
});

it('a port that a test has is not given to another, not even while nothing listens on it', async () => {
  const ports = await Promise.all(Array.from({ length: 500 }, freePort));
  expect(new Set(ports).size).toBe(500);
});
