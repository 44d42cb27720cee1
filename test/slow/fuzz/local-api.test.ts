import path from 'node:path';
import Database from 'better-sqlite3';
import { Agent, request } from 'undici';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { openFaultPlace, rowsOf } from '../../faults/support/fault-place.ts';
import { limitMs } from '../../support/shared-config.ts';
import { type DaemonProcess, until, type Workplace } from '../../support/workplace.ts';
import { Dice, rounds, SEED } from './dice.ts';
import { mutateBytes } from './mutate-bytes.ts';
import { hostileValue, type JsonNode, mutateJson, nodeOf, write } from './mutate-json.ts';
import { sendRaw } from './raw-http.ts';

const KEY = 'local-key-that-nobody-may-see';
const REFUSALS = [400, 401, 403, 404, 405, 408, 413, 414, 415, 417, 429, 431, 501, 505];

let place: Workplace;
let daemon: DaemonProcess;
let agent: Agent;
/** The externalIds of products at the platform, each in a branch that has a stock of the product. */
let known: string[];

beforeAll(async () => {
  place = await openFaultPlace();
  place.env.TILLSYNC_LOCAL_API_KEY = KEY;
  daemon = await place.run();
  agent = new Agent();
  known = place.sandbox.control
    .products()
    .flatMap(({ children }) =>
      children.flatMap(({ stocks, integrations }) =>
        integrations.flatMap(({ subsidiaryId, productIdPosA }) =>
          productIdPosA !== null && stocks.some((stock) => stock.subsidiaryId === subsidiaryId)
            ? [productIdPosA]
            : [],
        ),
      ),
    );
  place.sandbox.control.createOrder();
  await until('the catalogue is swept', () => rowsOf(place, 'SELECT 1 FROM _sweeps').length === 2);
});
afterAll(async () => {
  await agent?.destroy();
  await place?.close();
});

const STRANGE = ['authorization', 'host', 'origin'];

async function call(
  method: 'GET' | 'POST',
  url: string,
  options: { body?: Buffer; headers?: Record<string, string> } = {},
) {
  const { body, headers = {} } = options;
  const answer = await request(daemon.localUrl + url, {
    method,
    dispatcher: agent,
    headers: {
      ...(body && { 'content-type': 'application/json' }),
      // Every request needs the API key. It is left out of those with a made-up origin, host or authorization.
      ...(STRANGE.every((name) => headers[name] === undefined) && { 'x-api-key': KEY }),
      ...headers,
    },
    ...(body && { body }),
  });
  return { status: answer.statusCode, text: await answer.body.text() };
}

async function alive(where: string): Promise<void> {
  const startMs = performance.now();
  expect((await call('GET', '/healthz')).status, where).toBe(200);
  expect(performance.now() - startMs, where).toBeLessThan(limitMs(2_000));
  expect(daemon.child.exitCode, where).toBeNull();
}

interface Result {
  index: number;
  state: string;
  changeId?: number;
  code?: string;
  message?: string;
}

/** Whether the documentation of POST /v1/stock allows this item. The digits of numbers are left to `isInexact`. */
function isStockItem(value: unknown): value is { externalId?: string; qty: number } {
  if (typeof value !== 'object' || value === null || Array.isArray(value)) return false;
  const item = value as Record<string, unknown>;
  const names = ['externalId', 'sku', 'qty', 'show', 'subsidiaryId', 'subsidiaryExternalId'];
  if (Object.keys(item).some((name) => !names.includes(name))) return false;
  const isId = (id: unknown) =>
    typeof id === 'string' &&
    /\S/.test(id) &&
    id.length <= 200 &&
    id.isWellFormed() &&
    !/[\0\uFFFD]/.test(id);
  const isSound = (name: string, test: (one: unknown) => boolean) =>
    !Object.hasOwn(item, name) || test(item[name]);
  return (
    (Object.hasOwn(item, 'externalId') || Object.hasOwn(item, 'sku')) &&
    ['externalId', 'subsidiaryId', 'subsidiaryExternalId'].every((name) => isSound(name, isId)) &&
    isSound('show', (show) => typeof show === 'boolean') &&
    typeof item.qty === 'number' &&
    item.qty >= 0 &&
    item.qty <= Number.MAX_SAFE_INTEGER
  );
}

/**
 * Whether the JSON text has a number with more digits than JavaScript can hold. Such an item is refused, unless a later
 * entry of the same name replaces the number.
 */
const isInexact = (text: string) =>
  /9007199254740993|123456789012345678|1e-400|1000000000000000055511151231257827/.test(text);

