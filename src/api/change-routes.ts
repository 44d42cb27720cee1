import { Readable } from 'node:stream';
import { setImmediate } from 'node:timers/promises';
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import { z } from 'zod';
import { asTillsyncError, TillsyncError } from '../core/errors.ts';
import {
  type Candidate,
  type ChangeKind,
  type ProductChange,
  productItem,
  type StockChange,
  stockItem,
} from '../outbox/change.ts';
import { type FileChange, type FileFormat, readProductFile, readStockFile } from '../outbox/change-file.ts';
import type { ApiFamily, RouteDoc } from './api.ts';
import { errorBody, statusOf } from './server.ts';

export const ITEMS_MAX = 100_000;

const itemsText = `1 to ${ITEMS_MAX} items, each checked by itself. The same as NDJSON or as CSV with a header.`;
export const stockItems = z.array(stockItem).min(1).max(ITEMS_MAX).describe(itemsText);
export const productItems = z.array(productItem).min(1).max(ITEMS_MAX).describe(itemsText);

const candidate = z.object({
  sku: z.string(),
  productId: z.string(),
  subsidiaryId: z.string().nullable(),
  externalId: z.string().nullable(),
  field: z.enum(['extId', 'productIdPosA', 'productCodePosB']).nullable(),
});

export const itemResult = z.object({
  index: z.number().int().describe('Of the item, from 0'),
  line: z.number().int().optional().describe('Where it begins, from 1, in CSV and NDJSON'),
  state: z
    .enum(['pending', 'held', 'rejected'])
    .describe(
      '`pending`: on the disk, will be sent; `held`: on the disk, waits for a person; `rejected`: not taken',
    ),
  changeId: z.number().int().optional().describe('For GET /v1/outbox/{changeId}'),
  code: z.string().optional().describe('Why an item could not be read'),
  column: z.string().optional().describe('The column at fault'),
  message: z.string().optional(),
  candidates: z.array(candidate).optional().describe('What a rejected item may have meant'),
});

export const changesAnswer = z.object({
  results: z.array(itemResult).describe('One for each item, in order'),
  total: z.number().int(),
  pending: z.number().int(),
  held: z.number().int(),
  rejected: z.number().int(),
});

/** The formats a body may come in, by content type. */
export const BODY_FORMATS: Readonly<Record<string, FileFormat>> = {
  'application/json': 'json',
  'application/x-ndjson': 'ndjson',
  'text/csv': 'csv',
};

/** One item of the body: a change, or why it is none. `line` is null in a JSON array. */
export type BodyItem = FileChange<StockChange | ProductChange>;

export interface ReadBodyOptions {
  kind: ChangeKind;
  format: FileFormat;
  limitBytes: number;
}

/** Bytes looked at in one turn of the event loop: about three milliseconds of work. */
const PIECE_BYTES = 32 * 1024;

/**
 * Reads a body as it arrives, item by item, and never holds it whole. Throws `usage` when it is no list of 1 to
 * 100,000 items, too large, or cut off; nothing of it is taken then.
 */
export async function readChangeBody(body: unknown, options: ReadBodyOptions): Promise<BodyItem[]> {
  const { kind, format } = options;
  if (!(body instanceof Readable)) throw noItem();
  const pieces = counted(body, options);
  const items: BodyItem[] = [];
  const readings: AsyncIterable<BodyItem[]> =
    kind === 'stock' ? readStockFile(pieces, { format }) : readProductFile(pieces, { format });
  for await (const some of readings) {
    for (const item of some) items.push(item);
    if (items.length > ITEMS_MAX) throw tooMuch(`More than ${ITEMS_MAX} items came`);
  }
  if (items.length === 0) throw noItem();
  return items;
}

const EXAMPLE = 'Send an array, such as [{"externalId": "A1", "qty": 3}].';

