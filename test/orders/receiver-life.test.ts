import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { connect, createServer } from 'node:net';
import path from 'node:path';
import type { Readable } from 'node:stream';
import { Agent } from 'undici';
import { afterEach, describe, expect, it } from 'vitest';
import { settle } from '../support/fake-clock.ts';
import { post, RawConnection, SECRET } from './http-client.ts';
import { gate } from './memory-sink.ts';
import { type Started, startReceiver } from './start-receiver.ts';

let started: Started | undefined;
afterEach(async () => {
  await started?.receiver.close();
  started = undefined;
});

const order = (id: string) => JSON.stringify({ internalOrderId: id });
const head = `POST /webhook HTTP/1.1\r\nHost: x\r\nx-webhook-secret: ${SECRET}\r\nContent-Length: 24\r\n\r\n`;

it('answers what came on an idle connection while its thread stood still, however long that was', {
  tags: ['bulk'],
}, async () => {
  // Node closes an idle connection a second later than it announces to its clients.
  const idleMs = 1_100;
  started = await startReceiver({ limits: { keepAliveMs: 100, checkEveryMs: 50 } });
  const { url, port, sink } = started;
  const idle = new RawConnection(port);
  await idle.write(`${head}${order('b1').padEnd(24)}`);
  await idle.until('200 OK');
  idle.text = '';
  sink.before = async () => {
    sink.before = async () => {};
    idle.socket.write(`${head}${order('b2').padEnd(24)}`);
    Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, idleMs + 200);
  };
  await post(url, order('b3'));
  expect(await idle.until('200 OK')).toContain('200 OK');
  expect(sink.orderIds).toContain('b2');
});

describe('closing', () => {
  it('under load loses nothing that was acknowledged and answers what it had begun to read', async () => {
    started = await startReceiver();
    const { url, receiver, sink } = started;
    // Each commit takes three turns of the event loop, so that closing happens while requests are at every stage.
    sink.before = () => settle(3);
    const acknowledged: string[] = [];
    const statuses = new Set<number>();
    let stopped = false;
    const client = async (name: number) => {
      const dispatcher = new Agent({ connections: 1, pipelining: 1 });
      for (let n = 0; !stopped; n++) {
        const id = `${name}-${n}`;
        const answer = await post(url, order(id), { dispatcher }).catch(() => undefined);
        if (!answer) break;
        statuses.add(answer.status);
        if (answer.status === 200) acknowledged.push(id);
      }
      await dispatcher.close();
    };
    const clients = Array.from({ length: 20 }, (_, name) => client(name));
    while (acknowledged.length < 200) await settle(1);
    await receiver.close();
    stopped = true;
    await Promise.all(clients);
    expect(acknowledged.length).toBeGreaterThanOrEqual(200);
    const kept = new Set(sink.orderIds);
    expect(acknowledged.filter((id) => !kept.has(id))).toEqual([]);
    expect([...statuses]).toEqual([200]);
  });

  it('waits for a commit under way and answers it', async () => {
    started = await startReceiver();
    const { url, receiver, sink } = started;
    const disk = gate();
    const reached = gate();
    sink.before = () => {
      reached.open();
      return disk.opened;
    };
    const answer = post(url, order('o1'));
    await reached.opened;
    let closed = false;
    const closing = receiver.close().then(() => {
      closed = true;
    });
    await settle(20);
    expect(closed).toBe(false);
    disk.open();
    const { status, headers } = await answer;
    expect([status, headers.connection]).toEqual([200, 'close']);
    await closing;
  });

  it('does not wait for idle connections, nor longer than its deadline for stuck ones', async () => {
    started = await startReceiver();
    const { port, receiver, clock } = started;
    const idle = new RawConnection(port);
    const stuck = new RawConnection(port);
    await stuck.write(`${head}{"internal`);
    await settle(10);
    let closed = false;
    const closing = receiver.close(2_000).then(() => {
      closed = true;
    });
    await clock.advance(1_000);
    await idle.closed;
    await clock.advance(999);
    expect(closed).toBe(false);
    await clock.advance(1);
    await closing;
    await stuck.closed;
    expect(stuck.text).toBe('');
  });
});

describe('closing, met by a request on its way', () => {
  it.each(['', 'on a connection kept alive '])('answers it %sand then ends the connection', async (kind) => {
    started = await startReceiver();
    const { port, receiver, clock, sink } = started;
    const connection = new RawConnection(port);
    if (kind) {
      await connection.write(`${head}{"internalOrderId":"o1"}`);
      await connection.until('"ok":true');
    } else await settle(10);
    const closing = receiver.close();
    await clock.advance(999);
    await settle(10);
    await connection.write(`${head}{"internalOrderId":"o2"}`);
    await connection.closed;
    expect(connection.text).toContain('connection: close');
    expect(sink.orderIds.at(-1)).toBe('o2');
    await closing;
  });
});

