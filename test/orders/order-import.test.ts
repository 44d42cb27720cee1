import { readdirSync, readFileSync, readlinkSync, statSync } from 'node:fs';
import { setImmediate, setTimeout as sleep } from 'node:timers/promises';
import Database from 'better-sqlite3';
import { describe, expect, it } from 'vitest';
import { limitMs } from '../support/shared-config.ts';
import {
  heldNotifications,
  importJson,
  OBSERVED_MS,
  observation,
  openTestMirror,
  poll,
  receive,
  sampleNotification,
} from './open-test-mirror.ts';

const orders = (count: number, changes: Record<string, unknown> = {}) =>
  Array.from({ length: count }, (_, i) => sampleNotification(i + 1, changes));
/** Number of orders whose answer is so large that the worker thread is used, in several transactions on a fast machine too. */
const MANY = 2_000;

describe.each([
  ['a small answer', 30],
  ['a large answer', MANY],
])('%s', (_size, count) => {
  /** Large answers are tested with the bulk tests, because starting a thread takes a tenth of a second. */
  const often = count === MANY ? { tags: ['bulk'] } : {};

  it('is mirrored whole and reported', often, async () => {
    const { mirror } = openTestMirror();
    const report = await poll(mirror, orders(count));
    expect({ ...report, createdIds: report.createdIds.length }).toEqual({
      listFound: true,
      records: count,
      repeated: 0,
      unreadLists: [],
      unlisted: [],
      created: count,
      changed: 0,
      confirmed: 0,
      superseded: 0,
      unreadable: 0,
      createdIds: Math.min(count, 1000),
      morePages: false,
      mayBeCut: true,
      codes: { min: 1, max: count },
    });
    expect(mirror.orders.list({ limit: count + 1 })).toHaveLength(count);
    expect(mirror.orders.newestSeq()).toBe(count);
    const { reading } = observation('poll', sampleNotification(count));
    expect(mirror.orders.get(reading.orderId)).toMatchObject(reading.fields);
  });

  it('writes nothing when it comes again', often, async () => {
    const { mirror, path } = openTestMirror();
    await poll(mirror, [...orders(count), { nobody: 'can read this' }]);
    const before = contents(path);
    const report = await poll(mirror, [...orders(count), { nobody: 'can read this' }]);
    expect(report).toMatchObject({ created: 0, changed: 0, confirmed: count, unreadable: 1 });
    expect(report.codes).toEqual({ min: 1, max: count });
    expect(contents(path)).toEqual(before);
  });

  it('applies what changed and only that', often, async () => {
    const { mirror } = openTestMirror();
    await poll(mirror, orders(count));
    const later = orders(count).map((order, i) => (i % 10 === 0 ? { ...order, status: 'ready' } : order));
    expect(await poll(mirror, later)).toMatchObject({
      changed: Math.ceil(count / 10),
      confirmed: count - Math.ceil(count / 10),
    });
    expect(mirror.orders.newestSeq()).toBe(count + Math.ceil(count / 10));
  });

  it('is taken for what it is when others came, went and moved around it', often, async () => {
    const { mirror } = openTestMirror();
    const all = orders(count + 5);
    await poll(mirror, all.slice(3, count));
    expect(await poll(mirror, all.slice(2))).toMatchObject({ created: 6, confirmed: count - 3 });
    expect(await poll(mirror, all.slice(4).reverse())).toMatchObject({ created: 0, confirmed: count + 1 });
    expect(await poll(mirror, all.slice(0, count))).toMatchObject({ created: 2, confirmed: count - 2 });
  });

  it('is confirmed anew although it repeats itself, when a notification came in between', often, async () => {
    const { mirror } = openTestMirror();
    await poll(mirror, orders(count, { status: 'ready' }));
    await receive(mirror, sampleNotification(2, { status: 'routed' }));
    await receive(mirror, sampleNotification(3, { status: 'pending' }));
    expect(heldNotifications(mirror)).toMatchObject([{ resolvedAt: null }]);
    const again = orders(count, { status: 'ready' });
    expect(await poll(mirror, again)).toMatchObject({ changed: 1, confirmed: count - 1 });
    expect(heldNotifications(mirror)).toMatchObject([{ resolution: 'refuted' }]);
  });

  it('stops between two transactions when it is told to, and keeps what it did', often, async () => {
    const { mirror } = openTestMirror();
    const abort = new AbortController();
    const all = orders(count * 3);
    const body = new Uint8Array(Buffer.from(JSON.stringify(all)));
    const run = mirror.importAnswer(body, {
      observedAtMs: OBSERVED_MS,
      asOfSeq: 0,
      asOfHeldId: 0,
      signal: abort.signal,
      onProgress: () => abort.abort(),
    });
    await expect(run).rejects.toMatchObject({ code: 'aborted' });
    const kept = mirror.orders.list({ limit: 9_999 }).length;
    expect(kept).toBeGreaterThan(0);
    expect(kept).toBeLessThan(all.length);
    expect(await poll(mirror, all)).toMatchObject({ created: all.length - kept, confirmed: kept });
  });

  it('changes nothing when it is cut off', often, async () => {
    const { mirror } = openTestMirror();
    const text = JSON.stringify({ data: orders(count) });
    await expect(importJson(mirror, text.slice(0, -2))).rejects.toMatchObject({ code: 'platform-garbled' });
    expect(mirror.orders.newestSeq()).toBe(0);
    expect(mirror.quarantine.list(9)).toEqual([]);
  });

  it('goes whole into quarantine, once, when no list is in it', often, async () => {
    const { mirror } = openTestMirror();
    const answer = { sucursales: orders(count).map(() => ({ id: 'b', name: 'x'.repeat(1000) })) };
    for (let i = 0; i < 2; i++)
      expect(await importJson(mirror, answer)).toMatchObject({ listFound: false, records: 0 });
    const [entry, ...others] = mirror.quarantine.list(9);
    expect(others).toEqual([]);
    expect(mirror.quarantine.get(entry!.quarantineId)?.payload).toBe(JSON.stringify(answer));
  });
});

