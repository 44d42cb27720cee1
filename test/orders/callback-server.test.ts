import { Readable } from 'node:stream';
import { brotliCompressSync, deflateRawSync, deflateSync, gzipSync, zstdCompressSync } from 'node:zlib';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { TillsyncError } from '../../src/core/errors.ts';
import { settle } from '../support/fake-clock.ts';
import { post, RawConnection, SECRET } from './http-client.ts';
import { gate } from './memory-sink.ts';
import { type Started, startReceiver } from './start-receiver.ts';

let started: Started;
beforeEach(async () => {
  started = await startReceiver();
});
afterEach(() => started.receiver.close());

const order = (id: string) => JSON.stringify({ internalOrderId: id, status: 'pending' });

describe('a compressed notification', () => {
  it.each<[string, (text: string) => Buffer]>([
    ['gzip', gzipSync],
    ['deflate', deflateSync],
    ['deflate', deflateRawSync],
    ['br', brotliCompressSync],
    ['identity', Buffer.from],
  ])('is read as %s', async (coding, encode) => {
    const headers = { 'content-encoding': coding };
    expect((await post(started.url, encode(order('o1')), { headers })).status).toBe(200);
    expect(started.sink.entries).toMatchObject([{ kind: 'order', observation: { raw: order('o1') } }]);
  });

  it('is refused by its decoded size', async () => {
    const headers = { 'content-encoding': 'gzip' };
    const bomb = gzipSync(Buffer.alloc(16 * 1024 * 1024));
    expect(bomb.length).toBeLessThan(64 * 1024);
    expect((await post(started.url, bomb, { headers })).status).toBe(413);
    expect(started.sink.entries).toEqual([]);
    const fits = JSON.stringify({ internalOrderId: 'o1', filler: ' '.repeat(64 * 1024 - 40) });
    expect((await post(started.url, gzipSync(fits), { headers })).status).toBe(200);
  });

  it.each<[string, Buffer, number, string]>([
    [
      'zstd',
      zstdCompressSync('{}'),
      415,
      'The body is compressed as zstd; tillsync reads gzip, deflate, br.',
    ],
    ['gzip', Buffer.from('{}'), 400, 'The body is not gzip, as its header says.'],
    [
      'gzip',
      gzipSync('{"internalOrderId":"o1"}').subarray(0, 20),
      400,
      'The body is not gzip, as its header says.',
    ],
  ])(
    'as %s that cannot be decoded is kept with its bytes, and answered with the reason',
    async (coding, body, status, reason) => {
      const answer = await post(started.url, body, { headers: { 'content-encoding': coding } });
      expect([answer.status, JSON.parse(answer.text)]).toEqual([status, { error: reason }]);
      expect(started.unreadable).toEqual([reason]);
      const [entry] = started.sink.entries;
      if (entry?.kind !== 'unreadable') throw new Error('it is not kept');
      expect(Buffer.compare(Buffer.from(entry.unreadable.payload), body)).toBe(0);
    },
  );

  it('is not looked at without the secret', async () => {
    const headers = { 'content-encoding': 'zstd', 'x-webhook-secret': 'wrong' };
    expect((await post(started.url, zstdCompressSync('{}'), { headers })).status).toBe(401);
    expect(started.sink.entries).toEqual([]);
  });
});