describe('slow and many connections', () => {
  it.each([
    ['headers', 'POST /webhook HTTP/1.1\r\nHos'],
    ['body', `${head}{"internal`],
  ])('slow %s are cut off with 408', async (_what, text) => {
    started = await startReceiver({ limits: { requestTimeoutMs: 100, checkEveryMs: 20 } });
    const connection = new RawConnection(started.port);
    await connection.write(text);
    await connection.closed;
    expect(connection.status).toBe(408);
    expect(started.sink.groups).toEqual([]);
  });

  it('a refused sender cannot hold its connection by never ending its body', async () => {
    // Long enough for a busy machine to answer the headers first.
    started = await startReceiver({ limits: { requestTimeoutMs: 1_500, checkEveryMs: 20 } });
    const connection = new RawConnection(started.port);
    await connection.write(head.replace(SECRET, 'wrong').replace('24', '9999'));
    expect(await connection.until('401')).toContain('401');
    await connection.closed;
  });

  it('connections beyond the bound are closed at once, the others served', async () => {
    started = await startReceiver({ limits: { connectionsMax: 2 } });
    const connections = [new RawConnection(started.port), new RawConnection(started.port)];
    for (const connection of connections) await connection.write(`${head.slice(0, -2)}`);
    await settle(10);
    const third = new RawConnection(started.port);
    await third.closed;
    expect(third.text).toBe('');
    await connections[0]?.write(`\r\n{"internalOrderId":"o1"}`);
    expect(await connections[0]?.until('200')).toContain('200 OK');
    for (const { socket } of connections) socket.destroy();
  });

  it('of one address leave room for those of others, and those of a proxy on this machine have no bound', async () => {
    let dropped = 0;
    const limits = { connectionsPerAddressMax: 5, connectionsMax: 50 };
    started = await startReceiver({ limits, onDropped: () => (dropped += 1) });
    const { port } = started;
    const from = (localAddress: string) => connect({ host: '127.0.0.1', port, localAddress });
    const silent = Array.from({ length: 20 }, () => from('127.0.0.9'));
    for (const socket of silent) socket.on('error', () => {});
    const closed = () => silent.filter((socket) => socket.closed).length;
    while (closed() < 15) await settle();
    expect([closed(), dropped]).toEqual([15, 15]);
    const proxied = Array.from({ length: 20 }, () => from('127.0.0.1'));
    const connection = new RawConnection(port);
    await connection.write(`${head}{"internalOrderId":"o1"}`);
    expect(await connection.until('200 OK')).toContain('200 OK');
    for (const socket of silent) socket.destroy();
    await settle(20);
    const again = from('127.0.0.9');
    again.write(`${head}{"internalOrderId":"o2"}`);
    const [answer] = (await once(again, 'data')) as [Buffer];
    expect(answer.toString()).toContain('200 OK');
    for (const socket of [...proxied, again, connection.socket]) socket.destroy();
  });

  it('a refusal ends its connection, and nothing that came behind it is handled', async () => {
    const faults: (string | null)[] = [];
    started = await startReceiver({ onAnswered: ({ fault }) => faults.push(fault) });
    const wrong = `${head.replace(SECRET, 'wrong')}{"internalOrderId":"o1"}`;
    const connection = new RawConnection(started.port);
    await connection.write(`${wrong.repeat(500)}${head}{"internalOrderId":"o2"}`);
    await connection.closed;
    expect(connection.text.match(/HTTP\/1\.1/g)).toHaveLength(1);
    expect(connection.text).toMatch(/^HTTP\/1\.1 401 .*\r\nconnection: close\r\n/s);
    expect([faults, started.sink.orderIds]).toEqual([['secret-wrong'], []]);
  });

  it('a callback begins when the one before it on its connection is answered, eight wait, and the rest are dropped', async () => {
    started = await startReceiver();
    const disk = gate();
    const reached = gate();
    started.sink.before = () => {
      reached.open();
      return disk.opened;
    };
    const connection = new RawConnection(started.port);
    const all = Array.from(
      { length: 20 },
      (_, i) => `${head}{"internalOrderId":"${String.fromCharCode(97 + i)}1"}`,
    );
    await connection.write(all.join(''));
    await reached.opened;
    await settle(20);
    const other = await post(started.url, 'no JSON', { headers: { 'x-webhook-secret': 'wrong' } });
    expect([other.status, started.sink.orderIds]).toEqual([401, []]);
    disk.open();
    await connection.closed;
    expect(connection.text.match(/200 OK/g)).toHaveLength(9);
    expect(started.sink.groups.every((group) => group.length === 1)).toBe(true);
    expect(started.sink.orderIds).toEqual([...'abcdefghi'].map((name) => `${name}1`));
  });
});

describe('listening', () => {
  it('serves TLS from PEM texts', async () => {
    const pem = (name: string) => readFileSync(path.join(import.meta.dirname, name), 'utf8');
    started = await startReceiver({ tls: { cert: pem('tls-cert.pem'), key: pem('tls-key.pem') } });
    expect(started.url).toMatch(/^https:/);
    expect((await post(started.url, order('o1'))).status).toBe(200);
  });

  it('takes over a socket that is already open', async () => {
    const opener = createServer();
    await new Promise<void>((resolve) => opener.listen(0, '127.0.0.1', resolve));
    const { port } = opener.address() as { port: number };
    const fd = Reflect.get(Reflect.get(opener, '_handle') as object, 'fd') as number;
    const program = path.join(import.meta.dirname, 'inherited-socket.ts');
    const child = spawn(process.execPath, [program], { stdio: ['pipe', 'pipe', 'inherit', fd] });
    // From here on, only the child process accepts connections.
    opener.close();
    const [line] = (await once(child.stdout as Readable, 'data')) as [Buffer];
    expect(String(line).trim()).toBe(`http://127.0.0.1:${port}/webhook`);
    expect((await post(String(line).trim(), order('o1'))).status).toBe(200);
    child.stdin?.end();
    expect((await once(child, 'exit'))[0]).toBe(0);
  });
});
