import { describe, expect, it } from 'vitest';
import { inheritedSocket, serviceManager } from '../../src/daemon/service.ts';

const PID = 4711;

function managerWith(env: Record<string, string>) {
  const sent: [number, string][] = [];
  const manager = serviceManager({ env, pid: PID, write: (fd, text) => sent.push([fd, text]) });
  return { manager, sent };
}

describe('serviceManager', () => {
  it('writes each news as one datagram to the descriptor that the launcher connected', () => {
    const { manager, sent } = managerWith({ NOTIFY_FD: '4' });
    manager.tell({ READY: '1', STATUS: 'two\nlines' });
    expect(sent).toEqual([[4, 'READY=1\nSTATUS=two lines']]);
  });

  it('keeps silent where nobody listens, and when the descriptor fails', () => {
    const { manager, sent } = managerWith({ NOTIFY_SOCKET: '/run/systemd/notify' });
    manager.tell({ READY: '1' });
    expect(sent).toEqual([]);
    const failing = serviceManager({
      env: { NOTIFY_FD: '4' },
      pid: PID,
      write() {
        throw new Error('ECONNREFUSED');
      },
    });
    expect(() => failing.tell({ READY: '1' })).not.toThrow();
  });

  it.each([
    [{ NOTIFY_FD: '4', WATCHDOG_USEC: '30000000' }, 30_000],
    [{ NOTIFY_FD: '4', WATCHDOG_USEC: '30000000', WATCHDOG_PID: String(PID) }, 30_000],
    [{ NOTIFY_FD: '4', WATCHDOG_USEC: '30000000', WATCHDOG_PID: '1' }, undefined],
    [{ NOTIFY_FD: '4', WATCHDOG_USEC: '0' }, undefined],
    [{ NOTIFY_FD: '4' }, undefined],
    [{ WATCHDOG_USEC: '30000000' }, undefined],
  ])('with %j a sign of life is due within %s ms', (env, watchdogMs) => {
    expect(managerWith(env).manager.watchdogMs).toBe(watchdogMs);
  });
});

describe('inheritedSocket', () => {
  it.each([
    [{ LISTEN_PID: String(PID), LISTEN_FDS: '1' }, 3],
    [{ LISTEN_PID: String(PID), LISTEN_FDS: '2' }, 3],
    [{ LISTEN_PID: '1', LISTEN_FDS: '1' }, undefined],
    [{ LISTEN_PID: String(PID), LISTEN_FDS: '0' }, undefined],
    [{ LISTEN_PID: String(PID), LISTEN_FDS: 'x' }, undefined],
    [{ LISTEN_FDS: '1' }, undefined],
    [{}, undefined],
  ])('of %j is %s', (env, fd) => {
    expect(inheritedSocket(env, PID)).toBe(fd);
  });
});
