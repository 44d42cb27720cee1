import { describe, expect, it } from 'vitest';
import type { Daemon } from '../../src/daemon/daemon.ts';
import type { Transport } from '../../src/platform/transport.ts';
import { FreezableClock, type StoreRig, storeRig, type Tamper } from '../support/store-rig.ts';

type TransportRequest = Parameters<Transport['send']>[0];

const isStock = (request: TransportRequest) => request.path.startsWith('/product/stock');
const isBatch = (request: TransportRequest) => request.path === '/product/stock/batch';

/** Starts a daemon, waits until it has swept the catalogue, and records the quantities that it sends. */
async function seller(options: Parameters<typeof storeRig>[0] = {}, tamper: Tamper = (_, pass) => pass()) {
  const rig = storeRig({
    ...options,
    config: (same) => {
      const config = { ...same, stock: { ...same.stock, holdBackUnbooked: false, skipUnchanged: false } };
      return options.config?.(config) ?? config;
    },
  });
  /** The quantities in each call. */
  const sent: number[][] = [];
  const daemon = await rig.daemon((request, pass) => {
    if (isStock(request)) {
      const qtys = [...String(request.body).matchAll(/"qty":(\d+)/g)].map(([, qty]) => Number(qty));
      sent.push(qtys);
    }
    return tamper(request, pass);
  });
  await rig.clock.advance(20_000);
  return { rig, daemon, sent };
}

const count = (daemon: Daemon, ...changes: [sku: number, qty: number][]) =>
  daemon.services.outbox.submit(
    changes.map(([sku, qty]) => ({
      kind: 'stock',
      change: { sku: String(sku), subsidiaryId: 'sub-1', qty },
    })),
    'http',
  );

const putCalls = ({ sandbox }: StoreRig) => sandbox.control.calls('product.stock.put').length;

describe('a count in line', () => {
  it('leaves with its newest value, though it waited for its turn', async () => {
    const { rig, daemon, sent } = await seller({
      config: (same) => ({ ...same, limits: { ...same.limits, endpointIntervalMs: 60_000 } }),
    });
    await rig.clock.advance(400_000);
    for (const qty of [5, 6, 7, 8]) {
      await count(daemon, [1001, qty]);
      await rig.clock.advance(2_000);
    }
    await rig.clock.advance(120_000);
    expect(sent).toEqual([[5], [6], [8]]);
    expect(rig.sandbox.control.stockOf(1001, 'sub-1')).toBe(8);
  });

  it('of a product that is sold out does not wait for a full call that may not leave', async () => {
    const { rig, daemon } = await seller();
    daemon.services.state.ledger.holdBack('product.stock.batch', 600_000);
    await count(daemon, [1001, 5], [1003, 0]);
    await rig.clock.advance(5_000);
    expect(rig.sandbox.control.stockOf(1003, 'sub-1')).toBe(0);
  });

  it('is sent again as soon after the tenth short fault as after the first', async () => {
    let isFaulty = false;
    const { rig, daemon } = await seller({}, async (request, pass) => {
      if (!isFaulty || !isStock(request)) return pass();
      isFaulty = false;
      return { status: 503, headers: {}, bytes: Buffer.from('') };
    });
    for (let qty = 1; qty <= 10; qty++) {
      isFaulty = true;
      await count(daemon, [1001, qty]);
      await rig.clock.advance(15_000);
      expect(rig.sandbox.control.stockOf(1001, 'sub-1')).toBe(qty);
    }
  });

  it('that the platform refuses is found, and its neighbours go', async () => {
    const { rig, daemon } = await seller({}, async (request, pass) => {
      if (!isStock(request) || !String(request.body).includes('666')) return pass();
      return { status: 400, headers: {}, bytes: Buffer.from('{"message":"qty must not be 666"}') };
    });
    const changes: [number, number][] = [1001, 1002, 1003, 1004, 1005].map((sku) => [
      sku,
      sku === 1003 ? 666 : 40,
    ]);
    const taken = await count(daemon, ...changes);
    await rig.clock.advance(30_000);
    const found = taken.map(({ changeId }) => daemon.services.outbox.get(changeId));
    expect(found.map((change) => change?.state)).toEqual(['done', 'done', 'rejected', 'done', 'done']);
    expect(found[2]?.message).toContain('qty must not be 666');
  });

  it('stays in line while the platform refuses all, which is asked a few times only', async () => {
    const { rig, daemon, sent } = await seller({}, async (request, pass) =>
      isStock(request) ? { status: 400, headers: {}, bytes: Buffer.from('{"message":"closed"}') } : pass(),
    );
    const skus = [1001, 1002, 1003, 1004, 1005, 1006, 1007, 1008, 1009, 1010];
    const taken = await count(daemon, ...skus.map((sku): [number, number] => [sku, 3]));
    await rig.clock.advance(4_000);
    // After the call with all changes, ever smaller first halves are sent until three changes were refused alone, and
    // then ever smaller last halves, down to the last change.
    expect(sent.map(({ length }) => length)).toEqual([10, 5, 3, 2, 1, 1, 1, 5, 2, 1]);
    expect(daemon.services.outbox.counts()).toMatchObject({ rejected: 0, pending: 10 });
    expect(taken).toHaveLength(10);
  });

  it('stays in line when the line fails while a refused one is looked for', async () => {
    let refusals = 0;
    const { rig, daemon } = await seller({}, async (request, pass) => {
      if (!isBatch(request)) return pass();
      refusals += 1;
      if (refusals === 1) return { status: 400, headers: {}, bytes: Buffer.from('{"message":"bad"}') };
      if (refusals === 2) return pass();
      return { status: 503, headers: {}, bytes: Buffer.from('') };
    });
    await count(daemon, [1001, 3], [1002, 3], [1003, 3], [1004, 3]);
    await rig.clock.advance(3_000);
    expect(refusals).toBeGreaterThan(2);
    expect(daemon.services.outbox.counts()).toMatchObject({ rejected: 0 });
  });

  it('that waits for an hour does not make the watchdog think that the daemon hangs', async () => {
    const { rig, daemon, sent } = await seller({}, async (request, pass) =>
      isStock(request)
        ? { status: 429, headers: { 'retry-after': '600' }, bytes: Buffer.from('{}') }
        : pass(),
    );
    await count(daemon, [1001, 3]);
    for (let minute = 0; minute < 61; minute++) {
      await rig.clock.advance(60_000);
      expect(daemon.stalledLoops()).toEqual([]);
    }
    expect(daemon.services.outbox.counts()).toMatchObject({ pending: 1, rejected: 0 });
    // The count is sent at the start, and again each time that the ten minutes of `retry-after` are over.
    expect(sent).toEqual(Array(6).fill([3]));
  });
});