describe('a notification with the right secret', () => {
  it('is answered 200 only after the keeper has it', async () => {
    const disk = gate();
    started.sink.before = () => disk.opened;
    let answered = false;
    const answer = post(started.url, order('o1')).then((got) => {
      answered = true;
      return got;
    });
    await settle(50);
    expect(answered).toBe(false);
    disk.open();
    expect((await answer).status).toBe(200);
    expect(started.sink.orderIds).toEqual(['o1']);
  });

  it('is kept as received, with the time of arrival', async () => {
    const raw = ' {"internalOrderId":"o1",\n "name":"señor ☕"} ';
    expect((await post(started.url, raw)).status).toBe(200);
    const [entry] = started.sink.entries;
    expect(entry).toMatchObject({
      kind: 'order',
      observation: { source: 'webhook', raw, observedAtMs: started.clock.nowMs() },
    });
  });

  it('is kept without its byte order mark, which is no part of the JSON', async () => {
    expect((await post(started.url, `\u{FEFF}${order('o1')}`)).status).toBe(200);
    expect(started.sink.entries).toMatchObject([{ kind: 'order', observation: { raw: order('o1') } }]);
  });

  it.each([
    undefined,
    'text/plain',
    'application/json; charset=utf-8',
    'nonsense',
    ';;;',
    'multipart/form-data',
  ])('is read whatever the content type says: %s', async (type) => {
    const connection = new RawConnection(started.port);
    const body = order('o1');
    await connection.write(
      `POST /webhook HTTP/1.1\r\nHost: x\r\nx-webhook-secret: ${SECRET}\r\nContent-Length: ${body.length}\r\n` +
        `${type === undefined ? '' : `Content-Type: ${type}\r\n`}Connection: close\r\n\r\n${body}`,
    );
    await connection.closed;
    expect(connection.status).toBe(200);
    expect(started.sink.orderIds).toEqual(['o1']);
  });

  it('is read in chunks, split within a character', async () => {
    const bytes = Buffer.from('{"internalOrderId":"ñandú"}');
    const connection = new RawConnection(started.port);
    await connection.write(
      `POST /webhook/?x=1 HTTP/1.1\r\nHost: x\r\nx-webhook-secret: ${SECRET}\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n`,
    );
    for (const byte of bytes)
      await connection.write(Buffer.concat([Buffer.from('1\r\n'), Buffer.of(byte), Buffer.from('\r\n')]));
    await connection.write('0\r\n\r\n');
    await connection.closed;
    expect(connection.status).toBe(200);
    expect(started.sink.orderIds).toEqual(['ñandú']);
  });

  it('of an unknown shape is quarantined, answered 2xx and told of', async () => {
    for (const raw of ['[]', 'null', '42', '"text"', '{"event":"ping"}']) {
      expect((await post(started.url, raw)).status).toBe(200);
    }
    await settle(10);
    expect(started.sink.quarantined.map(({ payload }) => payload)).toEqual([
      '[]',
      'null',
      '42',
      '"text"',
      '{"event":"ping"}',
    ]);
    expect(started.unreadable).toHaveLength(5);
  });

  it('that is not JSON is answered 400 with its bytes in quarantine', async () => {
    const bodies = [
      '{"internalOrderId":"o1"',
      '',
      'a=b',
      Buffer.from([0xff, 0xfe, 0x7b, 0x00]),
      Buffer.from([0x7b, 0xc3, 0x28, 0x7d]),
    ];
    for (const body of bodies) expect((await post(started.url, body)).status).toBe(400);
    expect(started.sink.quarantined.map(({ payload }) => Buffer.from(payload as string))).toEqual(
      bodies.map((body) => Buffer.from(body as string)),
    );
    expect(started.sink.quarantined[3]?.payload).toBeInstanceOf(Uint8Array);
  });

  it('may hold any key and any depth without harm', async () => {
    const poisoned =
      '{"internalOrderId":"o1","__proto__":{"polluted":true},"constructor":{"prototype":{"polluted":true}}}';
    expect((await post(started.url, poisoned)).status).toBe(200);
    expect(Reflect.get({}, 'polluted')).toBeUndefined();
    expect(started.sink.entries[0]).toMatchObject({ observation: { raw: poisoned } });
    const deep = `${'['.repeat(30_000)}${']'.repeat(30_000)}`;
    expect((await post(started.url, deep)).status).toBe(200);
    expect(started.sink.quarantined[0]?.payload).toBe(deep);
  });

  it('whose reader throws is quarantined too', async () => {
    await started.receiver.close();
    started = await startReceiver({
      read: () => {
        throw new RangeError('Maximum call stack size exceeded');
      },
    });
    expect((await post(started.url, order('o1'))).status).toBe(200);
    expect(started.sink.quarantined[0]?.payload).toBe(order('o1'));
  });
});

