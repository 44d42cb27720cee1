import { describe, expect, it } from 'vitest';
import type { AlarmKey } from '../../src/core/alarm.ts';
import { TillsyncError } from '../../src/core/errors.ts';
import { silentLog } from '../../src/core/log.ts';
import { OutboxMaintenance } from '../../src/outbox/sending/maintenance.ts';
import { ProductReads } from '../../src/outbox/sending/product-reads.ts';
import type { MirrorStores } from '../../src/outbox/sending/repositories.ts';
import type { ProductRecord } from '../../src/platform/schemas.ts';
import { FakeClock, seededRandom } from '../support/fake-clock.ts';

/** Leases in memory, which a test can take away from their holder. */
class TestLeases {
  holder: number | undefined;
  untilMs = 0;
  renewals = 0;
  readonly #clock: FakeClock;
  #fence = 0;
  constructor(clock: FakeClock) {
    this.#clock = clock;
  }
  acquire(_name: string, holdMs: number): number | undefined {
    if (this.holder !== undefined && this.#clock.monotonicMs() < this.untilMs) return undefined;
    this.#fence += 1;
    this.holder = this.#fence;
    this.untilMs = this.#clock.monotonicMs() + holdMs;
    return this.#fence;
  }
  renew(_name: string, fence: number, holdMs: number): boolean {
    if (this.holder !== fence) return false;
    this.renewals += 1;
    this.untilMs = this.#clock.monotonicMs() + holdMs;
    return true;
  }
  release(_name: string, fence: number): void {
    if (this.holder === fence) this.holder = undefined;
  }
}

function setUp(how: { get?: () => Promise<ProductRecord | null>; sent?: () => Promise<unknown> } = {}) {
  const clock = new FakeClock();
  const leases = new TestLeases(clock);
  const alarms = new Map<AlarmKey, string>();
  const state = { unresolved: 0, held: 0, rejected: 0, seq: 1, judged: true, left: 0 };
  const done = { reclaims: 0, corrections: 0, prunes: 0, reads: 0, wishes: 0 };
  const trouble: { reclaim?: Error; correct?: Error; reclaimMs?: number } = {};
  class Reads extends ProductReads {
    override count = () => state.unresolved;
    override async next() {
      return state.unresolved === 0 ? undefined : { changeId: 1, query: { externalId: 'X' } };
    }
    override async resolved() {
      state.unresolved -= 1;
    }
    override async judgeByCatalog() {
      return state.judged;
    }
  }
  class Maintenance extends OutboxMaintenance {
    protected override async reclaim() {
      if (trouble.reclaim) throw trouble.reclaim;
      if (trouble.reclaimMs) await clock.sleep(trouble.reclaimMs);
      done.reclaims += 1;
    }
    protected override async catchUp() {
      if (trouble.correct) throw trouble.correct;
      done.corrections += 1;
    }
    protected override async prune() {
      done.prunes += 1;
      state.left -= 1;
      return state.left > 0;
    }
    protected override forPeople() {
      return { held: state.held, rejected: state.rejected };
    }
  }
  const options = {
    stores: { read: () => ({ push: 0, orderSeq: 0 }) } as unknown as MirrorStores,
    platform: {
      async productGet(_query: unknown, call?: { onSend?: () => void }) {
        done.reads += 1;
        call?.onSend?.();
        return how.get ? await how.get() : null;
      },
    },
    holdBack: true,
    keptMs: 0,
    newestSeq: () => state.seq,
    leases,
    alarms: {
      note: (key: AlarmKey, trouble: string | null) =>
        void (trouble === null ? alarms.delete(key) : alarms.set(key, trouble)),
    },
    mayCall: () => true,
    wantCatalog: () => {
      done.wishes += 1;
    },
    onQueued: () => {},
    sent: how.sent ?? (() => Promise.resolve()),
    clock,
    random: seededRandom(1),
    log: silentLog,
    beat() {},
  };
  const maintenance = new Maintenance(options, new Reads(options));
  const controller = new AbortController();
  const ended = maintenance.run(controller.signal);
  const stop = async () => {
    controller.abort();
    await clock.advance(1_000);
    await ended;
    expect(leases.holder).toBeUndefined();
  };
  return { clock, leases, alarms, state, done, trouble, maintenance, controller, ended, stop };
}

describe('the lease of sending', () => {
  it('is kept while the platform lets a read wait for hours', async () => {
    const { clock, leases, state, done, maintenance, stop } = setUp({
      get: () => clock.sleep(2 * 3_600_000).then(() => null),
    });
    state.unresolved = 1;
    for (let minute = 1; minute < 2 * 60; minute++) {
      await clock.advance(60_000);
      expect(maintenance.isSender).toBe(true);
    }
    expect(done.reads).toBe(1);
    expect(leases.renewals).toBeGreaterThan(1);
    expect(leases.renewals).toBeLessThan(5);
    await clock.advance(120_000);
    await stop();
  });

  it('is not taken before what another process left under way is back in line', async () => {
    const { clock, leases, done, trouble, maintenance, stop } = setUp();
    trouble.reclaim = new TillsyncError('storage-full', 'The disk is full.');
    await clock.advance(5_000);
    expect([maintenance.isSender, leases.holder]).toEqual([false, undefined]);
    delete trouble.reclaim;
    await clock.advance(1_100);
    expect([maintenance.isSender, done.reclaims]).toEqual([true, 1]);
    await stop();
  });

  it('is given up before another process can have it', async () => {
    const { clock, leases, maintenance, stop } = setUp();
    await clock.advance(100);
    expect(maintenance.isSender).toBe(true);
    leases.renew = () => {
      throw new TillsyncError('storage-failed', 'The disk failed.');
    };
    await clock.advance(3_589_000);
    expect(maintenance.isSender).toBe(true);
    await clock.advance(2_000);
    expect(maintenance.isSender).toBe(false);
    expect(leases.acquire('outbox.push', 1)).toBeUndefined();
    await stop();
  });

  it('ends an hour after it was asked for, though putting things back in line took its time', async () => {
    const { clock, leases, trouble, maintenance, stop } = setUp();
    leases.renew = () => {
      throw new TillsyncError('storage-failed', 'The disk failed.');
    };
    trouble.reclaimMs = 60_000;
    await clock.advance(3_589_000);
    expect(maintenance.isSender).toBe(true);
    await clock.advance(2_000);
    expect(maintenance.isSender).toBe(false);
    await stop();
  });

  it('that another process took over is believed at once', async () => {
    const { clock, leases, state, alarms, done, maintenance, controller, ended } = setUp();
    await clock.advance(100);
    expect(maintenance.isSender).toBe(true);
    leases.holder = 99;
    await clock.advance(1_800_000);
    expect(maintenance.isSender).toBe(false);
    const { corrections } = done;
    state.seq += 1;
    state.held = 1;
    await clock.advance(60_000);
    expect(done.corrections).toBe(corrections);
    expect([...alarms.keys()]).toEqual([]);
    controller.abort();
    await ended;
    expect(leases.holder).toBe(99);
  });

  it('is held until the call under way has been answered', async () => {
    let answer = () => {};
    const { clock, leases, controller, ended } = setUp({
      sent: () =>
        new Promise<void>((resolve) => {
          answer = resolve;
        }),
    });
    await clock.advance(100);
    controller.abort();
    await clock.advance(5_000);
    expect(leases.holder).toBeDefined();
    answer();
    await ended;
    expect(leases.holder).toBeUndefined();
  });
});

describe('the maintenance of the outbox', () => {
  it('tells people what waits for them, and when nothing does', async () => {
    const { clock, alarms, state, stop } = setUp();
    state.held = 3;
    state.rejected = 2;
    await clock.advance(1_100);
    expect([...alarms.keys()].sort()).toEqual(['outbox.held', 'outbox.rejected']);
    expect(alarms.get('outbox.rejected')).toContain('2 changes');
    state.rejected = 0;
    await clock.advance(1_100);
    expect([...alarms.keys()]).toEqual(['outbox.held']);
    state.held = 0;
    await clock.advance(1_100);
    expect(alarms.size).toBe(0);
    await stop();
  });

  it('corrects held-back stock while a read takes its time', async () => {
    const { clock, state, done, stop } = setUp({ get: () => clock.sleep(60_000).then(() => null) });
    state.unresolved = 1;
    await clock.advance(2_000);
    const before = done.corrections;
    state.seq += 1;
    await clock.advance(1_100);
    expect(done.corrections).toBe(before + 1);
    await clock.advance(60_000);
    await stop();
  });

  it('corrects held-back stock again where that failed', async () => {
    const { clock, state, done, trouble, stop } = setUp();
    await clock.advance(1_100);
    const { corrections } = done;
    trouble.correct = new TillsyncError('storage-full', 'The disk is full.');
    state.seq += 1;
    await clock.advance(5_000);
    delete trouble.correct;
    await clock.advance(1_100);
    expect(done.corrections).toBe(corrections + 1);
    await stop();
  });

  it('forgets what was settled long ago until nothing of it is left, then every hour', async () => {
    const { clock, state, done, stop } = setUp();
    state.left = 5;
    await clock.advance(10_000);
    expect(done.prunes).toBe(5);
    await clock.advance(3_600_000);
    expect(done.prunes).toBe(6);
    await stop();
  });

  it('asks for the catalogue instead of for thousands of products', async () => {
    const { clock, state, done, stop } = setUp({ get: () => clock.sleep(1_000).then(() => null) });
    state.unresolved = 5_000;
    state.judged = false;
    await clock.advance(3_000);
    expect(done.wishes).toBeGreaterThan(0);
    state.unresolved = 100;
    const { wishes, reads } = done;
    await clock.advance(50_000);
    expect(done.wishes).toBe(wishes);
    expect(done.reads - reads).toBeGreaterThan(40);
    await stop();
  });

  it('rests longer and longer while reads fail', async () => {
    const { clock, state, done, stop } = setUp({
      get: () => Promise.reject(new TillsyncError('platform-failed', 'HTTP 500.')),
    });
    state.unresolved = 1;
    await clock.advance(3_600_000);
    expect(done.reads).toBeGreaterThan(10);
    expect(done.reads).toBeLessThan(30);
    await stop();
  });
});