/** Records the names of the senders, in order. */
function senders() {
  const sentBy: string[] = [];
  const by =
    (name: string): Tamper =>
    (request, pass) => {
      if (isStock(request)) sentBy.push(name);
      return pass();
    };
  return { sentBy, by };
}

describe('two processes on one store', () => {
  it('send each count once, and the one that does not send has nothing to complain of', async () => {
    const { rig, daemon, sent } = await seller();
    const states = new Set<string>();
    const other = await rig.daemon();
    const sees = () =>
      rig.rows<{ state: string }>("SELECT state FROM freshness WHERE subject = 'outbox.push'");
    for (let qty = 1; qty <= 5; qty++) {
      await count(qty % 2 === 0 ? daemon : other, [1001, qty]);
      for (let i = 0; i < 20; i++) {
        await rig.clock.advance(500);
        for (const { state } of sees()) states.add(state);
      }
    }
    await rig.clock.advance(600_000);
    expect(rig.sandbox.control.stockOf(1001, 'sub-1')).toBe(5);
    expect(rig.sandbox.control.calls('product.stock.batch').length + putCalls(rig)).toBe(sent.length);
    expect([...states].sort()).toEqual(['ok', 'unknown']);
  });

  it('do not both send after the one that sent stood still for hours', async () => {
    const rig = storeRig({
      config: (same) => ({
        ...same,
        stock: { ...same.stock, holdBackUnbooked: false, skipUnchanged: false },
      }),
    });
    const clock = new FreezableClock(rig.clock);
    const { sentBy, by } = senders();
    const first = await rig.daemon(by('first'), { clock });
    await rig.clock.advance(20_000);
    await count(first, [1001, 4]);
    await rig.clock.advance(5_000);
    void clock.frozen();
    const second = await rig.daemon(by('second'));
    await rig.clock.advance(2 * 3_600_000);
    await count(second, [1001, 5]);
    await rig.clock.advance(310_000);
    expect(sentBy).toEqual(['first', 'second']);
    clock.thaw();
    await rig.clock.advance(1_000);
    await count(second, [1001, 6]);
    await rig.clock.advance(310_000);
    expect(sentBy).toEqual(['first', 'second', 'second']);
    expect(rig.sandbox.control.stockOf(1001, 'sub-1')).toBe(6);
  });

  it('do not both send for long after one took the other for dead', async () => {
    const rig = storeRig({
      config: (same) => ({
        ...same,
        stock: { ...same.stock, holdBackUnbooked: false, skipUnchanged: false },
      }),
    });
    const { sentBy, by } = senders();
    const first = await rig.daemon(by('first'), { holders: { self: 'first', isAlive: () => true } });
    await rig.clock.advance(20_000);
    await count(first, [1001, 4]);
    await rig.clock.advance(5_000);
    await rig.daemon(by('second'), { holders: { self: 'second', isAlive: (who) => who === 'second' } });
    await rig.clock.advance(40 * 60_000);
    for (const qty of [5, 6]) {
      await count(first, [1001, qty]);
      await rig.clock.advance(310_000);
    }
    expect(sentBy).toEqual(['first', 'second', 'second']);
    expect(rig.sandbox.control.stockOf(1001, 'sub-1')).toBe(6);
  });
});
