/** Tests src/orders/merging/customer.ts and src/orders/merging/anonymize.ts. */

import { existsSync, readFileSync } from 'node:fs';
import { setImmediate } from 'node:timers/promises';
import type Database from 'better-sqlite3';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { sqlOf, usedBytes } from '../../src/db/sqlite.ts';
import { WAL_BYTES_MAX } from '../../src/db/wal.ts';
import { payloadWithoutCustomer } from '../../src/orders/merging/customer.ts';
import { compileSpellings } from '../../src/orders/merging/field-aliases.ts';
import type { OrderReading } from '../../src/orders/merging/order.ts';
import { readOrderText } from '../../src/orders/merging/order-reader.ts';
import type { Mirror } from '../../src/orders/reading/mirror.ts';
import { replayEvents } from '../../src/orders/receiving/replay.ts';
import { runsOf } from '../support/seed.ts';
import {
  observation,
  openTestMirror,
  poll,
  readerProcess,
  receive,
  sampleNotification,
} from './open-test-mirror.ts';
import { at, DAY_MS, run } from './retention-rig.ts';

const spellings = compileSpellings();

/** Returns the personal values of an order. Each value is unique, so that it can be searched for. */
function personOf(number: number) {
  const tag = `Zq${String(number).padStart(4, '0')}`;
  return {
    first: `Ana${tag}`,
    last: `Núñez${tag}`,
    email: `${tag.toLowerCase()}@example.com`,
    phone: `+5699${String(number).padStart(7, '0')}`,
    street: `Calle ${tag} 742`,
    door: `depto ${tag}`,
    comment: `sin cebolla, soy ${tag}`,
    note: `llamar a la tía de ${tag}`,
    rut: 12_000_000 + number,
  };
}

function orderOf(number: number, status: string, more: Record<string, unknown> = {}) {
  const person = personOf(number);
  const sample = sampleNotification(number, { status });
  const items = (sample.items as Record<string, unknown>[]).map((item) => ({
    ...item,
    comment: person.comment,
  }));
  return {
    ...sample,
    name: `#${number} - ${person.first} ${person.last} - delivery - Web`,
    address: {
      ...(sample.address as object),
      address: person.street,
      phoneNumber: person.phone,
      details: person.door,
    },
    user: { firstName: person.first, lastName: person.last, email: person.email, phoneNumber: person.phone },
    items,
    generalNote: person.note,
    extra: { rut: person.rut, tip: 500, remarks: [person.note, { by: person.first }] },
    ...more,
  };
}

/** Returns the personal values of these orders that are still in the bytes of mirror.db, its log or state.db. */
function foundIn(path: string, numbers: readonly number[]): string[] {
  const bytes = Buffer.concat(
    [path, `${path}-wal`, `${path.replace(/mirror\.db$/, 'state.db')}`].map((file) =>
      existsSync(file) ? readFileSync(file) : Buffer.alloc(0),
    ),
  );
  return numbers.flatMap((number) =>
    Object.values(personOf(number))
      .map(String)
      .filter((value) => bytes.includes(value)),
  );
}

const idOf = (number: number) => String(sampleNotification(number).internalOrderId);
const columns = (mirror: Mirror, number: number) =>
  mirror.read((db) =>
    sqlOf(db).row<Record<string, unknown>>('SELECT * FROM orders WHERE order_id = ?', idOf(number)),
  );