describe('a notification that cannot be trusted or kept', () => {
  it.each([
    ['missing', {}],
    ['wrong', { 'x-webhook-secret': 'other' }],
    ['empty', { 'x-webhook-secret': '' }],
    ['doubled', { 'x-webhook-secret': [SECRET, SECRET] }],
    ['joined', { 'x-webhook-secret': `${SECRET}, ${SECRET}` }],
    ['huge', { 'x-webhook-secret': SECRET.repeat(1000) }],
  ])('is refused with 401 and nothing written: secret %s', async (_name, headers) => {
    const without = { 'x-webhook-secret': [] as string[], ...headers };
    const { status, text } = await post(started.url, order('o1'), { headers: without });
    expect(status).toBe(401);
    expect(text).not.toContain(SECRET);
    expect(started.sink.groups).toEqual([]);
  });

  it('is refused with 401 when a header of its own is beyond all measure', async () => {
    const connection = new RawConnection(started.port);
    await connection.write(
      `POST /webhook HTTP/1.1\r\nHost: x\r\nx-webhook-secret: ${'s'.repeat(100_000)}\r\n\r\n`,
    );
    await connection.closed;
    expect(connection.status).toBe(401);
    expect(started.sink.groups).toEqual([]);
  });

  it('takes either secret during a rotation, and only then', async () => {
    let secrets = ['old'];
    await started.receiver.close();
    started = await startReceiver({ secrets: () => secrets });
    const statuses = async () => [
      (await post(started.url, order('o'), { headers: { 'x-webhook-secret': 'old' } })).status,
      (await post(started.url, order('n'), { headers: { 'x-webhook-secret': 'new' } })).status,
    ];
    expect(await statuses()).toEqual([200, 401]);
    secrets = ['new', 'old'];
    expect(await statuses()).toEqual([200, 200]);
    secrets = ['new'];
    expect(await statuses()).toEqual([401, 200]);
  });

  it('without any configured secret is refused', async () => {
    await started.receiver.close();
    started = await startReceiver({ secrets: () => [] });
    expect((await post(started.url, order('o1'))).status).toBe(401);
  });

  it('is put off with 503 while the secrets cannot be read', async () => {
    await started.receiver.close();
    started = await startReceiver({
      secrets: () => {
        throw new TillsyncError('storage-busy', 'locked');
      },
    });
    const { status, headers } = await post(started.url, order('o1'));
    expect([status, headers['retry-after']]).toEqual([503, '5']);
    expect(started.sink.groups).toEqual([]);
  });

  it.each(['{"internalOrderId":"o1"}', 'not json'])(
    'is put off with 503 when the disk refuses: %s',
    async (body) => {
      started.sink.before = () => {
        throw new TillsyncError('storage-full', 'no space left, token=topsecret');
      };
      const { status, headers, text } = await post(started.url, body);
      expect([status, headers['retry-after']]).toEqual([503, '5']);
      expect(text).not.toContain('topsecret');
      started.sink.before = () => {};
      expect((await post(started.url, order('o2'))).status).toBe(200);
    },
  );

  it('above the body limit is answered 413, announced or not', async () => {
    const large = `{"internalOrderId":"${'x'.repeat(64 * 1024)}"}`;
    expect((await post(started.url, large)).status).toBe(413);
    const announcing = new RawConnection(started.port);
    await announcing.write(
      `POST /webhook HTTP/1.1\r\nHost: x\r\nx-webhook-secret: ${SECRET}\r\nContent-Length: 99000000\r\n\r\n`,
    );
    await announcing.until('413');
    expect(announcing.status).toBe(413);
    announcing.socket.destroy();
    const connection = new RawConnection(started.port);
    await connection.write(
      `POST /webhook HTTP/1.1\r\nHost: x\r\nx-webhook-secret: ${SECRET}\r\nTransfer-Encoding: chunked\r\n\r\n`,
    );
    for (let i = 0; i < 17; i++) await connection.write(`1000\r\n${'x'.repeat(4096)}\r\n`);
    await connection.until('413');
    expect(connection.status).toBe(413);
    connection.socket.destroy();
    expect(started.sink.groups).toEqual([]);
    const fits = JSON.stringify({ internalOrderId: 'o1', pad: 'x'.repeat(64 * 1024 - 38) });
    expect(Buffer.byteLength(fits)).toBeGreaterThan(64 * 1024 - 20);
    expect((await post(started.url, fits)).status).toBe(200);
  });

  it.each([
    ['401', 'wrong', '/webhook'],
    ['413', SECRET, '/webhook'],
    ['404', SECRET, '/other'],
  ])('of 50 MB costs no memory and still hears %s', async (status, secret, path) => {
    const block = Buffer.alloc(64 * 1024, 0x20);
    const before = process.memoryUsage().arrayBuffers;
    let peak = 0;
    function* body() {
      for (let i = 0; i < 800; i++) {
        peak = Math.max(peak, process.memoryUsage().arrayBuffers);
        yield block;
      }
    }
    const { status: got } = await post(new URL(path, started.url).href, Readable.from(body()) as never, {
      headers: { 'x-webhook-secret': secret },
    });
    expect(String(got)).toBe(status);
    expect(peak - before).toBeLessThan(16 * 1024 * 1024);
    expect(started.sink.groups).toEqual([]);
  });

  it('cut off half-way is forgotten', async () => {
    const connection = new RawConnection(started.port);
    await connection.write(
      `POST /webhook HTTP/1.1\r\nHost: x\r\nx-webhook-secret: ${SECRET}\r\nContent-Length: 100\r\n\r\n{"int`,
    );
    await settle(5);
    connection.socket.resetAndDestroy();
    await connection.closed;
    expect((await post(started.url, order('o2'))).status).toBe(200);
    expect(started.sink.orderIds).toEqual(['o2']);
  });
});

describe('anything else', () => {
  it.each(['GET', 'PUT', 'DELETE', 'PATCH', 'OPTIONS', 'HEAD'])('%s on the path is 405', async (method) => {
    const { status, headers } = await post(started.url, null, { method });
    expect([status, headers.allow]).toEqual([405, 'POST']);
  });

  it.each(['/', '/other', '/webhook/more', '/%E0%A4%A', '/webhook%2f', '/__proto__'])(
    '%s is no place',
    async (path) => {
      const connection = new RawConnection(started.port);
      await connection.write(
        `POST ${path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: 2\r\n\r\n{}`,
      );
      await connection.closed;
      expect([400, 404]).toContain(connection.status);
      expect(connection.text).not.toMatch(/fastify|FST_|stack|node/i);
    },
  );

  it('that is no HTTP is cut off with 400', async () => {
    const connection = new RawConnection(started.port);
    await connection.write('\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n');
    await connection.closed;
    expect(connection.status).toBe(400);
  });

  it('names no address it cannot listen on but says so', async () => {
    await expect(startReceiver({ port: started.port })).rejects.toMatchObject({ code: 'config-invalid' });
  });
});
