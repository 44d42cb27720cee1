import { describe, expect, it } from 'vitest';
import { TillsyncError } from '../../src/core/errors.ts';
import type { Log } from '../../src/core/log.ts';
import { listenForCallbacks } from '../../src/daemon/incoming.ts';
import type { Receiver } from '../../src/orders/receiving/callback-server.ts';

const FD = 3;

interface Place {
  host: string;
  port: number;
}

/** Makes receivers without sockets. `open` has the addresses on which they listen. */
function stage(options: { inherited?: Place; configured: Place; taken?: Error }) {
  const open = new Set<string>();
  const warnings: string[] = [];
  const log: Log = { debug() {}, info() {}, error() {}, warn: (_fields, message) => warnings.push(message) };
  const receiver = (listenFd: number | undefined): Receiver => {
    const { host, port } =
      listenFd === undefined ? options.configured : (options.inherited ?? options.configured);
    const url = `http://${host}:${port}/webhook`;
    return {
      async listen() {
        if (listenFd === undefined && options.taken) throw options.taken;
        open.add(url);
        return { url, host, port };
      },
      async close() {
        open.delete(url);
      },
    };
  };
  const inheritedFd = options.inherited && FD;
  const listen = () => listenForCallbacks({ receiver, inheritedFd, ...options.configured, log });
  return { listen, open, warnings };
}

const TAKEN = new TillsyncError('config-invalid', 'taken');
const CONFIGURED = { host: '127.0.0.1', port: 8787 };

describe('listenForCallbacks', () => {
  it('listens on the configured address when no socket was handed over', async () => {
    const { listen, open } = stage({ configured: CONFIGURED });
    expect((await listen()).url).toBe('http://127.0.0.1:8787/webhook');
    expect(open.size).toBe(1);
  });

  it.each([CONFIGURED, { host: 'localhost', port: 8787 }, { host: '127.0.0.1', port: 0 }])(
    'takes the socket over and opens no other for %j',
    async (configured) => {
      const { listen, open, warnings } = stage({ inherited: CONFIGURED, configured });
      await listen();
      expect([...open]).toEqual(['http://127.0.0.1:8787/webhook']);
      expect(warnings).toEqual([]);
    },
  );

  it.each([
    { host: '127.0.0.1', port: 9999 },
    { host: '192.0.2.1', port: 8787 },
  ])('serves both addresses and says so when %j is configured', async (configured) => {
    const { listen, open, warnings } = stage({ inherited: CONFIGURED, configured });
    const listeners = await listen();
    expect(open.size).toBe(2);
    expect(listeners.url).toContain(`${configured.host}:${configured.port}`);
    expect(warnings).toHaveLength(1);
    await listeners.close();
    expect(open.size).toBe(0);
  });

  it('goes on with the socket alone when the configured address cannot be had', async () => {
    const configured = { host: '0.0.0.0', port: 8787 };
    const { listen, open, warnings } = stage({ inherited: CONFIGURED, configured, taken: TAKEN });
    expect((await listen()).url).toBe('http://127.0.0.1:8787/webhook');
    expect(open.size).toBe(1);
    expect(warnings).toHaveLength(1);
  });

  it('fails when there is no socket and the configured address cannot be had', async () => {
    const { listen } = stage({ configured: CONFIGURED, taken: TAKEN });
    await expect(listen()).rejects.toMatchObject({ code: 'config-invalid' });
  });

  it('takes a fault of the program for no address that cannot be had', async () => {
    const configured = { host: '0.0.0.0', port: 8787 };
    const { listen } = stage({ inherited: CONFIGURED, configured, taken: new TypeError('a fault') });
    await expect(listen()).rejects.toThrow('a fault');
  });
});
