import { Readable } from 'node:stream';
import { setImmediate } from 'node:timers/promises';
import type { FastifyReply, FastifyRequest } from 'fastify';
import type * as z from 'zod';
import { asTillsyncError, TillsyncError, whenFree } from '../core/errors.ts';
import type { ChangeKind, SourceLine, SubmittedChange } from '../outbox/change.ts';
import { type FileFormat, readChangeFile } from '../outbox/change-file.ts';
import type { Acceptance } from '../outbox/intake.ts';
import type { OutboxService } from '../outbox/outbox.ts';
import { addressOf, originOf } from './access.ts';
import { type ApiFamily, type LocalApiOptions, route } from './api.ts';
import { LongPolls } from './long-polls.ts';
import {
  changesAnswer,
  handOverQuery,
  ITEMS_MAX,
  type itemResult,
  productItems,
  stockItems,
} from './schemas.ts';
import { errorBody, sendRetryAfter, statusOf } from './server.ts';

/** Formats of a body, by content type. */
const BODY_FORMATS: Readonly<Record<string, FileFormat>> = {
  'application/json': 'json',
  'application/x-ndjson': 'ndjson',
  'text/csv': 'csv',
};

/** Bytes parsed in one turn of the event loop: about three milliseconds of work. */
const PIECE_BYTES = 32 * 1024;
const EXAMPLE = { hint: 'Send an array, such as [{"externalId": "A1", "qty": 3}].' };

/**
 * Reads a body item by item, as it arrives, and never holds it whole. Throws `usage`, and accepts nothing, when it is
 * no list of 1 to 100,000 items, too large, or cut off.
 */
async function readItems(
  kind: ChangeKind,
  request: FastifyRequest,
  maxBytes: number,
): Promise<(SourceLine & SubmittedChange)[]> {
  const items: (SourceLine & SubmittedChange)[] = [];
  if (request.body instanceof Readable) {
    const type = request.headers['content-type']?.split(';', 1)[0] ?? '';
    const format = BODY_FORMATS[type.trim().toLowerCase()] ?? 'json';
    const pieces = readPieces(request.body, format, maxBytes);
    for await (const some of readChangeFile(pieces, kind, { format })) {
      for (const item of some) items.push(item);
      if (items.length > ITEMS_MAX) throw tooMuch(`More than ${ITEMS_MAX} items came`);
    }
  }
  if (items.length === 0) throw noItem();
  return items;
}

async function* readPieces(body: Readable, format: FileFormat, maxBytes: number): AsyncGenerator<Uint8Array> {
  let bytes = 0;
  let isChecked = format !== 'json';
  // The stream is not destroyed on an early end, so that the refusal can still be sent.
  const chunks: AsyncIterable<Buffer> = body.iterator({ destroyOnReturn: false });
  for await (const chunk of chunks) {
    bytes += chunk.length;
    if (bytes > maxBytes) throw tooMuch(`More than ${maxBytes} bytes came`);
    if (!isChecked) {
      const first = chunk
        .toString('latin1')
        .replace(/^\u00ef\u00bb\u00bf/, '')
        .trimStart()[0];
      if (first !== undefined && first !== '[') {
        throw new TillsyncError('usage', 'The body is not a JSON array. Nothing was taken.', EXAMPLE);
      }
      isChecked = first !== undefined;
    }
    for (let at = 0; at < chunk.length; at += PIECE_BYTES) yield chunk.subarray(at, at + PIECE_BYTES);
  }
  if (!isChecked) throw noItem();
}

function noItem(): TillsyncError {
  return new TillsyncError('usage', 'There is no item in the body.', EXAMPLE);
}

/** Answered by 413. */
function tooMuch(what: string): Error {
  const error = new Error(`${what}. Nothing was taken; send it in several parts.`);
  return Object.assign(error, { statusCode: 413 });
}

/** Items per transaction. They are so few that nothing else waits long for the event loop or the disk. */
const PART = 500;

/**
 * Accepts the good items in several transactions, and answers every item with the JSON text of a `changesAnswer`. If
 * the disk fails on the way, accepted items stay; the answer has the results so far and the error.
 */
async function takeItems(
  outbox: OutboxService,
  items: readonly (SourceLine & SubmittedChange)[],
  origin: string,
): Promise<{ text: string; status: number; error?: TillsyncError }> {
  const zeros = await outbox.zeroHolds(readable(items));
  const tally = { total: items.length, pending: 0, held: 0, rejected: 0 };
  const results: string[] = [];
  const answer = (status: number, more: object) => ({
    text: `{"results":[${results.join(',')}],${JSON.stringify({ ...tally, ...more }).slice(1)}`,
    status,
  });
  for (let start = 0; start < items.length; start += PART) {
    const part = items.slice(start, start + PART);
    const good = readable(part);
    try {
      const taken = (good.length === 0 ? [] : await outbox.submit(good, 'http', { origin, zeros })).values();
      for (const item of part) {
        const result = resultOf(item, taken);
        tally[result.state] += 1;
        results.push(JSON.stringify(result));
      }
    } catch (thrown) {
      const error = asTillsyncError(thrown);
      if (start === 0) throw error;
      const why = error.code === 'internal' ? 'The request could not be handled to its end.' : error.message;
      const message = `${why} The items before index ${start} were taken, the others not.`;
      return { ...answer(statusOf(error.code), { error: { ...errorBody(error).error, message } }), error };
    }
    await setImmediate();
  }
  return answer(tally.rejected > 0 ? 207 : 200, {});
}

function readable(items: readonly (SourceLine & SubmittedChange)[]) {
  return items.filter((item) => 'change' in item);
}