it(`every good item is taken beside bad ones (TILLSYNC_SEED=${SEED})`, async () => {
  const dice = new Dice(SEED);
  for (let n = 0; n < rounds(150); n++) {
    // A request counts each article once.
    const left = [...known];
    const nodes = Array.from({ length: 1 + dice.below(20) }, (): JsonNode => {
      const [externalId = ''] = left.splice(dice.below(left.length), 1);
      const item = nodeOf({ externalId, qty: 1 + dice.below(500) });
      if (dice.chance(0.6)) return item;
      return dice.chance(0.2) ? hostileValue(dice) : mutateJson(item, dice);
    });
    const texts = nodes.map(write);
    const body = Buffer.from(`[${texts.join(',')}]`);
    const { status, text } = await call('POST', '/v1/stock', { body });
    const where = `round ${n}: ${body.subarray(0, 2_000)}\n→ ${status} ${text.slice(0, 1_000)}`;
    expect([200, 207], where).toContain(status);
    const { results } = JSON.parse(text) as { results: Result[] };
    expect(
      results.map(({ index }) => index),
      where,
    ).toEqual(texts.map((_, i) => i));
    /** For each change id, the last value that the request contains. */
    const wanted = new Map<number, number>();
    texts.forEach((json, i) => {
      const result = results[i] as Result;
      const value: unknown = JSON.parse(json);
      const isGood = isStockItem(value);
      if (isInexact(json)) {
        // If the item is accepted after all, the last value of its change is not known here.
        if (result.changeId !== undefined) wanted.delete(result.changeId);
        return;
      }
      // An invalid item gets an error code. An item for an unknown product gets a change, which is rejected.
      expect(result.code === undefined, `${where}\nitem ${i}: ${json.slice(0, 300)}`).toBe(isGood);
      if (isGood && result.changeId !== undefined) wanted.set(result.changeId, value.qty + 0);
      if (isGood && known.includes(value.externalId ?? '') && Object.keys(value).length === 2) {
        expect(result.state, `${where}\nitem ${i}`).not.toBe('rejected');
      }
    });
    const kept = new Map(
      rowsOf<{ id: number; qty: number }>(
        place,
        "SELECT change_id AS id, json_extract(body, '$.qty') AS qty FROM outbox",
      ).map(({ id, qty }) => [id, qty]),
    );
    for (const [changeId, qty] of wanted)
      expect(kept.get(changeId), `${where}\nchange ${changeId}`).toBe(qty);
    if (n % 10 === 0) await alive(where);
  }
});

it(`every route answers whatever it is asked with JSON and no secret (TILLSYNC_SEED=${SEED})`, async () => {
  const dice = new Dice(SEED + 1);
  const { paths } = JSON.parse((await call('GET', '/v1/openapi.json')).text) as {
    paths: Record<string, object>;
  };
  const values = [
    '',
    '-1',
    '0',
    '1e999',
    '9'.repeat(30),
    'NaN',
    '%00',
    '%ff',
    '..%2f..%2fetc',
    '__proto__',
    "'--",
    'x'.repeat(9_000),
    '%E2%98%95',
  ];
  const names = [
    'after',
    'limit',
    'before',
    'state',
    'kind',
    'sku',
    'externalId',
    '__proto__',
    'constructor',
    'toString',
  ];
  // A stream does not end, so it has its own test below.
  const ended = Object.entries(paths).filter(([at]) => !at.endsWith('/stream'));
  const operations = ended.flatMap(([at, methods]) =>
    Object.keys(methods).map((method) => [at, method] as const),
  );
  expect(operations.length).toBeGreaterThan(10);
  for (let n = 0; n < rounds(500); n++) {
    const [at, method] = dice.pick(operations);
    const filled = at.replaceAll(/\{\w+\}/g, () => dice.pick(values));
    const url =
      (filled.startsWith('/v1') ? filled : `/v1${filled}`) +
      (dice.chance(0.6) ? `?${dice.pick(names)}=${dice.pick(values)}` : '');
    const headers = dice.pick<Record<string, string>>([
      {},
      { 'x-api-key': dice.pick(values.slice(1, 6)) },
      { authorization: `Bearer ${dice.pick(values.slice(1, 6))}` },
      { origin: 'http://evil.example' },
      { host: 'evil.example' },
      { 'content-type': 'text/plain' },
      { accept: 'application/xml' },
    ]);
    const node = mutateJson(nodeOf([{ externalId: 'X', orderId: 'o', guard: null }]), dice);
    const body = method === 'post' ? mutateBytes(Buffer.from(write(node)), dice) : undefined;
    const where = `round ${n}: ${method} ${url.slice(0, 300)} ${JSON.stringify(headers)}`;
    const { status, text } = await call(method === 'post' ? 'POST' : 'GET', url, {
      headers,
      ...(body && { body }),
    });
    expect([200, 207, ...REFUSALS], `${where} → ${status} ${text.slice(0, 300)}`).toContain(status);
    expect(text, where).not.toContain(KEY);
    if (status < 300 || !text.startsWith('{')) expect(() => JSON.parse(text || '{}'), where).not.toThrow();
    // Strangers are refused, with 400 if the address itself is invalid.
    const isStranger = [headers.host, headers.origin, headers['x-api-key'], headers.authorization].some(
      Boolean,
    );
    if (isStranger) expect(status, where).toBeGreaterThanOrEqual(400);
    if (n % 50 === 0) await alive(where);
  }
  expect(daemon.log()).not.toContain(KEY);
});

