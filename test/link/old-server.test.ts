import { createServer, type Server } from 'node:net';
import { expect, it, onTestFinished } from 'vitest';
import { NatsHubLink, newKey } from '../../src/link/nats.ts';

/** Starts a server that greets and answers like a nats-server of this version. */
async function standIn(version: string): Promise<string> {
  const server: Server = createServer((socket) => {
    const info = {
      server_id: 'NOLD',
      version,
      proto: 1,
      headers: true,
      max_payload: 1_048_576,
      nonce: 'bm9uY2U',
    };
    socket.write(`INFO ${JSON.stringify(info)}\r\n`);
    socket.on('data', (chunk) => {
      if (chunk.toString().includes('PING')) socket.write('PONG\r\n');
    });
    socket.on('error', () => {});
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  onTestFinished(() => void server.close());
  const { port } = server.address() as { port: number };
  return `nats://127.0.0.1:${port}`;
}

async function connectTo(version: string): Promise<unknown> {
  const { seed } = await newKey();
  const link = new NatsHubLink({ url: await standIn(version), seed, user: '@hub', tls: null });
  onTestFinished(() => link.close());
  return link
    .answer(async () => '')
    .then(
      () => 'connected',
      (error: unknown) => error,
    );
}

it.each(['2.9.10', '2.10.26', '1.4.1'])('a nats-server %s is refused by name', async (version) => {
  expect(await connectTo(version)).toMatchObject({
    code: 'config-invalid',
    message: expect.stringContaining(` is ${version}, which is too old`),
    hint: expect.stringContaining('nats-server 2.10.27 or later'),
  });
});

it.each(['2.10.27', '2.11.0', '3.0.0-beta'])('a nats-server %s is taken', async (version) => {
  expect(await connectTo(version)).toBe('connected');
});