describe('a poll', () => {
  it('never takes back what a webhook brought after it was asked', async () => {
    const { mirror } = openTestMirror();
    await poll(mirror, orders(1));
    const asOfSeq = mirror.orders.newestSeq();
    await receive(mirror, sampleNotification(1, { status: 'ready' }));
    expect(await poll(mirror, orders(1), asOfSeq)).toMatchObject({ superseded: 1 });
    expect(mirror.orders.list({ limit: 1 })[0]?.status).toBe('ready');
    expect(await poll(mirror, orders(1))).toMatchObject({ changed: 1 });
    expect(mirror.orders.list({ limit: 1 })[0]?.status).toBe('pending');
  });

  it('notes that it confirms a webhook, once, and leaves its payload', async () => {
    const { mirror, path } = openTestMirror();
    await receive(mirror, sampleNotification(1));
    const record = { ...sampleNotification(1), extra: true };
    expect(await poll(mirror, [record])).toMatchObject({ confirmed: 1 });
    expect(mirror.orders.payload('65a100000000000000000001')).toBe(JSON.stringify(sampleNotification(1)));
    const before = contents(path);
    expect(await poll(mirror, [record])).toMatchObject({ confirmed: 1 });
    expect(contents(path)).toEqual(before);
  });

  it('keeps a new spelling of its own without an event', async () => {
    const { mirror } = openTestMirror();
    await poll(mirror, orders(1));
    await poll(mirror, [{ ...sampleNotification(1), extra: 'new' }]);
    expect(mirror.orders.payload('65a100000000000000000001')).toContain('"extra":"new"');
    expect(mirror.orders.newestSeq()).toBe(1);
  });

  it('keeps records exactly, ids too large for numbers included', async () => {
    const { mirror } = openTestMirror();
    const record = '{ "id" : 12345678901234567890, "status":"ready", "total" : 1.50 , "items":[]}';
    await importJson(mirror, `{"orders":[${record},{"id":12345678901234567891,"status":"ready"}]}`);
    expect(mirror.orders.payload('12345678901234567890')).toBe(record);
    expect(mirror.orders.list({ limit: 9 })).toHaveLength(2);
    expect(await importJson(mirror, `{"orders":[${record}]}`)).toMatchObject({ confirmed: 1 });
  });

  it('quarantines a record that is not UTF-8 with its bytes, and leaves the order as it was', async () => {
    const { mirror } = openTestMirror();
    await poll(mirror, [sampleNotification(1)]);
    const [head, tail] = JSON.stringify(sampleNotification(1, { name: 'Nu|ez' })).split('|') as [
      string,
      string,
    ];
    const record = Buffer.concat([Buffer.from(head), Buffer.of(0xf1), Buffer.from(tail)]);
    const body = Buffer.concat([Buffer.from('['), record, Buffer.from(']')]);
    const report = await mirror.importAnswer(body, {
      observedAtMs: 0,
      asOfSeq: mirror.orders.newestSeq(),
      asOfHeldId: 0,
    });
    expect(report).toMatchObject({ unreadable: 1, changed: 0 });
    expect(mirror.quarantine.get(mirror.quarantine.list(1)[0]?.quarantineId ?? 0)?.payload).toEqual(record);
    expect(mirror.orders.list({ limit: 9 })).toMatchObject([{ name: sampleNotification(1).name }]);
  });

  it('takes the first of two records of one order', async () => {
    const { mirror } = openTestMirror();
    const twice = [sampleNotification(1), sampleNotification(1, { status: 'ready' })];
    expect(await poll(mirror, twice)).toMatchObject({ created: 1, repeated: 1, superseded: 0 });
    expect(await poll(mirror, twice)).toMatchObject({ confirmed: 1, repeated: 1, changed: 0 });
    expect(mirror.orders.newestSeq()).toBe(1);
  });

  it('quarantines single records nobody can read and mirrors the others', async () => {
    const { mirror } = openTestMirror();
    const report = await poll(mirror, [
      sampleNotification(1),
      { status: 'lost' },
      null,
      sampleNotification(2),
    ]);
    expect(report).toMatchObject({ created: 2, unreadable: 2, records: 4 });
    expect(
      mirror.quarantine.list(9).map(({ quarantineId }) => mirror.quarantine.get(quarantineId)?.payload),
    ).toEqual(['null', '{"status":"lost"}']);
  });

  it('finds ids behind another id of the same name without reading records again', async () => {
    const { mirror, path } = openTestMirror();
    const records = [1, 2, 3].map((n) => ({
      user: { _id: `user-${n}` },
      _id: `order-${n}`,
      status: 'ready',
      code: n,
    }));
    await poll(mirror, records);
    const before = contents(path);
    expect(await poll(mirror, records)).toMatchObject({ confirmed: 3, codes: { min: 1, max: 3 } });
    expect(contents(path)).toEqual(before);
  });

  it('reads every record again when the spellings changed', async () => {
    const first = openTestMirror();
    const records = orders(2).map((order) => ({ ...order, mood: 'happy' }));
    await poll(first.mirror, records);
    await first.mirror.close();
    const { mirror } = openTestMirror({ path: first.path, spellings: { name: ['mood'] } });
    expect(await poll(mirror, records)).toMatchObject({ changed: 2 });
    expect(mirror.orders.list({ limit: 1 })[0]?.name).toBe('happy');
  });

  it('is told of further pages', async () => {
    const { mirror } = openTestMirror();
    const report = await importJson(mirror, { data: { docs: orders(2), hasNextPage: true } });
    expect(report).toMatchObject({ listFound: true, morePages: true });
  });
});

