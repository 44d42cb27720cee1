import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { openServices, type Services } from '../../../src/app/services.ts';
import { TillsyncError } from '../../../src/core/errors.ts';
import { silentLog } from '../../../src/core/log.ts';
import { compareOrders, MIRRORED_ROWS, type MirroredRow } from '../../../src/demo/demo-pos.ts';
import { createHttpTransport } from '../../../src/platform/transport.ts';
import { seededRandom } from '../../support/fake-clock.ts';
import { hastyClock } from '../../support/hasty-clock.ts';
import { openWorkplace, type Workplace } from '../../support/workplace.ts';
import { Dice, rounds, SEED } from './dice.ts';
import { type Garble, GarblingTransport } from './garbling-transport.ts';
import { mutateBytes } from './mutate-bytes.ts';
import { mutateJson, nodeOf, write } from './mutate-json.ts';
import { expectedOrder } from './order-model.ts';

const NO_LIMITS = {
  endpointIntervalMs: 1,
  ordersIntervalMs: 1,
  windowMs: 300_000,
  requestsPerWindow: 1_000_000,
  ordersPerWindow: 1_000_000,
};

let place: Workplace;
let services: Services;
let transport: GarblingTransport;

beforeAll(async () => {
  const clock = hastyClock(50);
  place = await openWorkplace(SEED, { clock, limits: NO_LIMITS, seed: { products: 30, orders: 25 } });
  const { config, refreshToken } = place;
  transport = new GarblingTransport(
    createHttpTransport({ userAgent: 'tillsync/test', baseUrl: config.platform.baseUrl, clock }),
  );
  services = await openServices({
    config: { ...config, platform: { ...config.platform, timeoutMs: 600_000 } },
    secrets: { refreshToken, webhookSecrets: [] },
    clock,
    random: seededRandom(SEED),
    log: silentLog,
    transport,
  });
});
afterAll(async () => {
  await services?.close();
  await place?.close();
});

/** Returns the code of the promise's error, if any. No answer of a platform may cause an internal error. */
async function codeOf(promise: Promise<unknown>, where: string): Promise<string | undefined> {
  try {
    await promise;
    return undefined;
  } catch (error) {
    if (!(error instanceof TillsyncError)) throw new Error(where, { cause: error });
    expect(error.code, `${where}\n${error.stack}\n${String(error.cause)}`).not.toBe('internal');
    return error.code;
  }
}

/** Damages an answer: its status, its bytes or the shape of its JSON, or replaces the body by a web page. */
function garbler(dice: Dice): Garble {
  return (answer) => {
    const bytes = Buffer.from(answer.bytes);
    if (dice.chance(0.1)) return { ...answer, status: dice.pick([204, 301, 400, 404, 500, 503]) };
    if (dice.chance(0.1)) return { ...answer, bytes: Buffer.from('<html>Sign in</html>') };
    if (dice.chance(0.4)) return { ...answer, bytes: mutateBytes(bytes, dice) };
    const mutant = mutateJson(nodeOf(JSON.parse(bytes.toString())), dice);
    return { ...answer, bytes: Buffer.from(write(mutant)) };
  };
}

const sentText = () => Buffer.from(transport.last?.bytes ?? []).toString();

