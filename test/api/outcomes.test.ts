import { describe, expect, it } from 'vitest';
import { changesAnswer, outboxPage } from '../../src/api/change-schemas.ts';
import { type StoreRig, storeRig } from '../support/store-rig.ts';

/** Starts a daemon that has read the catalogue. Tests call it over real HTTP while their clock advances. */
async function selling() {
  const rig = storeRig({ lookEveryMs: 1_000 });
  const daemon = await rig.daemon();
  await rig.clock.advance(20_000);
  // biome-ignore lint/suspicious/noExplicitAny: tests look into answers freely
  const begin = async (path: string, body?: unknown): Promise<{ status: number; body: any }> => {
    const headers = { 'content-type': 'application/json' };
    const post = { method: 'POST', headers, body: JSON.stringify(body) };
    const answer = await fetch(`${daemon.localUrl}/v1${path}`, body === undefined ? {} : post);
    return { status: answer.status, body: await answer.json() };
  };
  const ask = (path: string, body?: unknown) => meanwhile(rig, begin(path, body));
  return { rig, daemon, begin, ask };
}

/** Advances the clock in small steps, with real time for sockets, until the promise is settled. */
async function meanwhile<T>(rig: StoreRig, promise: Promise<T>): Promise<T> {
  let isSettled = false;
  const settling = promise.finally(() => {
    isSettled = true;
  });
  while (!isSettled) {
    await rig.clock.advance(100);
    await new Promise((resolve) => setTimeout(resolve, 2));
  }
  return settling;
}

const COUNT = { externalId: 'A-1001-1', subsidiaryId: 'sub-1', qty: 7 };
const NOWHERE = { externalId: 'NOWHERE', subsidiaryId: 'sub-1', qty: 1, reference: 'till-1/9' };

describe('what became of a change', () => {
  it('is answered with the hand-over to whoever waits for it', async () => {
    const { ask, rig } = await selling();
    const startMs = rig.clock.monotonicMs();
    const { status, body } = await ask('/stock?wait=30', [COUNT, NOWHERE, { qty: 3 }]);
    expect(changesAnswer.parse(body)).toEqual(body);
    expect(status).toBe(207);
    expect(body).toMatchObject({ total: 3, pending: 0, held: 0, done: 1, rejected: 2 });
    expect(body.results).toMatchObject([
      { state: 'pending', outcome: { changeId: body.results[0].changeId, state: 'done', message: null } },
      { outcome: { state: 'rejected', message: expect.stringContaining('NOWHERE') } },
      { state: 'rejected', code: 'no-product' },
    ]);
    expect(body.results[2].outcome).toBeUndefined();
    expect(rig.clock.monotonicMs() - startMs).toBeLessThan(25_000);
    expect(rig.sandbox.control.stockOf(1001, 'sub-1')).toBe(7);
  });

  it('is as far as it got where the time is over first, or at once where nobody waits', async () => {
    const { ask, daemon } = await selling();
    for (const endpoint of ['product.stock.put', 'product.stock.batch'] as const) {
      daemon.services.state.ledger.holdBack(endpoint, 600_000);
    }
    const { status, body } = await ask('/stock?wait=2', [COUNT]);
    expect(body).toMatchObject({ pending: 1, done: 0, rejected: 0 });
    expect([status, body.results[0].outcome.state, body.results[0].outcome.settledAt]).toEqual([
      200,
      'pending',
      null,
    ]);
    expect((await ask('/stock', [COUNT])).body.results[0]).not.toHaveProperty('outcome');
    const many = await ask(
      '/stock?wait=2',
      Array.from({ length: 1_001 }, () => COUNT),
    );
    expect([many.status, many.body.error.code]).toEqual([400, 'usage']);
  });

  it('comes by one cursor, each change whenever it settles, and a reader may wait for it', async () => {
    const { ask, begin } = await selling();
    const end = await ask('/outbox?after=newest');
    expect(end.body).toEqual({ changes: [], before: null, next: 0, newest: 0 });
    const waiting = begin('/outbox?after=0&wait=30');
    await ask('/stock?wait=30', [COUNT, NOWHERE]);
    const first = (await waiting).body;
    expect(outboxPage.parse(first)).toEqual(first);
    expect(first.changes.length).toBeGreaterThan(0);
    const all = (await ask('/outbox?after=0')).body;
    expect(all.changes.map(({ settledSeq }: { settledSeq: number }) => settledSeq)).toEqual([1, 2]);
    expect(all).toMatchObject({ next: 2, newest: 2 });
    const refused = all.changes.find(({ state }: { state: string }) => state === 'rejected');
    expect((await ask('/outbox?after=0&reference=till-1/9')).body.changes).toEqual([refused]);
    expect((await ask('/outbox?after=0&limit=1')).body).toMatchObject({ next: 1, newest: 2 });
    // A person retries the refused change. It settles again as superseded and must be listed only once.
    await ask(`/outbox/${refused.changeId}/retry`, {});
    const { changes } = (await ask('/outbox?after=2')).body;
    expect(changes[0]).toMatchObject({ changeId: refused.changeId, state: 'superseded', settledSeq: 3 });
    expect((await ask('/outbox?after=0')).body.changes).toHaveLength(1 + changes.length);
    const ahead = await ask('/outbox?after=99');
    expect([ahead.status, ahead.body.error.code]).toEqual([400, 'feed-restarted']);
    for (const wrong of ['after=1&before=2', 'wait=3', 'after=']) {
      expect((await ask(`/outbox?${wrong}`)).status, wrong).toBe(400);
    }
  });
});