// The import's thread and the test share two cores with all other tests.
describe('callbacks during a large import', { timeout: limitMs(60_000) }, () => {
  it('are kept between its transactions, and its older word does not undo them', async () => {
    const { mirror } = openTestMirror();
    const run = poll(mirror, orders(MANY), 0);
    let kept = 0;
    let importing = true;
    void run.finally(() => {
      importing = false;
    });
    let keptAmid = 0;
    // Only callbacks after the first write of the worker thread count.
    while (importing && keptAmid < 20) {
      if (mirror.orders.newestSeq() > kept) keptAmid += 1;
      const changed = sampleNotification(MANY - kept, { status: 'ready' });
      await receive(mirror, changed);
      kept += 1;
      await setImmediate();
    }
    const report = await run;
    const changes = mirror.orders
      .eventsAfter(0, 2 * MANY)
      .map(({ seq, status }) => ({ seq, isKept: status === 'ready' }));
    const [first, last] = [
      changes.find(({ isKept }) => !isKept)?.seq,
      changes.findLast(({ isKept }) => !isKept)?.seq,
    ];
    // How many callbacks are stored during the import depends on the machine, but a single one proves that callbacks do
    // not wait for the end of the import.
    expect(changes.some(({ seq, isKept }) => isKept && seq > Number(first) && seq < Number(last))).toBe(true);
    expect(report.created + report.superseded + report.changed + report.confirmed).toBe(MANY);
    for (let i = 0; i < kept; i++) {
      const id = `65a1${String(MANY - i).padStart(20, '0')}`;
      expect(mirror.orders.get(id)?.status).toBe('ready');
    }
  });

  it('may bring an order after it was looked for and before it is written', async () => {
    const { mirror, path, clock } = openTestMirror();
    const files = () =>
      readdirSync('/proc/self/fd').filter((fd) => {
        try {
          return readlinkSync(`/proc/self/fd/${fd}`) === path;
        } catch {
          return false;
        }
      }).length;
    const other = new Database(path);
    other.exec('BEGIN IMMEDIATE');
    const before = files();
    const run = poll(mirror, orders(MANY), 0);
    // Waits until the worker thread has opened the file, then until it waits for the lock.
    while (files() === before) await sleep(5);
    await sleep(40);
    const numbers = Array.from({ length: 16 }, (_, i) => i + 1);
    const kept = receive(mirror, ...numbers.map((n) => sampleNotification(n, { status: 'ready' })));
    await setImmediate();
    other.exec('COMMIT');
    other.close();
    let isKept = false;
    void kept.then(() => {
      isKept = true;
    });
    while (!isKept) await clock.advance(10);
    expect((await run).records).toBe(MANY);
    expect(mirror.orders.list({ limit: MANY + 1 })).toHaveLength(MANY);
    expect(mirror.orders.get('65a100000000000000000003')?.status).toBe('ready');
  });

  it('end with it when the mirror is closed', async () => {
    const { mirror } = openTestMirror();
    const run = poll(mirror, orders(MANY));
    const settled = expect(run).rejects.toMatchObject({ code: 'aborted' });
    await receive(mirror, sampleNotification(1));
    let isOver = false;
    void run.catch(() => {
      isOver = true;
    });
    await mirror.close();
    expect(isOver).toBe(true);
    await settled;
    await expect(receive(mirror, sampleNotification(2))).rejects.toMatchObject({ code: 'aborted' });
  });
});