function resultOf(
  item: SourceLine & SubmittedChange,
  taken: Iterator<Acceptance>,
): z.output<typeof itemResult> {
  const place = { index: item.index, ...(item.line !== null && { line: item.line }) };
  if ('fault' in item) {
    const { code, column, message } = item.fault;
    return { ...place, state: 'rejected', code, ...(column !== null && { column }), message };
  }
  const { changeId, state, message, candidates } = taken.next().value as Acceptance;
  return {
    ...place,
    state,
    changeId,
    ...(message !== null && { message }),
    ...(candidates.length > 0 && { candidates }),
  };
}

const WAIT_ITEMS_MAX = 1_000;
const OUTCOMES_LOOK_EVERY_MS = 250;
const BODY_MAX_BYTES = 32 * 1024 * 1024;
const HAND_OVERS_MAX = 8;
/** Bodies that arrive at once. */
const READING_MAX = 100;

/** Answers once each change is settled or held, or when the time is over. */
function outcomesOf({ parts, clock }: LocalApiOptions, polls: LongPolls) {
  return async (text: string, waitMs: number, reply: FastifyReply): Promise<string> => {
    const answer = JSON.parse(text) as z.output<typeof changesAnswer>;
    const read = () =>
      whenFree(clock, () => {
        let isEmpty = false;
        for (const result of answer.results) {
          const last = result.changeId === undefined ? undefined : parts.outbox.follow(result.changeId);
          if (!last) continue;
          const { changeId, state, message, settledAt, heldGuard } = last;
          result.outcome = { changeId, state, message, settledAt };
          isEmpty ||= settledAt === null && heldGuard === null;
        }
        return { isEmpty, text: JSON.stringify(answer) };
      });
    const held = { response: reply.raw, waitMs, lookEveryMs: OUTCOMES_LOOK_EVERY_MS };
    const seen = await polls.until(held, read);
    if (answer.results.some(({ outcome }) => outcome?.state === 'rejected')) reply.code(207);
    return seen.text;
  };
}

/** `POST /stock` and `POST /products`. */
export function changeRoutes(options: LocalApiOptions): ApiFamily {
  const { parts, changesMaxBytes = BODY_MAX_BYTES, handOversMax = HAND_OVERS_MAX } = options;
  const polls = new LongPolls(options);
  const outcomes = outcomesOf(options, polls);
  let reading = 0;
  let underWay = 0;
  let turn: Promise<unknown> = Promise.resolve();

  const handOver = async (kind: ChangeKind, waitMs: number, request: FastifyRequest, reply: FastifyReply) => {
    // The connection is read before the body, because it may be closed afterwards.
    const origin = originOf(request);
    if (reading >= READING_MAX) throw tooMany(READING_MAX);
    reading += 1;
    let items: (SourceLine & SubmittedChange)[];
    try {
      items = await readItems(kind, request, changesMaxBytes);
    } finally {
      reading -= 1;
    }
    if (waitMs > 0 && items.length > WAIT_ITEMS_MAX) {
      throw new TillsyncError('usage', `wait is for up to ${WAIT_ITEMS_MAX} items. Nothing was taken.`, {
        hint: 'Leave it out, and follow GET /v1/outbox?after=newest&wait=30.',
      });
    }
    // Counted only from here, so that a slow sender blocks nobody.
    if (underWay >= handOversMax) throw tooMany(handOversMax);
    underWay += 1;
    try {
      // Submissions run one after another, so that of two values for a target the later one stays.
      const taking = turn.then(() => takeItems(parts.outbox, items, origin));
      turn = taking.catch(() => {});
      const { text, status, error } = await taking;
      if (error) sendRetryAfter(reply, status, error);
      reply.code(status);
      return { text, isOver: error !== undefined };
    } finally {
      underWay -= 1;
    }
  };
  const post = (kind: ChangeKind, path: string, operationId: string, summary: string, body: z.ZodType) =>
    route({
      method: 'post',
      path,
      operationId,
      may: [kind === 'stock' ? 'stock' : 'prices'],
      summary,
      description:
        'An answer for each item; a bad one takes nothing from its neighbours. What is pending or held is on the disk ' +
        'when the answer comes. 207 when some were rejected. Later values for the same target win.',
      body,
      bodyTypes: Object.keys(BODY_FORMATS),
      answer: changesAnswer,
      mayBePartial: true,
      refused: { statuses: [429, 503, 507], answer: changesAnswer },
      query: handOverQuery,
      handle: async ({ query: { wait }, request, reply }) => {
        const waitMs = wait * 1_000;
        // The connection is counted before any item is accepted, so that accepted items are always answered.
        const leave = wait > 0 ? polls.enter(addressOf(request)) : () => {};
        try {
          const { text, isOver } = await handOver(kind, waitMs, request, reply);
          return wait === 0 || isOver ? text : await outcomes(text, waitMs, reply);
        } finally {
          leave();
        }
      },
    });
  return {
    tag: 'changes',
    // The routes read the body themselves, as a stream.
    prepare(app) {
      polls.endWith(app);
      app.removeAllContentTypeParsers();
      app.addContentTypeParser(
        Object.keys(BODY_FORMATS),
        { bodyLimit: changesMaxBytes },
        (_request, body, done) => done(null, body),
      );
    },
    routes: [
      post('stock', '/stock', 'setStock', 'Hand over stock quantities', stockItems),
      post('product', '/products', 'setProducts', 'Hand over prices, texts and visibility', productItems),
    ],
  };
}

function tooMany(max: number): TillsyncError {
  return new TillsyncError('rate-limited', `${max} hand-overs are under way. Nothing was taken.`, {
    hint: 'Wait for their answers, then send it again.',
  });
}