describe(`answers that are spoiled (TILLSYNC_SEED=${SEED})`, () => {
  it('of GET /order/all bring only rows that they say, and take none away', async () => {
    const dice = new Dice(SEED);
    const { control } = place.sandbox;
    await services.orderPoll.poll();
    const ids = () =>
      services.mirror.read((db) => db.prepare<[], string>('SELECT order_id FROM orders').pluck().all());
    for (let n = 0; n < rounds(150); n++) {
      const before = ids();
      transport.spoil('order.all', garbler(dice));
      const code = await codeOf(services.orderPoll.poll(), `round ${n}`);
      const where = `round ${n} (${code}): ${sentText().slice(0, 2_000)}`;
      const after = new Set(ids());
      expect(
        before.filter((id) => !after.has(id)),
        where,
      ).toEqual([]);
      judgeOrders(where);
      // No answer contains this character, so its presence means that invalid bytes were replaced.
      const isPatched = 'SELECT order_id FROM orders WHERE instr(payload, char(0xfffd))';
      expect(
        services.mirror.read((db) => db.prepare(isPatched).all()),
        where,
      ).toEqual([]);
      transport.stop();
      await services.orderPoll.poll();
      expect(wrongOrders(), where).toEqual([]);
      if (dice.chance(0.3)) control.createOrder({}, { hidden: true });
    }
  });

  /** Checks that every row equals the platform's order, or the payload that it was read from. */
  function judgeOrders(where: string): void {
    const wrong = new Set(wrongOrders().map((text) => /\((.+)\)/.exec(text)?.[1] ?? ''));
    const strange = services.mirror
      .read((db) => db.prepare<[], Record<string, unknown>>('SELECT * FROM orders').all())
      .filter(({ order_id }) => wrong.has(String(order_id)));
    for (const row of strange) {
      const payload = String(row.payload);
      expect(Buffer.from(transport.last?.bytes ?? []).includes(payload), where).toBe(true);
      const expected = expectedOrder(payload);
      if (typeof expected === 'string') continue;
      expect(row.order_id, where).toBe(expected.orderId);
      for (const [column, value] of Object.entries(expected.columns)) {
        if (value !== null) expect(row[column] === value, `${where}\n${column}`).toBe(true);
      }
    }
  }

  function wrongOrders(): string[] {
    const rows = services.mirror.read((db) => db.prepare<[], MirroredRow>(MIRRORED_ROWS).all());
    const { differences } = compareOrders(place.sandbox.control.orders(), rows);
    return differences.filter((text) => !text.endsWith('alone'));
  }

  it('of GET /product/list take no product for gone, and are made up for by the next sweep', async () => {
    const dice = new Dice(SEED + 1);
    const [branch] = services.branches;
    if (!branch) throw new Error('There is no branch.');
    await services.catalogSweep.sweep(branch);
    const count = (sql: string) =>
      services.mirror.read((db) => db.prepare<[], number>(sql).pluck().get() ?? 0);
    const skus = () => count('SELECT count(*) FROM skus');
    const vanished = (text: string) => {
      const sql = 'SELECT product_id FROM products WHERE vanished_at IS NOT NULL';
      const gone = services.mirror.read((db) => db.prepare<[], string>(sql).pluck().all());
      // A product known only from a damaged answer may disappear again, and so may one whose SKUs such an answer gave
      // to another product.
      const others = ownersIn(text);
      return place.sandbox.control.products().filter(({ id, children }) => {
        const isGivenAway = children.some(({ sku }) => others.has(sku) && others.get(sku) !== id);
        return gone.includes(id) && !isGivenAway;
      });
    };
    const differences = () =>
      place.sandbox.control.products().flatMap(({ children }) =>
        children.flatMap(({ sku, price, stocks }) => {
          const row = services.mirror.read((db) =>
            db.prepare<[string], { price: unknown }>('SELECT price FROM skus WHERE sku = ?').get(String(sku)),
          );
          const wrong = stocks.filter(({ subsidiaryId, qty }) => {
            const select = 'SELECT qty FROM stocks WHERE sku = ? AND subsidiary_id = ?';
            return (
              services.mirror.read((db) => db.prepare(select).pluck().get(String(sku), subsidiaryId)) !== qty
            );
          });
          return row?.price === price && wrong.length === 0 ? [] : [`${sku}: ${row?.price} for ${price}`];
        }),
      );
    expect(differences()).toEqual([]);
    for (let n = 0; n < rounds(60); n++) {
      const before = skus();
      transport.spoil('product.list', garbler(dice));
      const code = await codeOf(services.catalogSweep.sweep(branch), `round ${n}`);
      const where = `round ${n} (${code}): ${sentText().slice(0, 2_000)}`;
      expect(vanished(sentText()), where).toEqual([]);
      transport.stop();
      await services.catalogSweep.sweep(branch);
      expect(skus(), where).toBeGreaterThanOrEqual(Math.min(before, place.sandbox.control.products().length));
      expect(differences(), where).toEqual([]);
    }
  });

  it('of POST /token/refresh lose no pair that they name, and a person can always hand in another', async () => {
    const dice = new Dice(SEED + 2);
    const { tokens } = services.platform;
    for (let n = 0; n < rounds(80); n++) {
      const before = services.state.tokens.read();
      transport.spoil('token.refresh', garbler(dice));
      const code = await codeOf(tokens.refresh(), `round ${n}`);
      transport.stop();
      const text = sentText();
      const where = `round ${n} (${code}): ${text.slice(0, 2_000)}`;
      const after = services.state.tokens.read();
      const named = pairIn(text);
      if (named !== undefined && transport.last?.status === 200)
        expect(after?.refreshToken, where).toBe(named);
      if (after?.refreshToken !== before?.refreshToken) {
        expect(text, where).toContain(after?.refreshToken);
        expect(after?.refreshToken, where).toMatch(/^[\x21-\x7e]+$/);
      }
      // Whatever tokens are stored now, the next call must not end with an internal error.
      await codeOf(services.orderPoll.poll(), `${where}\nthe call after it`);
      await tokens.set({ refreshToken: place.sandbox.issueTokens().refreshToken });
      await services.orderPoll.poll();
      // Refreshes twice, because the second refresh shows that the pair stored by the first one is valid.
      await tokens.refresh();
      await tokens.refresh();
      expect(tokens.describe().state, where).toBe('ok');
    }
  });
});

/** Maps each SKU in an answer to GET /product/list to its product id; a SKU that occurs twice gets the last one. */
function ownersIn(text: string): Map<unknown, unknown> {
  try {
    const { data } = JSON.parse(text) as { data: { docs: { id: unknown; children: { sku: unknown }[] }[] } };
    return new Map(
      data.docs.flatMap((doc) => doc?.children?.map((child) => [child?.sku, doc.id] as const) ?? []),
    );
  } catch {
    return new Map();
  }
}

/** Returns the refresh token of an answer that is complete and successful. */
function pairIn(text: string): string | undefined {
  try {
    const { success, data } = JSON.parse(text) as { success: unknown; data: Record<string, unknown> };
    const isToken = (value: unknown) => typeof value === 'string' && /^[\w.-]{100,2000}$/.test(value);
    const isWhole = success === true && isToken(data.token) && isToken(data.refreshToken);
    return isWhole ? String(data.refreshToken) : undefined;
  } catch {
    return undefined;
  }
}
