import { readFileSync } from 'node:fs';
import path from 'node:path';
import { Readable } from 'node:stream';
import { isDeepStrictEqual } from 'node:util';
import { request } from 'undici';
import { afterEach, describe, expect, it } from 'vitest';
import { RawConnection } from '../orders/http-client.ts';
import { sampleNotification } from '../support/order-samples.ts';
import { limitMs } from '../support/shared-config.ts';
import { type DaemonProcess, SECRET, until, type Workplace } from '../support/workplace.ts';
import { integrityOf, lastOk, notify, openFaultPlace, rowsOf } from './support/fault-place.ts';
import { faultyDisk } from './support/faulty-disk.ts';

let place: Workplace;
afterEach(() => place.close());

const polled = () => until('the first poll is done', () => lastOk(place, 'orders.poll') !== null);
const orderIds = () =>
  rowsOf<{ order_id: string }>(place, 'SELECT order_id FROM orders').map((row) => row.order_id);
const gone = ({ child }: DaemonProcess) => until('it died', () => child.signalCode === 'SIGKILL');
const WITH_RETRY = { webhookRetry: { delaysMs: [100, 200, 400, 800, 1_600, 3_200] } };

describe('a death', () => {
  it('after the commit and before the answer leaves one order, however often it is announced', async () => {
    place = await openFaultPlace({ sandbox: WITH_RETRY });
    const { control } = place.sandbox;
    const disk = faultyDisk(place);
    const daemon = await place.run();
    await polled();
    await until('the webhook is registered', () => control.webhook()?.active === true);
    control.setWebhook({ callbackUrl: place.config.webhook.callbackUrl, secret: SECRET, active: false });
    const order = control.createOrder({}, {});
    disk.begin('kill-after-sync', order.internalOrderId);
    control.setWebhook({ callbackUrl: place.config.webhook.callbackUrl, secret: SECRET, active: true });
    control.announceOrder(order.internalOrderId);
    await gone(daemon);
    expect(orderIds()).toEqual([order.internalOrderId]);
    disk.end('kill-after-sync');
    await place.run();
    await control.settled();
    const [, delivery] = control.deliveries();
    expect(delivery?.tries[0]).toBe('failed');
    expect(delivery?.outcome).toBe('confirmed');
    expect(orderIds()).toEqual([order.internalOrderId]);
    expect(rowsOf(place, 'SELECT order_id FROM order_events')).toHaveLength(1);
  });

  it('before the commit confirms nothing, and a poll brings the order', async () => {
    place = await openFaultPlace();
    const { control } = place.sandbox;
    const disk = faultyDisk(place);
    const daemon = await place.run();
    await polled();
    await until('the webhook is registered', () => control.webhook()?.active === true);
    const order = control.createOrder({}, { hidden: true });
    disk.begin('kill-at-write', order.internalOrderId);
    expect(await notify(place, order)).toBe('failed');
    await gone(daemon);
    expect(orderIds()).toEqual([]);
    expect(integrityOf(place)).toBe('ok');
    disk.end('kill-at-write');
    await place.run();
    await until('a poll has found it', () => orderIds().length === 1);
    expect(place.differences()).toEqual([]);
  });
});