it(`a stream resumes from any Last-Event-ID or refuses it (TILLSYNC_SEED=${SEED})`, async () => {
  const port = Number(new URL(daemon.localUrl).port);
  for (const id of [
    '0',
    '-1',
    '1e3',
    '9'.repeat(15),
    '9'.repeat(400),
    'x\0',
    '__proto__',
    '',
    '\u00ff',
    '1, 2',
  ]) {
    const head = `GET /v1/orders HTTP/1.1\r\nHost: 127.0.0.1\r\nAccept: text/event-stream\r\nx-api-key: ${KEY}\r\nLast-Event-ID: ${id}\r\n\r\n`;
    const { statuses, text } = await sendRaw(port, head, { answers: 1, waitMs: 20_000 });
    expect([200, 400], `${id}: ${text.slice(0, 300)}`).toContain(statuses[0]);
  }
  await until('the streams are gone', async () => (await call('GET', '/v1/status')).status === 200);
  await alive('after the streams');
});

it(`rows of the inbox are each taken once, as they were put in, or rejected by name (TILLSYNC_SEED=${SEED})`, async () => {
  const dice = new Dice(SEED + 2);
  const pos = new Database(path.join(place.storage, 'inbox/inbox.db'), { timeout: 5_000 });
  const ids = [
    "'A'",
    "' '",
    '9007199254740993',
    '-5',
    "x'ff'",
    "CAST(x'ff' AS TEXT)",
    "'a' || char(0)",
    "'☕'",
    "'9e3'",
    '1.5',
    'NULL',
  ];
  const keys = ["x'ff'", "CAST(x'fe' AS TEXT)", "'k'", 'NULL', "''", '12', '1.5'];
  const numbers = ['1', "'2'", '-1', '1e999', "'x'", '9007199254740993', "x'31'", 'NULL', '2.5'];
  let inserted = 0;
  const before =
    rowsOf<{ n: number }>(place, "SELECT count(*) AS n FROM _outbox WHERE source = 'inbox'")[0]?.n ?? 0;
  for (let n = 0; n < rounds(300); n++) {
    const reference = `'fuzz-${n}'`;
    // About half of the changes have their own product, so that no later value replaces them.
    const id = dice.chance(0.5) ? `'fuzz-${n}'` : dice.pick(ids);
    const key = `${dice.pick(keys)} || ${dice.chance(0.5) ? n : "''"}`;
    try {
      pos.exec(
        `INSERT INTO stock_changes (external_id, qty, show, reference, change_key) VALUES (${id}, ${dice.pick(numbers)}, ${dice.pick(['0', '1', 'NULL', '7'])}, ${reference}, ${key})`,
      );
      inserted += 1;
    } catch (error) {
      expect(String(error), `round ${n}`).toMatch(/constraint failed/);
    }
  }
  expect(inserted).toBeGreaterThan(10);
  await until(
    'the inbox is empty',
    () => pos.prepare('SELECT count(*) FROM stock_changes').pluck().get() === 0,
  );
  pos.close();
  const rows = rowsOf<{ reference: string; body: string }>(
    place,
    "SELECT reference, body FROM _outbox WHERE source = 'inbox'",
  );
  expect(rows.length - before).toBeGreaterThan(0);
  // A replaced value has no row of its own; the row of the newest value of the target counts it in `replaced`.
  const [replaced] = rowsOf<{ n: number }>(
    place,
    "SELECT coalesce(sum(replaced), 0) AS n FROM _outbox WHERE source = 'inbox'",
  );
  expect(rows.length - before + (replaced?.n ?? 0)).toBe(inserted);
  for (const { body } of rows) expect(JSON.stringify(body)).not.toContain('9007199254740992');
  await alive('after the inbox');
});