async function* counted(body: Readable, { format, limitBytes }: ReadBodyOptions): AsyncGenerator<Uint8Array> {
  let bytes = 0;
  let isChecked = format !== 'json';
  // Left whole when this ends early, so that the refusal can still be answered.
  const chunks: AsyncIterable<Buffer> = body.iterator({ destroyOnReturn: false });
  for await (const chunk of chunks) {
    bytes += chunk.length;
    if (bytes > limitBytes) throw tooMuch(`More than ${limitBytes} bytes came`);
    if (!isChecked) {
      const first = chunk
        .toString('latin1')
        .replace(/^\u00ef\u00bb\u00bf/, '')
        .trimStart()[0];
      if (first !== undefined && first !== '[') {
        throw new TillsyncError('usage', 'The body is not a JSON array. Nothing was taken.', {
          hint: EXAMPLE,
        });
      }
      isChecked = first !== undefined;
    }
    for (let at = 0; at < chunk.length; at += PIECE_BYTES) yield chunk.subarray(at, at + PIECE_BYTES);
  }
  if (!isChecked) throw noItem();
}

function noItem(): TillsyncError {
  return new TillsyncError('usage', 'There is no item in the body.', { hint: EXAMPLE });
}

/** Answered by 413. */
function tooMuch(what: string): Error {
  const error = new Error(`${what}. Nothing was taken; send it in several parts.`);
  return Object.assign(error, { statusCode: 413 });
}

/** Changes of one kind, each well-formed. */
export type ChangeBatch =
  | { kind: 'stock'; changes: readonly StockChange[] }
  | { kind: 'product'; changes: readonly ProductChange[] };

/** What became of one change. */
export interface TakenChange {
  changeId: number;
  state: 'pending' | 'held' | 'rejected';
  /** Why it is held or rejected. */
  message: string | null;
  candidates: readonly Candidate[];
}

/** Takes changes in one transaction, durable when it resolves; one answer for each, in order. */
export type TakeChanges = (batch: ChangeBatch) => Promise<readonly TakenChange[]>;

/** Looks at all changes of a hand-over that comes in several parts, and gives what takes each of its parts. */
export type BeginHandOver = (whole: ChangeBatch) => Promise<TakeChanges>;

/** Items of one transaction: few enough that nothing else waits long for the event loop or the disk. */
const CHUNK = 500;

export interface IntakeAnswer {
  /** JSON text of a `changesAnswer`; with `error` beside it where the rest could not be taken. */
  text: string;
  status: number;
}

/**
 * Takes the good items in transactions of their own and answers for every item. When the disk refuses on the
 * way, what was taken stays taken; the answer has the results up to there and the error.
 */
export async function takeItems(
  kind: ChangeKind,
  items: readonly BodyItem[],
  begin: BeginHandOver,
): Promise<IntakeAnswer> {
  const take = await begin(batchOf(kind, items));
  const tally = { total: items.length, pending: 0, held: 0, rejected: 0 };
  const results: string[] = [];
  const answer = (more: object) =>
    `{"results":[${results.join(',')}],${JSON.stringify({ ...tally, ...more }).slice(1)}`;
  for (let start = 0; start < items.length; start += CHUNK) {
    const chunk = items.slice(start, start + CHUNK);
    let taken: readonly TakenChange[];
    try {
      taken = await takeGood(kind, chunk, take);
    } catch (thrown) {
      const error = asTillsyncError(thrown);
      if (start === 0) throw error;
      const { code } = error;
      return { text: answer(partly(error, start)), status: statusOf(code) };
    }
    results.push(resultsText(chunk, taken, tally));
    await setImmediate();
  }
  return { text: answer({}), status: tally.rejected > 0 ? 207 : 200 };
}

function partly(thrown: unknown, start: number): object {
  const error = asTillsyncError(thrown);
  const { code, hint } = errorBody(error).error;
  const why = code === 'internal' ? 'The request could not be handled to its end.' : error.message;
  return {
    error: { code, message: `${why} The items before index ${start} were taken, the others not.`, hint },
  };
}

function takeGood(kind: ChangeKind, chunk: readonly BodyItem[], take: TakeChanges) {
  const batch = batchOf(kind, chunk);
  return batch.changes.length === 0 ? [] : take(batch);
}

function batchOf(kind: ChangeKind, items: readonly BodyItem[]): ChangeBatch {
  const changes = items.flatMap((item) => ('change' in item ? [item.change] : []));
  return kind === 'stock'
    ? { kind, changes: changes as StockChange[] }
    : { kind, changes: changes as ProductChange[] };
}