describe('a customer who is forgotten', () => {
  it('leaves rows, payloads, pages and the log; the order itself stays', async () => {
    const { mirror, path } = openTestMirror();
    await receive(
      mirror,
      orderOf(1, 'pending'),
      orderOf(1, 'ready'),
      orderOf(2, 'ready'),
      orderOf(1, 'dispatched'),
    );
    // The first webhook would take the order backwards, so it is held. The second has known content in another form,
    // so its payload is stored too.
    await receive(mirror, orderOf(1, 'inProcess'), { ...orderOf(1, 'dispatched'), spare: personOf(1).note });
    expect(foundIn(path, [1]).length).toBeGreaterThan(5);
    const before = mirror.orders.get(idOf(1));
    expect(await mirror.customers.forgetAll([idOf(1)])).toBe(1);
    expect(await mirror.customers.clean()).toBe(true);

    expect(foundIn(path, [1])).toEqual([]);
    expect(foundIn(path, [2]).length).toBeGreaterThan(5);
    const after = mirror.orders.get(idOf(1));
    expect(after).toMatchObject({
      code: 1,
      status: 'dispatched',
      amountToPay: 15990,
      seq: before?.seq,
      storeExternalId: 'B1',
      name: null,
      customerFirstName: null,
      customerEmail: null,
      addressAddress: null,
      addressLat: null,
    });
    expect(
      after?.items.map(({ productExternalId, quantity, comment }) => [productExternalId, quantity, comment]),
    ).toEqual(before?.items.map(({ productExternalId, quantity }) => [productExternalId, quantity, null]));
    expect(JSON.parse(mirror.orders.payload(idOf(1)) ?? '')).toMatchObject({
      internalOrderId: idOf(1),
      code: 1,
      status: 'dispatched',
      store: { externalId: 'B1' },
      user: { firstName: null, email: null },
      generalNote: null,
      extra: { rut: null, tip: 500, remarks: [null, { by: null }] },
    });
    expect(mirror.orders.eventsAfter(0, 100).filter(({ orderId }) => orderId === idOf(1))).toHaveLength(3);
    // Removing a customer for the second time changes nothing.
    expect(await mirror.customers.forgetAll([idOf(1), 'unknown'])).toBe(0);
  });

  it('does not come back with a poll, a callback or what was received being read again', async () => {
    const { mirror, path, clock } = openTestMirror();
    await receive(mirror, orderOf(1, 'dispatched'));
    await mirror.customers.forgetAll([idOf(1)]);
    const seq = mirror.orders.newestSeq();
    await poll(mirror, [orderOf(1, 'dispatched')]);
    await receive(mirror, orderOf(1, 'dispatched'), orderOf(1, 'ready'));
    await mirror.save([
      { kind: 'order', observation: observation('poll', orderOf(1, 'dispatched', { more: 'Ana again' })) },
    ]);
    expect(mirror.orders.newestSeq()).toBe(seq);
    const replayed = await replayEvents({
      mirror,
      clock,
      spellings,
      listPath: '',
      filter: {},
      quarantinedOnly: false,
      dryRun: false,
      signal: new AbortController().signal,
    });
    expect(replayed).toMatchObject({ orders: 1, changed: 0, created: 0 });
    // New values of the order itself are still applied.
    await poll(mirror, [orderOf(1, 'refund', { amountToPay: 100 })]);
    expect(mirror.orders.get(idOf(1))).toMatchObject({
      status: 'refund',
      amountToPay: 100,
      customerEmail: null,
    });
    await mirror.customers.clean();
    expect(foundIn(path, [1])).toEqual([]);
  });

  it('comes back with an order that is open again, and is forgotten anew after its next end', async () => {
    const { mirror, path } = openTestMirror();
    await receive(mirror, orderOf(1, 'cancel'));
    await mirror.customers.forgetAll([idOf(1)]);
    await poll(mirror, [orderOf(1, 'inProcess')]);
    expect(mirror.orders.get(idOf(1))).toMatchObject({ customerEmail: personOf(1).email });
    expect(columns(mirror, 1)).toMatchObject({ forgotten_at: null, ended_at: null });
    await receive(mirror, orderOf(1, 'dispatched'));
    expect(await mirror.customers.forgetAll([idOf(1)])).toBe(1);
    await mirror.customers.clean();
    expect(foundIn(path, [1])).toEqual([]);
  });

  it('stays away from an order that was open when it was forgotten', async () => {
    const { mirror } = openTestMirror();
    await receive(mirror, orderOf(1, 'inProcess'));
    await mirror.customers.forgetAll([idOf(1)]);
    await receive(mirror, orderOf(1, 'ready'), orderOf(1, 'dispatched'));
    expect(mirror.orders.get(idOf(1))).toMatchObject({
      status: 'dispatched',
      customerEmail: null,
      addressCity: null,
    });
  });

  it('leaves the quarantine, too, where a person wants it', async () => {
    const { mirror, path } = openTestMirror();
    await receive(mirror, orderOf(1, 'dispatched'));
    const unreadable = (payload: string) =>
      mirror.save([
        { kind: 'unreadable', unreadable: { source: 'webhook', receivedAtMs: 0, reason: 'No id.', payload } },
      ]);
    await unreadable(JSON.stringify({ user: { email: personOf(1).email, name: personOf(1).first } }));
    await unreadable(JSON.stringify({ odd: idOf(1), name: personOf(1).last }));
    await unreadable(JSON.stringify({ user: personOf(2).email }));
    const note = (db: Database.Database) => {
      throw new Error(`the audit cannot be written in ${db.name}`);
    };
    await expect(mirror.customers.forget(idOf(1), note)).rejects.toThrow('cannot be written');
    expect(mirror.quarantine.list(10)).toHaveLength(3);
    expect(await mirror.customers.forget(idOf(1), () => {})).toBe(true);
    expect(await mirror.customers.forget(idOf(1), note)).toBe(false);
    await mirror.customers.clean();
    expect(mirror.quarantine.list(10)).toHaveLength(1);
    expect(foundIn(path, [1])).toEqual([]);
  });

  it('waits for a reader to let go of the log, which holds the mirror once at the most', {
    tags: ['bulk'],
  }, async () => {
    const { mirror, path } = openTestMirror();
    await receive(mirror, orderOf(1, 'dispatched'), orderOf(2, 'dispatched'), orderOf(3, 'dispatched'));
    for (let number = 10; number < 34; number++)
      await receive(mirror, sampleNotification(number, { filling: 'x'.repeat(1_000_000) }));
    const roomBytes = mirror.read(usedBytes) + WAL_BYTES_MAX;
    const reader = await readerProcess(path);
    expect(await mirror.customers.forget(idOf(1), () => {})).toBe(true);
    expect(await mirror.customers.clean()).toBe(false);
    for (let hour = 1; hour <= 3; hour++) {
      expect(await run(mirror, 20 + hour / 24)).toMatchObject({ isComplete: false });
      expect(mirror.walBytes()).toBeLessThan(roomBytes);
    }
    // The rewritten file still has the customer who is removed now, so the file must be rewritten again.
    await mirror.customers.forgetAll([idOf(2)]);
    expect(await mirror.customers.clean()).toBe(false);
    expect(mirror.walBytes()).toBeLessThan(roomBytes);
    await reader.end();
    expect(await run(mirror, 21)).toMatchObject({ isComplete: true });
    expect(foundIn(path, [1, 2])).toEqual([]);
    expect(foundIn(path, [3]).length).toBeGreaterThan(5);
    expect(mirror.walBytes()).toBeLessThan(WAL_BYTES_MAX);
  });

  it('is not written away a second time where only the log still holds pages of before', {
    tags: ['bulk'],
  }, async () => {
    const { mirror, path } = openTestMirror();
    await receive(mirror, orderOf(1, 'dispatched'));
    const reader = await readerProcess(path);
    await mirror.customers.forgetAll([idOf(1)]);
    expect(await mirror.customers.clean()).toBe(false);
    const bytes = mirror.walBytes();
    expect(await mirror.customers.clean()).toBe(false);
    expect(mirror.walBytes()).toBe(bytes);
    await reader.end();
    expect(await mirror.customers.clean()).toBe(true);
    expect(foundIn(path, [1])).toEqual([]);
  });

  it('is gone from the files where a read of another process ends in time', async () => {
    const { mirror, path } = openTestMirror();
    await receive(mirror, orderOf(1, 'dispatched'));
    await mirror.customers.forgetAll([idOf(1)]);
    const reader = await readerProcess(path);
    const bytes = mirror.walBytes();
    const cleaning = mirror.customers.clean();
    // Now the rewritten file is in the log, whose truncation the reader prevents.
    while (mirror.walBytes() === bytes) await setImmediate();
    await reader.end();
    expect(await cleaning).toBe(true);
    expect(foundIn(path, [1])).toEqual([]);
  });

  it('is gone from the files however much is written meanwhile', async () => {
    const { mirror, path } = openTestMirror();
    await receive(mirror, orderOf(1, 'dispatched'));
    await mirror.customers.forgetAll([idOf(1)]);
    let isDone = false;
    const cleaning = mirror.customers.clean().finally(() => {
      isDone = true;
    });
    for (let number = 2; !isDone; number++) {
      await receive(mirror, sampleNotification(number));
      await setImmediate();
    }
    expect(await cleaning).toBe(true);
    expect(foundIn(path, [1])).toEqual([]);
  });
});