describe('callbacks', () => {
  it('that are a hundred times the same at once make one order and one event', async () => {
    place = await openFaultPlace();
    await place.run();
    const body = sampleNotification(1);
    const statuses = await Promise.all(Array.from({ length: 100 }, () => notify(place, body)));
    expect(statuses).toEqual(Array(100).fill(200));
    expect(rowsOf(place, 'SELECT seq FROM order_events')).toEqual([{ seq: 1 }]);
    expect(rowsOf(place, 'SELECT line FROM order_items')).toHaveLength(3);
  });

  it('that come in the wrong order leave the newer state', async () => {
    place = await openFaultPlace();
    await place.run();
    for (const status of ['inProcess', 'ready', 'inProcess', 'pending']) {
      expect(await notify(place, sampleNotification(1, { status }))).toBe(200);
    }
    expect(rowsOf(place, 'SELECT status FROM orders')).toEqual([{ status: 'ready' }]);
    expect(rowsOf(place, 'SELECT status FROM order_events ORDER BY seq')).toEqual([
      { status: 'inProcess' },
      { status: 'ready' },
    ]);
  });

  it('that never come are made up for within two polls', async () => {
    place = await openFaultPlace({ poll: '* * * * * *' });
    const { control } = place.sandbox;
    await place.run();
    await polled();
    control.setWebhookBehaviour({ drop: 1 });
    for (let i = 0; i < 3; i++) {
      const { internalOrderId } = control.createOrder();
      const before = control.calls('order.all').length;
      await until('the order is here', () => orderIds().includes(internalOrderId));
      expect(control.calls('order.all').length - before).toBeLessThanOrEqual(2);
    }
  });

  it('with a secret that is missing, wrong, doubled or huge leave no byte', async () => {
    place = await openFaultPlace();
    const daemon = await place.run();
    await polled();
    expect(await notify(place, sampleNotification(1))).toBe(200);
    // The files are searched for the request's text and not compared, because the daemon may write `freshness`
    // meanwhile.
    const bytes = () =>
      ['mirror.db', 'mirror.db-wal']
        .map((name) => readFileSync(path.join(place.storage, name), 'latin1'))
        .join('');
    const body = sampleNotification(2, { name: 'left-a-trace' });
    for (const secret of [[], 'wrong', '', [SECRET, SECRET], `${SECRET}, ${SECRET}`, SECRET.repeat(1_000)]) {
      expect(await notify(place, body, { 'x-webhook-secret': secret }), String(secret).slice(0, 40)).toBe(
        401,
      );
    }
    expect(orderIds()).toHaveLength(1);
    expect(rowsOf(place, 'SELECT * FROM quarantine')).toEqual([]);
    expect(bytes()).not.toContain('left-a-trace');
    expect(await notify(place, body)).toBe(200);
    expect(bytes()).toContain('left-a-trace');
    expect(daemon.log()).not.toContain(SECRET);
  });

  it('that are malformed are kept for a person, and 50 MB of one cost no memory', async () => {
    place = await openFaultPlace();
    const daemon = await place.run();
    await polled();
    for (const body of ['{"internalOrderId":', 'a=b', '']) expect(await notify(place, body)).toBe(400);
    expect(rowsOf(place, 'SELECT payload FROM quarantine')).toHaveLength(3);
    const residentKb = () =>
      Number(/VmHWM:\s+(\d+)/.exec(readFileSync(`/proc/${daemon.child.pid}/status`, 'utf8'))?.[1]);
    const before = residentKb();
    const block = Buffer.alloc(64 * 1024, 0x20);
    const { statusCode } = await request(place.config.webhook.callbackUrl, {
      method: 'POST',
      headers: { 'x-webhook-secret': SECRET },
      body: Readable.from(
        (function* () {
          for (let i = 0; i < 800; i++) yield block;
        })(),
      ),
    });
    expect(statusCode).toBe(413);
    expect(residentKb() - before).toBeLessThan(24 * 1024);
    expect(await notify(place, sampleNotification(1))).toBe(200);
  });

  it('a thousand at once on a slow disk are each answered within five seconds, and kept when it was 200', async () => {
    place = await openFaultPlace();
    const disk = faultyDisk(place);
    await place.run();
    await polled();
    disk.begin('sync-slow', '60 mirror.db');
    const { port, pathname } = new URL(place.config.webhook.callbackUrl);
    // The requests are prepared beforehand and sent over bare sockets, so that the sender's own work is not measured.
    const requests = Array.from({ length: 1_000 }, (_, n) => {
      const body = JSON.stringify(sampleNotification(n));
      return `POST ${pathname} HTTP/1.1\r\nHost: x\r\nx-webhook-secret: ${SECRET}\r\nConnection: close\r\nContent-Length: ${Buffer.byteLength(body)}\r\n\r\n${body}`;
    });
    let worstMs = 0;
    const startMs = performance.now();
    const statuses = await Promise.all(
      requests.map(async (text) => {
        const connection = new RawConnection(Number(port));
        await connection.write(text);
        await connection.closed;
        worstMs = Math.max(worstMs, performance.now() - startMs);
        return connection.status;
      }),
    );
    disk.end('sync-slow');
    const kept = statuses.filter((status) => status === 200).length;
    expect(statuses.filter((status) => status !== 200 && status !== 503)).toEqual([]);
    expect(worstMs).toBeLessThan(limitMs(5_000));
    expect(kept).toBeGreaterThan(100);
    expect(orderIds().length).toBeGreaterThanOrEqual(kept);
  });
});

