/** Tests src/db/lease.ts. */

import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { openState } from '../../src/app/state.ts';
import { pidOf, systemHolders } from '../../src/db/lease.ts';
import { FakeClock } from '../support/fake-clock.ts';
import { QUICK_LIMITS } from '../support/workplace.ts';

let directory: string;
beforeEach(() => {
  directory = mkdtempSync(path.join(tmpdir(), 'tillsync-'));
});
afterEach(() => rmSync(directory, { recursive: true }));

describe('systemHolders', () => {
  it('knows itself, and a process that has ended', async () => {
    expect(systemHolders.isAlive(systemHolders.self)).toBe(true);
    const child = spawn('sleep', ['60']);
    await once(child, 'spawn');
    expect(systemHolders.isAlive(`${child.pid}.`)).toBe(true);
    child.kill('SIGKILL');
    await once(child, 'exit');
    expect(systemHolders.isAlive(`${child.pid}.`)).toBe(false);
  });

  it('knows that a process has ended whose parent has not asked how', async () => {
    const parent = spawn('sh', ['-c', 'sleep 0 & echo $!; exec sleep 60'], {
      stdio: ['ignore', 'pipe', 'inherit'],
    });
    const [child] = await once(parent.stdout, 'data');
    await expect.poll(() => systemHolders.isAlive(`${String(child).trim()}.`)).toBe(false);
    expect(existsSync(`/proc/${String(child).trim()}`)).toBe(true);
    parent.kill('SIGKILL');
    await once(parent, 'exit');
  });

  it('does not take a process of the same number for the one that started earlier', () => {
    expect(systemHolders.isAlive(`${process.pid}.1`)).toBe(false);
    expect(systemHolders.isAlive('what nobody wrote')).toBe(undefined);
  });

  it('cannot tell of a process of another PID namespace, whose numbers mean nothing here', () => {
    const [pid, startTime, namespace] = systemHolders.self.split('.');
    expect(namespace).toMatch(/^\d+$/);
    expect(systemHolders.isAlive(`${pid}.${startTime}.1`)).toBe(undefined);
    expect(systemHolders.isAlive('4194304.1.1')).toBe(undefined);
    expect(pidOf(`${pid}.${startTime}.1`)).toBe(undefined);
    expect(pidOf(systemHolders.self)).toBe(process.pid);
  });
});

describe('what a dead process held', () => {
  const limits = { ...QUICK_LIMITS, ordersIntervalMs: 120_000 };

  function twoProcesses() {
    const clock = new FakeClock();
    const dead = new Set<string>();
    const foreign = new Set<string>();
    const open = (self: string) =>
      openState({
        path: path.join(directory, 'state.db'),
        clock,
        holders: {
          self,
          isAlive: (holder) => (foreign.has(holder) ? undefined : !dead.has(holder)),
        },
      });
    return { clock, dead, foreign, first: open('1.a'), second: open('2.b') };
  }

  it('frees its slot one interval after its death is noticed, not at the end of its hold', async () => {
    const { clock, dead, first, second } = twoProcesses();
    expect(first.ledger.acquire('order.all', limits, 600_000).granted).toBe(true);
    await clock.advance(10_000);
    dead.add('1.a');
    const refused = second.ledger.acquire('order.all', limits, 600_000);
    expect(refused).toMatchObject({ granted: false, wait: { waitMs: 120_001 } });
    await clock.advance(120_000);
    expect(second.ledger.acquire('order.all', limits, 600_000).granted).toBe(false);
    await clock.advance(1);
    expect(second.ledger.acquire('order.all', limits, 600_000).granted).toBe(true);
  });

  it('keeps the slot of a process that lives', async () => {
    const { clock, first, second } = twoProcesses();
    first.ledger.acquire('order.all', limits, 600_000);
    await clock.advance(500_000);
    expect(second.ledger.acquire('order.all', limits, 600_000).granted).toBe(false);
  });

  it('in another PID namespace counts as held until its time is over, and is then free', async () => {
    const { clock, foreign, first, second } = twoProcesses();
    foreign.add('1.a');
    first.leases.acquire('daemon', 180_000);
    await clock.advance(179_999);
    expect(second.leases.isHeld('daemon')).toBe(true);
    expect(second.leases.acquire('daemon', 180_000)).toBeUndefined();
    await clock.advance(1);
    expect(second.leases.isHeld('daemon')).toBe(false);
    expect(second.leases.acquire('daemon', 180_000)).toBeDefined();
  });

  it('is not free while its process is seen to stand still', async () => {
    const { clock, first, second } = twoProcesses();
    first.leases.acquire('daemon', 180_000);
    await clock.advance(3_600_000);
    expect(second.leases.isHeld('daemon')).toBe(true);
  });

  it('frees its lease at once, under a new fence', () => {
    const { dead, first, second } = twoProcesses();
    const fence = first.leases.acquire('orders.poll', 600_000) as number;
    expect(second.leases.acquire('orders.poll', 600_000)).toBeUndefined();
    expect(second.leases.isHeld('orders.poll')).toBe(true);
    dead.add('1.a');
    expect(second.leases.isHeld('orders.poll')).toBe(false);
    expect(second.leases.acquire('orders.poll', 600_000)).toBeGreaterThan(fence);
    expect(first.leases.renew('orders.poll', fence, 600_000)).toBe(false);
  });
});
