import type { TransportAnswer } from '../../../src/platform/transport.ts';
import { saidOf } from './answer-model.ts';
import type { Dice } from './dice.ts';
import { itemsOf, type Liar } from './lying-transport.ts';
import { mutateBytes } from './mutate-bytes.ts';
import { hostileValue, type JsonNode, mutateJson, nodeOf, write } from './mutate-json.ts';

type Json = Record<string, unknown>;
const absent = { text: '' };

/**
 * Returns a liar that answers the calls of the product endpoints with damaged or invented answers, or with answers
 * about other items.
 */
export function liarOf(dice: Dice, products: () => readonly unknown[]): Liar {
  return async (request, forward) => {
    const items = itemsOf(request);
    if (items === undefined) return spoiledProduct(dice, products(), forward);
    const isSingle = !/\/batch$/.test(request.path);
    if (isSingle || dice.chance(0.5)) {
      const honest = await forward();
      return dice.chance(0.1) ? honest : spoiled(honest, dice);
    }
    const token = request.headers.authorization ?? '';
    const answer = jsonAnswer(madeUp(items, token, dice), dice, token);
    const said = saidOf({
      endpoint: request.endpoint,
      query: new URLSearchParams(),
      items,
      isSingle,
      reached: false,
      status: answer.status,
      text: Buffer.from(answer.bytes).toString(),
    });
    // If the made-up answer clearly says "applied", the call is sent to the platform too; otherwise only half the time.
    if (said.includes('applied') || dice.chance(0.5)) await forward();
    return answer;
  };
}

function spoiled(answer: TransportAnswer, dice: Dice): TransportAnswer {
  const bytes = Buffer.from(answer.bytes);
  if (dice.chance(0.15)) return { ...answer, status: dice.pick([204, 301, 400, 404, 422, 500, 503]) };
  if (dice.chance(0.1)) return { ...answer, bytes: Buffer.from('<html>Sign in</html>') };
  if (dice.chance(0.1)) return { ...answer, bytes: bytes.subarray(0, dice.below(bytes.length)) };
  if (dice.chance(0.35)) return { ...answer, bytes: mutateBytes(bytes, dice) };
  return {
    ...answer,
    bytes: Buffer.from(write(mutateJson(nodeOf(JSON.parse(bytes.toString())), dice))),
  };
}

async function spoiledProduct(
  dice: Dice,
  products: readonly unknown[],
  forward: () => Promise<TransportAnswer>,
): Promise<TransportAnswer> {
  const honest = await forward();
  if (dice.chance(0.2)) return honest;
  if (dice.chance(0.15)) return { ...honest, status: dice.pick([400, 404, 422]) };
  if (dice.chance(0.15)) return jsonAnswer(nodeOf({ success: true, message: '', data: null }), dice);
  if (dice.chance(0.3)) {
    const data = dice.pick([dice.pick(products), products, [dice.pick(products)], {}, 'none']);
    return jsonAnswer(nodeOf({ success: true, message: '', data }), dice);
  }
  return spoiled(honest, dice);
}

/** Returns a made-up answer to a batch, any part of which may be false. */
function madeUp(items: readonly Json[], token: string, dice: Dice): JsonNode {
  const blamed = new Set<number>();
  const many = dice.chance(0.03) ? dice.pick([1_500, 3_000]) : dice.below(5);
  const errors = Array.from({ length: dice.chance(0.3) ? 0 : many }, () => {
    const at = dice.below(items.length);
    blamed.add(at);
    return errorOf(items, at, token, dice);
  });
  if (errors.length > 0 && dice.chance(0.2)) errors.push(errors[0] as JsonNode);
  const [n, left] = [items.length, items.length - blamed.size];
  const counted = (honest: number) =>
    dice.chance(0.7)
      ? nodeOf(honest)
      : dice.pick([
          ...[0, -1, n + 1, n - 1, n + 0.5, `${n}`, ` ${left} `, null, true, [], { n }].map(nodeOf),
          ...[{ text: '1e999' }, { text: '18446744073709551617' }, absent],
        ]);
  const list = dice.chance(0.85)
    ? { items: errors }
    : dice.pick([absent, nodeOf(null), nodeOf({}), nodeOf('none'), nodeOf({ 0: 'x', length: 1 })]);
  const success = dice.chance(0.7)
    ? nodeOf(true)
    : dice.pick([...[false, 'false', 0, '0', null, 'yes', 'true', 1].map(nodeOf), absent]);
  const message = nodeOf(dice.chance(0.2) ? `Denied for ${token}` : '');
  const data = node({ updated: counted(left), total: counted(n), errors: list });
  const envelope = node({ success, message, data: dice.chance(0.95) ? data : hostileValue(dice) });
  return dice.chance(0.2) ? mutateJson(envelope, dice) : envelope;
}

/** Returns an entry of `errors` for item `at`, whose index and ids may be missing, wrong or those of another item. */
function errorOf(items: readonly Json[], at: number, token: string, dice: Dice): JsonNode {
  if (dice.chance(0.05)) return hostileValue(dice);
  const other = items[dice.below(items.length)] ?? {};
  const own = items[at] ?? {};
  const id = (name: string) => {
    if (dice.chance(0.7)) return own[name] === undefined ? nodeOf(null) : nodeOf(own[name]);
    return dice.pick([nodeOf(other[name] ?? null), nodeOf('NOBODY'), nodeOf(424_242), absent, nodeOf('')]);
  };
  const index = dice.chance(0.7)
    ? nodeOf(at)
    : dice.pick([
        ...[at + 1, -1, items.length, at + 0.5, `${at}`, null, 2 ** 53].map(nodeOf),
        absent,
        hostileValue(dice),
      ]);
  const message = dice.chance(0.5)
    ? nodeOf('Product not found')
    : dice.pick([
        nodeOf(`The header was ${token}, and the token ${token.replace('Bearer ', '')}.`),
        nodeOf('\u001b[2J\u001b[31mred\u0007\r\nnext'),
        nodeOf('x'.repeat(100_000)),
        nodeOf([{ code: 1 }]),
        absent,
        hostileValue(dice),
      ]);
  return node({ index, sku: id('sku'), externalId: id('externalId'), message });
}

function node(fields: Record<string, JsonNode>): JsonNode {
  return { entries: Object.entries(fields).filter(([, value]) => value !== absent) };
}

function jsonAnswer(body: JsonNode, dice: Dice, token = ''): TransportAnswer {
  return {
    status: dice.pick([200, 200, 200, 201, 207]),
    headers: { 'content-type': dice.chance(0.9) ? 'application/json' : token },
    bytes: Buffer.from(write(body)),
  };
}
