import { once } from 'node:events';
import { existsSync, readFileSync } from 'node:fs';
import { createServer, type RequestListener } from 'node:http';
import type { AddressInfo } from 'node:net';
import path from 'node:path';
import { expect, it, onTestFinished } from 'vitest';
import { storeRig } from '../support/store-rig.ts';

const SECOND_MS = 1_000;
const MEGABYTE = 1024 ** 2;

const RECEIVERS: [what: string, answer: RequestListener, says: RegExp][] = [
  ['fails', (_request, response) => response.writeHead(500).end('no'), /answered 500/],
  ['hangs', () => {}, /gave no answer within 100 ms/],
  ['closes the connection', (request) => request.socket.destroy(), /cannot be reached/],
  ['answers NUL bytes', (_request, response) => response.writeHead(503).end('\0\0\0'), /answered 503/],
  [
    'answers a megabyte',
    (_request, response) => response.writeHead(502).end('x'.repeat(MEGABYTE)),
    /answered 502/,
  ],
];

it.each(RECEIVERS)(
  'a receiver that %s keeps no other one waiting, and is a finding itself until it takes alarms',
  { tags: ['bulk'] },
  async (_what, answer, says) => {
    let receive = answer;
    const server = createServer((request, response) => receive(request, response));
    server.listen(0, '127.0.0.1');
    await once(server, 'listening');
    onTestFinished(() => {
      server.closeAllConnections();
      server.close();
    });
    const { port } = server.address() as AddressInfo;
    const store = storeRig({
      lookEveryMs: SECOND_MS,
      config: (config) => {
        const file = path.join(config.storage.directory, 'heard');
        const alarms = {
          ...{
            command: ['/bin/sh', '-c', `cat >> ${file}`],
            url: `http://127.0.0.1:${port}/`,
            timeoutMs: 100,
          },
          settleMs: 5 * SECOND_MS,
        };
        return { ...config, alarms: { ...config.alarms, ...alarms } };
      },
    });
    const daemon = await store.daemon();
    const { mirror } = daemon.services;
    const file = path.join(store.directory, 'heard');
    const heard = () => (existsSync(file) ? readFileSync(file, 'utf8') : '');
    /** Advances the clock until `isSo` is true, with real time for programs and sockets. */
    const until = async (isSo: () => boolean) => {
      for (let second = 0; second < 600 && !isSo(); second++) {
        await store.clock.advance(SECOND_MS);
        await new Promise((resolve) => setTimeout(resolve, 5));
      }
      expect(isSo()).toBe(true);
    };
    const foreign = `a\0b ${'x'.repeat(200_000)}`;
    mirror.health.note('hub.misuse', foreign);
    await until(() => heard().includes('hub.misuse'));
    // Text from outside is cut, and its control characters are removed.
    expect(heard().length).toBeLessThan(20_000);
    expect(JSON.parse(heard()).detail).not.toContain('\0');
    const untold = () => mirror.health.raised().find(({ key }) => key === 'alarms.untold');
    await until(() => untold() !== undefined);
    expect(untold()?.message).toMatch(says);
    await until(() => heard().includes('alarms.untold'));
    receive = (_request, response) => response.end('OK');
    await until(() => untold() === undefined);
  },
);