function contents(path: string): unknown[] {
  return [path, `${path}-wal`].map((file) => [
    readFileSync(file).toString('base64').length,
    statSync(file).mtimeMs,
  ]);
}

it('may be cut where the list of one day, status or page has a round number of orders', async () => {
  const { mirror } = openTestMirror();
  const all = orders(60);
  const cut = async (answer: unknown) => (await importJson(mirror, answer)).mayBeCut;
  const first = (...counts: number[]) => counts.map((count) => all.slice(0, count));
  for (const list of first(25, 15, 16, 50)) {
    expect(await cut({ data: list })).toBe(true);
  }
  for (const list of first(0, 5, 24, 33)) {
    expect(await cut({ data: list })).toBe(false);
  }
  const [days, limited] = [first(12, 13), first(12, 25)];
  expect(await cut({ data: { '2026-11-27': days[0], '2026-11-28': days[1] } })).toBe(false);
  expect(await cut({ data: { '2026-11-27': limited[0], '2026-11-28': limited[1] } })).toBe(true);
  expect(await cut(days.map((docs) => ({ docs })))).toBe(false);
  expect(await cut(limited.map((docs) => ({ docs })))).toBe(true);
  const byId = (list: Record<string, unknown>[] = []) =>
    Object.fromEntries(list.map((each) => [String(each.internalOrderId), each]));
  expect(await cut({ orders: byId(all.slice(0, 25)) })).toBe(true);
  expect(await cut({ data: { a: byId(days[0]), b: byId(days[1]) } })).toBe(false);
});