function resultsText(
  chunk: readonly BodyItem[],
  taken: readonly TakenChange[],
  tally: Record<TakenChange['state'], number>,
): string {
  let next = 0;
  const results = chunk.map((item) => {
    const place = item.line === null ? { index: item.index } : { index: item.index, line: item.line };
    if ('fault' in item) {
      tally.rejected += 1;
      const { code, column, message } = item.fault;
      return { ...place, state: 'rejected', code, ...(column === null ? {} : { column }), message };
    }
    const { changeId, state, message, candidates } = answerOf(taken, next++);
    tally[state] += 1;
    return {
      ...place,
      state,
      changeId,
      ...(message === null ? {} : { message }),
      ...(candidates.length === 0 ? {} : { candidates }),
    };
  });
  return JSON.stringify(results).slice(1, -1);
}

function answerOf(taken: readonly TakenChange[], at: number): TakenChange {
  const answer = taken[at];
  if (!answer) throw new TypeError('A change was taken without an answer.');
  return answer;
}

export interface ChangeRoutesOptions {
  begin: BeginHandOver;
  /** Largest body (default 32 MiB). */
  limitBytes?: number;
  /** Hand-overs at once; they are taken one after the other (default 8). */
  handOversMax?: number;
}

const LIMIT_BYTES = 32 * 1024 * 1024;
const HAND_OVERS_MAX = 8;
/** Bodies that arrive at once. */
const READING_MAX = 100;

const description =
  'An answer for each item; a bad one takes nothing from its neighbours. What is pending or held is on the disk ' +
  'when the answer comes. 207 when some were rejected. Later values for the same target win.';

const docs = (): readonly RouteDoc[] => [
  {
    method: 'post',
    path: '/stock',
    operationId: 'setStock',
    summary: 'Hand over stock quantities',
    description,
    body: stockItems,
    bodyTypes: Object.keys(BODY_FORMATS),
    answers: { 200: changesAnswer, 207: changesAnswer },
  },
  {
    method: 'post',
    path: '/products',
    operationId: 'setProducts',
    summary: 'Hand over prices, texts and visibility',
    description,
    body: productItems,
    bodyTypes: Object.keys(BODY_FORMATS),
    answers: { 200: changesAnswer, 207: changesAnswer },
  },
];

/** `POST /stock` and `POST /products`. */
export function changeRoutes(options: ChangeRoutesOptions): ApiFamily {
  return { docs, plugin: async (app) => register(app, options) };
}

function register(app: FastifyInstance, options: ChangeRoutesOptions): void {
  const { begin, limitBytes = LIMIT_BYTES, handOversMax = HAND_OVERS_MAX } = options;
  // The routes read the body themselves, as it arrives.
  app.removeAllContentTypeParsers();
  app.addContentTypeParser(Object.keys(BODY_FORMATS), { bodyLimit: limitBytes }, (_request, body, done) =>
    done(null, body),
  );
  let reading = 0;
  let underWay = 0;
  let turn: Promise<unknown> = Promise.resolve();

  const handOver = async (kind: ChangeKind, request: FastifyRequest, reply: FastifyReply) => {
    const format = BODY_FORMATS[contentType(request)] ?? 'json';
    if (reading >= READING_MAX) throw tooMany(READING_MAX);
    reading += 1;
    let items: BodyItem[];
    try {
      items = await readChangeBody(request.body, { kind, format, limitBytes });
    } finally {
      reading -= 1;
    }
    // Counted only from here on: who sends slowly keeps nobody out.
    if (underWay >= handOversMax) throw tooMany(handOversMax);
    underWay += 1;
    try {
      // One after the other, so that of two values for a target the one that came last stays.
      const taking = turn.then(() => takeItems(kind, items, begin));
      turn = taking.catch(() => {});
      const { text, status } = await taking;
      return reply.code(status).type('application/json; charset=utf-8').send(text);
    } finally {
      underWay -= 1;
    }
  };
  app.post('/stock', (request, reply) => handOver('stock', request, reply));
  app.post('/products', (request, reply) => handOver('product', request, reply));
}

function tooMany(max: number): TillsyncError {
  return new TillsyncError('rate-limited', `${max} hand-overs are under way. Nothing was taken.`, {
    hint: 'Wait for their answers, then send it again.',
  });
}

function contentType({ headers }: FastifyRequest): string {
  return (headers['content-type']?.split(';', 1)[0] ?? '').trim().toLowerCase();
}