describe('retention.personal_data', () => {
  const settings = { personalDataMs: 60 * DAY_MS };
  const keepAt = (mirror: Mirror, day: number, sent: Record<string, unknown>) =>
    mirror.save([{ kind: 'order', observation: observation('poll', sent, { observedAtMs: at(day) }) }]);

  it('forgets customers so long after the end of their orders, and nobody by default', async () => {
    const { mirror, path } = openTestMirror();
    await keepAt(mirror, 0, orderOf(1, 'dispatched'));
    await keepAt(mirror, 0, orderOf(2, 'ready'));
    await keepAt(mirror, 20, orderOf(3, 'cancel'));
    // A change after the end of an order does not delay the removal.
    await keepAt(mirror, 50, orderOf(1, 'refund'));
    expect(await run(mirror, 61)).toMatchObject({ forgotten: 0 });
    expect(await run(mirror, 59, { settings })).toMatchObject({ forgotten: 0 });
    expect(await run(mirror, 61, { settings })).toMatchObject({ forgotten: 1, isComplete: true });
    expect(foundIn(path, [1])).toEqual([]);
    expect(foundIn(path, [2, 3]).length).toBeGreaterThan(10);
    expect(await run(mirror, 81, { settings })).toMatchObject({ forgotten: 1 });
    expect(foundIn(path, [1, 3])).toEqual([]);
    expect(await run(mirror, 400, { settings })).toMatchObject({ forgotten: 0 });
    expect(mirror.orders.get(idOf(2))).toMatchObject({ customerEmail: personOf(2).email });
  });

  it('keeps nothing unread for longer', async () => {
    const { mirror } = openTestMirror();
    const unreadable = { source: 'webhook', receivedAtMs: at(0), reason: 'No id.', payload: 'Ana' } as const;
    await mirror.save([{ kind: 'unreadable', unreadable }]);
    await run(mirror, 61);
    expect(mirror.quarantine.list(10)).toHaveLength(1);
    await run(mirror, 61, { settings });
    expect(mirror.quarantine.list(10)).toEqual([]);
  });

  it('leaves no byte of anybody in a file in which thousands of rows were moved', {
    tags: ['bulk'],
  }, async () => {
    const { mirror, path } = openTestMirror();
    const numbers = Array.from({ length: 300 }, (_, i) => i + 1);
    const shuffled = numbers.toSorted((a, b) => ((a * 7919) % 311) - ((b * 7919) % 311));
    for (const [day, status] of ['pending', 'ready', 'dispatched'].entries()) {
      const entries = shuffled.map((number) => {
        const filling = 'x'.repeat(((number * 31 + day * 17) % 23) * 60);
        const sent = orderOf(number, number % 3 === 0 && day === 2 ? 'ready' : status, { filling });
        return { kind: 'order', observation: observation('poll', sent, { observedAtMs: at(day) }) } as const;
      });
      for (let i = 0; i < entries.length; i += 20) await mirror.save(entries.slice(i, i + 20));
    }
    const ended = numbers.filter((number) => number % 3 !== 0);
    expect(await run(mirror, 63, { settings })).toMatchObject({ forgotten: ended.length, isComplete: true });
    expect(foundIn(path, ended)).toEqual([]);
    expect(foundIn(path, [3, 6]).length).toBeGreaterThan(10);
  });
});