describe('a secret that was rotated three times without an answer', () => {
  it('is accepted whichever of them the platform has, and is registered anew at the next start', async () => {
    place = await openFaultPlace();
    const { control } = place.sandbox;
    const daemon = await place.run();
    await until('the webhook is registered', () => control.webhook()?.active === true);
    for (const when of ['after', 'before', 'before'] as const) {
      control.setFault({ kind: 'drop', endpoint: 'webhook.put', times: 1, when });
      expect((await place.command('webhook', 'rotate-secret')).code).toBe(1);
    }
    const atPlatform = control.webhook()?.secret ?? '';
    expect(atPlatform).not.toBe(SECRET);
    for (const secret of [atPlatform, SECRET]) {
      expect(await notify(place, sampleNotification(1), { 'x-webhook-secret': secret })).toBe(200);
    }
    await daemon.end('SIGTERM');
    await place.run();
    expect(await notify(place, sampleNotification(1), { 'x-webhook-secret': atPlatform })).toBe(200);
    await until('the secret in use is registered again', () => control.webhook()?.secret === SECRET);
    expect(await notify(place, sampleNotification(2))).toBe(200);
  });
});

describe('callbacks that are refused', () => {
  type Told = { verdict: { findings: { code: string; detail: string }[] } };
  const codes = async () => {
    const { verdict } = JSON.parse((await place.command('status', '--json')).stdout) as Told;
    return verdict.findings.map(({ code }) => code);
  };
  const listed = async () =>
    (JSON.parse((await place.command('webhook', 'log', '--json')).stdout) as { callbacks: object[] })
      .callbacks;

  it('are told after a few, with their cause, can be seen, and are over with a good one', async () => {
    place = await openFaultPlace();
    const daemon = await place.run();
    await polled();
    // `webhook test` sends a wrong secret too, but its probes do not count as refused callbacks of the platform.
    for (let i = 0; i < 2; i++) expect((await place.command('webhook', 'test')).code).toBe(0);
    // Whoever guesses secrets may call it a probe.
    const wrong = {
      'x-webhook-secret': 'another',
      'x-tillsync-probe': '1',
      'x-forwarded-for': '203.0.113.7',
    };
    for (let i = 0; i < 2; i++) expect(await notify(place, sampleNotification(1), wrong)).toBe(401);
    expect(await codes()).not.toContain('webhook.refused');
    expect(await notify(place, sampleNotification(1), wrong)).toBe(401);
    await until('it is told', async () => (await codes()).includes('webhook.refused'));
    const refused = { status: 401, fault: 'secret-wrong', from: '203.0.113.7', count: 3, isProbe: false };
    const isThere = (each: object) => isDeepStrictEqual({ ...each, ...refused }, each);
    await until('they are listed', async () => (await listed()).some(isThere));
    const shown = await place.command('webhook', 'log');
    expect(shown.stdout).toContain('it carries another secret than the one that is agreed');
    expect(shown.stdout + JSON.stringify(await listed())).not.toContain('another"');
    const doctor = JSON.parse((await place.command('doctor', '--offline', '--json')).stdout);
    const arriving = doctor.checks.find(({ id }: { id: string }) => id === 'webhook.arriving');
    expect(arriving).toMatchObject({ level: 'warn', message: expect.stringContaining('(401)') });
    expect(arriving.remedy).toContain('webhook log');

    const order = sampleNotification(1);
    expect(await notify(place, order)).toBe(200);
    await until('it is over', async () => !(await codes()).includes('webhook.refused'));
    await daemon.end('SIGTERM');
    // The list includes callbacks of a process that ended, and has no customer data.
    const last = (await listed()).at(-1);
    expect(last).toMatchObject({
      status: 200,
      fault: null,
      orderId: expect.any(String),
      orderStatus: expect.any(String),
    });
    expect(Object.keys(last ?? {}).sort()).toEqual(
      ['at', 'code', 'count', 'fault', 'from', 'id', 'isProbe', 'orderId', 'orderStatus', 'status'].sort(),
    );
  });
});
