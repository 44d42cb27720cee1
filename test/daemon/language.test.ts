/** Tests src/support/alarm-test.ts and src/health/alarm-receivers.ts. */

import { once } from 'node:events';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { setTimeout as wait } from 'node:timers/promises';
import { expect, it, onTestFinished } from 'vitest';
import type { AlarmReport } from '../../src/health/alarm-receivers.ts';
import { networkFault } from '../../src/platform/transport.ts';
import { testAlarms } from '../../src/support/alarm-test.ts';
import { storeRig } from '../support/store-rig.ts';

const STEP_MS = 15_000;
const TELL_WITHIN_MS = 20 * 60_000;

it('alarms speak Spanish and tell the time of the shop where the shop does, and codes to programs', async () => {
  const told: AlarmReport[] = [];
  const receiver = createServer((request, response) => {
    let body = '';
    request.on('data', (part) => {
      body += part;
    });
    request.on('end', () => {
      told.push(JSON.parse(body));
      response.end('OK');
    });
  });
  receiver.listen(0, '127.0.0.1');
  await once(receiver, 'listening');
  onTestFinished(() => {
    receiver.closeAllConnections();
    receiver.close();
  });
  const { port } = receiver.address() as AddressInfo;
  const store = storeRig({
    config: (config) => ({
      ...config,
      shop: { ...config.shop, name: 'Local Centro', language: 'es' },
      alarms: { ...config.alarms, url: `http://127.0.0.1:${port}/`, settleMs: 0 },
      orders: { ...config.orders, poll: '*/2 * * * *', timezone: 'America/Santiago' },
    }),
    lookEveryMs: 60_000,
  });
  let isCut = false;
  const daemon = await store.daemon((_request, pass) => {
    if (isCut) throw networkFault({ code: 'ECONNREFUSED' }, { host: 'platform.test', port: 443 });
    return pass();
  });
  await store.clock.advance(10 * 60_000);
  const heard = async (state: string) => {
    const isHeard = () => told.find((each) => each.key === 'orders.stale' && each.state === state);
    for (let waitedMs = 0; !isHeard() && waitedMs < TELL_WITHIN_MS; waitedMs += STEP_MS) {
      await store.clock.advance(STEP_MS);
      // Sockets need real time.
      await wait(2);
    }
    return isHeard();
  };
  isCut = true;
  const raised = await heard('raised');
  expect(raised).toMatchObject({
    level: 'red',
    shop: 'Local Centro',
    message: 'tillsync no puede traer los pedidos de la plataforma.',
    detail: expect.stringContaining(
      'No se puede conectar con la plataforma: platform.test rechaza conexiones',
    ),
    remedy: expect.stringContaining('El servidor de la plataforma rechaza las conexiones'),
    since: expect.stringMatching(/^2026-01-15T1\d:\d\d:\d\d\.\d{3}Z$/),
  });
  // In January, Santiago is three hours behind UTC.
  const [, hour, minute] = /T(\d\d):(\d\d)/.exec(String(raised?.since)) ?? [];
  const local = `${String(Number(hour) - 3).padStart(2, '0')}:${minute}`;
  expect(raised?.text).toMatch(/^\[ROJO\] Local Centro: tillsync no puede traer los pedidos/);
  expect(raised?.text).toContain(`(orders.stale, desde ${local})`);
  isCut = false;
  expect((await heard('healed'))?.text).toMatch(/^\[TERMINÓ\] Local Centro: Ya terminó: /);

  const { config } = daemon.services;
  const { signal } = new AbortController();
  await testAlarms({ config, secrets: {}, env: {}, clock: store.clock, signal });
  expect(told.at(-1)?.text).toBe(
    '[PRUEBA] Local Centro: Esta es una prueba: las alarmas de tillsync llegan aquí. (alarms.test)',
  );
});
