import { mkdtempSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { expect, it, onTestFinished } from 'vitest';
import { freePortsBeside } from '../../src/cli/init/machine.ts';

const host = '127.0.0.1';

/** Opens a port for the test, so that it is in use. */
async function usedPort(): Promise<number> {
  const server = createServer();
  await new Promise<void>((resolve) => server.listen({ host, port: 0 }, resolve));
  onTestFinished(() => void server.close());
  return (server.address() as { port: number }).port;
}

it('freePortsBeside gives a further company two ports that nobody has, and never one twice', async () => {
  const directory = mkdtempSync(path.join(tmpdir(), 'tillsync-ports-'));
  const file = path.join(directory, 'second.toml');
  const used = await usedPort();
  // Callbacks get the port after the used one, which the local API would have had.
  const moved = await freePortsBeside(file, { host, port: used }, { host, port: used + 1 });
  expect(moved.webhook).toBeGreaterThan(used);
  expect(moved.local).toBeGreaterThan(moved.webhook);

  const first = moved.webhook;
  writeFileSync(
    path.join(directory, 'first.toml'),
    `[webhook]\nlisten = "${host}:${first}"\n[local]\nlisten = "${host}:${first + 1}"\n`,
  );
  const beside = await freePortsBeside(file, { host, port: first }, { host, port: first + 1 });
  expect(beside.webhook).toBeGreaterThan(first + 1);
  expect(beside.local).toBeGreaterThan(beside.webhook);
});