describe('a payload without its customer', () => {
  const secret = fc
    .string({ minLength: 6, maxLength: 20, unit: 'grapheme' })
    .map((text) => `~${text}~`)
    .filter((text) => text.isWellFormed());
  const unknown = fc.letrec((tie) => ({
    any: fc.oneof(
      { depthSize: 'small' },
      secret,
      fc.integer({ min: 1_000_000 }),
      fc.boolean(),
      tie('list'),
      tie('part'),
    ),
    list: fc.array(tie('any'), { maxLength: 3 }),
    part: fc.dictionary(
      fc.string({ minLength: 1, maxLength: 8 }).map((name) => `f_${name}`),
      tie('any'),
      { maxKeys: 3 },
    ),
  })).any;

  function texts(value: unknown): (string | number)[] {
    if (typeof value === 'string' || typeof value === 'number') return [value];
    return typeof value === 'object' && value !== null ? Object.values(value).flatMap(texts) : [];
  }

  it('has no text or number left that a person may have written, and reads as the same order', () => {
    fc.assert(
      fc.property(
        fc.record({ user: unknown, customer: unknown, address: unknown, comment: unknown, strange: unknown }),
        fc.record({ note: unknown, by: unknown }),
        fc.boolean(),
        (ofOrder, ofItem, isWrapped) => {
          const sample = orderOf(1, 'ready');
          const items = sample.items.map((item) => ({ ...item, ...ofItem, comment: ofItem.note }));
          const sent = { ...sample, ...ofOrder, items };
          const raw = JSON.stringify(isWrapped ? { order: sent, meta: ofOrder.strange } : sent);
          const blanked = payloadWithoutCustomer(raw, spellings);
          const left = new Set(texts(JSON.parse(blanked)).map(String));
          const personal = [...texts(ofOrder), ...texts(ofItem), ...texts(personOf(1))].map(String);
          expect(personal.filter((value) => left.has(value))).toEqual([]);
          // The structure and all fields that a POS needs are kept.
          expect(payloadWithoutCustomer(blanked, spellings)).toBe(blanked);
          const read = (text: string) => readOrderText(text, spellings) as OrderReading;
          const { fields, items: lines, orderId } = read(blanked);
          const { code, status, amountToPay, createdAt, storeExternalId, deliveryType } = read(raw).fields;
          expect(orderId).toBe(idOf(1));
          expect(fields).toMatchObject({
            code,
            status,
            amountToPay,
            createdAt,
            storeExternalId,
            deliveryType,
          });
          expect(lines).toEqual(read(raw).items?.map((item) => ({ ...item, comment: null })));
        },
      ),
      { numRuns: runsOf(100) },
    );
  });

  it('keeps numbers that JavaScript cannot hold, names from the configuration, and nothing of what is no JSON', () => {
    const long = '{"internalOrderId":12345678901234567890,"status":"ready","user":{"firstName":"Ana"}}';
    expect(readOrderText(payloadWithoutCustomer(long, spellings), spellings)).toMatchObject({
      orderId: '12345678901234567890',
      fields: { status: 'ready' },
    });
    const extra = compileSpellings({ status: ['estado'] });
    const named = payloadWithoutCustomer('{"id":"1","estado":"ready","nombre":"Ana"}', extra);
    expect(JSON.parse(named)).toEqual({ id: '1', estado: 'ready', nombre: null });
    expect(payloadWithoutCustomer('Ana', spellings)).toBe('null');
  });
});
