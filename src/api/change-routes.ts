import { basename } from 'node:path';
import { Readable } from 'node:stream';
import { setImmediate } from 'node:timers/promises';
import type { FastifyReply, FastifyRequest } from 'fastify';
import type * as z from 'zod';
import {
  chosenBranch,
  type InventoryReport,
  type InventoryRow,
  inventoryReport,
  wholeInventory,
} from '../app/inventory.ts';
import { asTillsyncError, TillsyncError } from '../core/errors.ts';
import { whenFree } from '../core/loop.ts';
import type { ChangeKind, SourceLine } from '../outbox/intake/change.ts';
import { type FileFormat, readChangeFile } from '../outbox/intake/change-file.ts';
import type { DecimalSign } from '../outbox/intake/csv.ts';
import { previewChanges } from '../outbox/intake/full-inventory-plan.ts';
import type { GuardReason } from '../outbox/intake/guards.ts';
import type { Acceptance } from '../outbox/intake/intake.ts';
import type { Row } from '../outbox/intake/same-article.ts';
import type { OutboxService } from '../outbox/sending/outbox.ts';
import { originOf } from './access.ts';
import { type ApiFamily, type LocalApiOptions, route, untilClosed } from './api.ts';
import {
  changesAnswer,
  handOverQuery,
  ITEMS_MAX,
  type itemResult,
  PLANNED_ITEMS_MAX,
  productItems,
  stockItems,
  stockQuery,
} from './change-schemas.ts';
import { LongPolls } from './long-polls.ts';
import { Places } from './places.ts';
import { errorBody, sendRetryAfter, statusOf } from './server.ts';

/** Formats of a body with changes, by content type. */
const BODY_FORMATS: Readonly<Record<string, FileFormat>> = {
  'application/json': 'json',
  'application/x-ndjson': 'ndjson',
  'text/csv': 'csv',
};

/**
 * Maximum number of bytes that are parsed in one turn of the event loop. Parsing them takes about three milliseconds.
 */
const PIECE_BYTES = 32 * 1024;
const EXAMPLE = { hint: 'Send an array, such as [{"externalId": "A1", "qty": 3}].' };

type Item = Row;

/** The items of a body, and notes on how it was read. */
interface Read {
  items: Item[];
  notes: string[];
}

interface BodyLimits {
  maxBytes: number;
  maxItems: number;
  /** Advice for the sender of a body that is too large. */
  hint: string;
}

/**
 * Reads the items of a body as they arrive. Accepts no item and throws `usage` if the body is no list or empty, an
 * error with status 413 if it is too large, and the stream's error if the sender breaks off.
 */
async function readItems(
  kind: ChangeKind,
  request: FastifyRequest,
  decimal: DecimalSign | undefined,
  limits: BodyLimits,
): Promise<Read> {
  const { maxBytes, maxItems, hint } = limits;
  const { headers, body } = request;
  if (Number(headers['content-length'] ?? 0) > maxBytes) throw tooMuch(mebibytes(maxBytes), hint);
  const items: Item[] = [];
  const notes: string[] = [];
  if (body instanceof Readable) {
    const type = headers['content-type']?.split(';', 1)[0] ?? '';
    const format = BODY_FORMATS[type.trim().toLowerCase()] ?? 'json';
    const pieces = readPieces(body, format, limits);
    // JSON is always UTF-8. A CSV file is read as `push` reads it, and what is noticed goes into the answer.
    const tell = format === 'csv' ? (note: string) => notes.push(note) : undefined;
    for await (const some of readChangeFile(pieces, kind, { format, decimal, tell, names: 'query' })) {
      for (const item of some) items.push(item);
      if (items.length > maxItems) throw tooMuch(`${maxItems} items`, hint);
    }
  }
  if (items.length === 0) throw noItem();
  return { items, notes };
}

async function* readPieces(
  body: Readable,
  format: FileFormat,
  { maxBytes, hint }: BodyLimits,
): AsyncGenerator<Uint8Array> {
  let bytes = 0;
  let isChecked = format !== 'json';
  // After an early end the stream stays open, so that the refusal can still be sent.
  const chunks: AsyncIterable<Buffer> = body.iterator({ destroyOnReturn: false });
  for await (const chunk of chunks) {
    bytes += chunk.length;
    if (bytes > maxBytes) throw tooMuch(mebibytes(maxBytes), hint);
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

/** Returns the error that is answered with status 413. */
function tooMuch(limit: string, hint: string): Error {
  const error = new Error(`More than ${limit} came in one request. Nothing was taken.`);
  return Object.assign(error, { statusCode: 413, hint });
}

function mebibytes(bytes: number): string {
  return `${bytes / 1024 ** 2} MiB`;
}

/**
 * Maximum number of items per transaction. It is small, so that nothing else waits long for the event loop or the disk.
 */
const PART = 500;

/** Items of one request, prepared to be accepted. */
interface Submission {
  /** Number of items in the body. */
  total: number;
  /** Items to accept, and unreadable items, which also get a result. */
  items: readonly Item[];
  origin: string;
  /** Reason why a guard holds all items; undefined if no guard does. */
  hold?: GuardReason | undefined;
  inventory?: InventoryReport;
  notes: readonly string[];
}

/** A finished answer: JSON text of a `changesAnswer`, with its status. */
interface Answered {
  text: string;
  status: number;
  error?: TillsyncError;
}

/** Builds the answer to a submission from the results of its items. */
class AnswerText {
  readonly #tally: { total: number; pending: number; held: number; rejected: number; superseded?: number };
  readonly #inventory: InventoryReport | undefined;
  readonly #notes: readonly string[];
  readonly #results: string[] = [];
  /** Results of rows that were added to an earlier one, which are not in their order. */
  readonly #later: z.output<typeof itemResult>[] = [];

  constructor({ total, inventory, notes }: Pick<Submission, 'total' | 'inventory' | 'notes'>) {
    this.#tally = { total, pending: 0, held: 0, rejected: 0 };
    this.#inventory = inventory;
    this.#notes = notes;
  }

  /** Adds the results of items, in the order of their indexes; each row that was added to an item has the same one. */
  add(item: Item, result: z.output<typeof itemResult>): void {
    this.#before(result.index);
    this.#put(result);
    const { added = [] } = item;
    if (added.length === 0) return;
    this.#later.push(...added.map((row) => ({ ...result, ...placeOf(row) })));
    this.#later.sort((a, b) => a.index - b.index);
  }

  /** Adds the waiting results of rows before `index`. */
  #before(index: number): void {
    while (this.#later[0] && this.#later[0].index < index) this.#put(this.#later.shift() as never);
  }

  #put(result: z.output<typeof itemResult>): void {
    this.#tally[result.state] = (this.#tally[result.state] ?? 0) + 1;
    this.#results.push(JSON.stringify(result));
  }

  /** Ends the answer. `refusal` is the status and the error for items that have no result. */
  end(refusal?: { status: number; error: object }): { text: string; status: number } {
    this.#before(Number.POSITIVE_INFINITY);
    const inventory = this.#inventory;
    const more = {
      ...this.#tally,
      ...(inventory && { inventory }),
      ...(this.#notes.length > 0 && { notes: this.#notes }),
      ...(refusal && { error: refusal.error }),
    };
    const isPartial = this.#tally.rejected > 0 || inventory?.catalogFault != null;
    return {
      text: `{"results":[${this.#results.join(',')}],${JSON.stringify(more).slice(1)}`,
      status: refusal?.status ?? (isPartial ? 207 : 200),
    };
  }
}

/**
 * Accepts the readable items in several transactions. If one after the first fails, the items before it stay accepted,
 * and the answer has their results and the error.
 */
async function takeItems(outbox: OutboxService, submission: Submission): Promise<Answered> {
  const { items, origin, hold: all } = submission;
  const zeros = await outbox.zeroHolds(readable(items));
  const answer = new AnswerText(submission);
  for (let start = 0; start < items.length; start += PART) {
    const part = items.slice(start, start + PART);
    const good = readable(part);
    try {
      const taken = good.length === 0 ? [] : await outbox.submit(good, 'http', { origin, zeros, all });
      const acceptances = taken.values();
      for (const item of part) answer.add(item, resultOf(item, acceptances));
    } catch (thrown) {
      const error = asTillsyncError(thrown);
      if (start === 0) throw error;
      const why = error.code === 'internal' ? 'The request could not be handled to its end.' : error.message;
      const { index } = part[0] as Item;
      const message = `${why} The items before index ${index} were taken, the others not.`;
      const refusal = { status: statusOf(error.code), error: { ...errorBody(error).error, message } };
      return { ...answer.end(refusal), error };
    }
    await setImmediate();
  }
  return answer.end();
}

/** Returns the answer to a dry run, which says what would happen to each item. */
async function previewItems(
  services: LocalApiOptions['services'],
  submission: Submission,
): Promise<Answered> {
  const { items, hold } = submission;
  await services.outbox.catchUp();
  const previews = await previewChanges(services, readable(items), hold);
  const answer = new AnswerText(submission);
  const results = previews.map(({ line, target, values, verdict, why }) => ({
    item: line,
    result: {
      ...placeOf(line),
      state: verdict === 'held' || verdict === 'rejected' ? verdict : ('pending' as const),
      preview: { target, values, verdict, why },
    },
  }));
  const faults = items.flatMap((item) => ('fault' in item ? [{ item, result: faultOf(item) }] : []));
  const all = [...results, ...faults].sort((a, b) => a.result.index - b.result.index);
  // One result for each target, so the rows that were added to another one have none.
  for (const { item, result } of all) answer.add({ ...item, added: [] }, result);
  return answer.end();
}

function readable(items: readonly Item[]) {
  return items.filter((item) => 'change' in item);
}

function placeOf({ index, line, unnamed }: SourceLine) {
  return { index, ...(line !== null && { line }), ...(unnamed !== undefined && { unnamed }) };
}

function faultOf(item: Extract<Item, { fault: unknown }>) {
  const { code, column, message, rows } = item.fault;
  return {
    ...placeOf(item),
    state: 'rejected' as const,
    code,
    ...(column !== null && { column }),
    ...(rows !== undefined && { rows: [...rows] }),
    message,
  };
}

function resultOf(item: Item, taken: Iterator<Acceptance>): z.output<typeof itemResult> {
  if ('fault' in item) return faultOf(item);
  const { changeId, state, message, candidates } = taken.next().value as Acceptance;
  return {
    ...placeOf(item),
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
/** Maximum number of request bodies that may arrive at the same time. */
const READING_MAX = 100;

/**
 * Returns a function that waits until each change is settled or held, or the time is over, and then returns the answer
 * with the outcomes, which it also counts.
 */
function outcomesOf({ services, clock }: LocalApiOptions, polls: LongPolls) {
  return async (text: string, waitMs: number, reply: FastifyReply): Promise<string> => {
    const answer = JSON.parse(text) as z.output<typeof changesAnswer>;
    const read = () =>
      whenFree(clock, () => {
        let isEmpty = false;
        const became = { pending: 0, held: 0, done: 0, rejected: 0, superseded: 0 };
        for (const result of answer.results) {
          const last = result.changeId === undefined ? undefined : services.outbox.follow(result.changeId);
          if (!last) {
            became[result.state] += 1;
            continue;
          }
          const { changeId, state, message, settledAt, heldGuard } = last;
          result.outcome = { changeId, state, message, settledAt };
          isEmpty ||= settledAt === null && heldGuard === null;
          if (settledAt === null) became[heldGuard === null ? 'pending' : 'held'] += 1;
          else became[state === 'rejected' ? 'rejected' : 'done'] += 1;
        }
        const { superseded, ...others } = became;
        Object.assign(answer, others, superseded > 0 && { superseded });
        return { isEmpty, text: JSON.stringify(answer) };
      });
    const held = { response: reply.raw, waitMs, lookEveryMs: OUTCOMES_LOOK_EVERY_MS };
    const seen = await polls.until(held, read);
    if (answer.rejected > 0) reply.code(207);
    return seen.text;
  };
}

/** Query parameters of a request with changes. */
type Asked = Partial<z.output<typeof stockQuery>> & z.output<typeof handOverQuery>;

/** Throws `usage` if the query has options that exclude each other. */
function checkAsked({ wait, dryRun, full, missing }: Asked): void {
  if (dryRun && wait > 0) {
    throw new TillsyncError('usage', 'dryRun hands nothing over, so there is nothing to wait for.');
  }
  if (missing !== undefined && !full) {
    const why = 'missing says what becomes of what a whole inventory lacks. Nothing was taken.';
    throw new TillsyncError('usage', why, { hint: 'Give full=true too.' });
  }
}

function refuseLongWait(wait: number, changes: number): void {
  if (wait === 0 || changes <= WAIT_ITEMS_MAX) return;
  throw new TillsyncError('usage', `wait is for up to ${WAIT_ITEMS_MAX} items. Nothing was taken.`, {
    hint: 'Leave it out, and follow GET /v1/outbox?after=newest&wait=30.',
  });
}

/**
 * Returns a function that prepares a submission, perhaps a whole inventory, and returns a second function. That one is
 * called in the submission's turn, and only then compares the inventory with the mirror.
 */
function inventories({ services }: LocalApiOptions) {
  return async (read: Read, kind: ChangeKind, asked: Asked, origin: string, reply: FastifyReply) => {
    const { items, notes } = read;
    const { full, branch, missing, rows } = asked;
    const common = { total: items.length, origin, notes };
    const chosen = branch === undefined ? undefined : chosenBranch(services, branch, 'branch');
    const placed =
      chosen === undefined
        ? items
        : items.map((item) =>
            'change' in item && item.kind === 'stock' ? { ...item, change: chosen.named(item.change) } : item,
          );
    const how = { rows, names: 'query' } as const;
    if (!full) {
      return async (): Promise<Submission> => ({
        ...common,
        items: await services.outbox.oneRowEach(placed, { kind, ...how }),
      });
    }
    const faults = placed.filter((item) => 'fault' in item);
    const request = { branch, chosen: chosen ?? chosenBranch(services, branch, 'branch'), missing, ...how };
    const whole = await wholeInventory(services, placed as InventoryRow[], request, {
      signal: untilClosed(reply),
    });
    return async (): Promise<Submission> => {
      const plan = await whole.plan();
      return {
        ...common,
        items: [...faults, ...plan.refused, ...plan.changes].sort((a, b) => a.index - b.index),
        hold: plan.hold,
        inventory: inventoryReport(plan, whole, missing),
      };
    };
  };
}

/** Greatest share of the hand-overs that one named key or address may have under way. */
const HAND_OVER_SHARE = 0.75;

function handOverPlaces(max: number): Places {
  return new Places({
    max,
    ofOne: Math.ceil(max * HAND_OVER_SHARE),
    words: {
      taken: 'hand-overs are under way',
      refused: ' Nothing was taken.',
      hint: 'Wait for their answers, then send it again.',
    },
  });
}

/** Returns the function that reads, plans and accepts the items of a request. */
function handOvers(options: LocalApiOptions) {
  const { services, changesMaxBytes = BODY_MAX_BYTES, handOversMax = HAND_OVERS_MAX } = options;
  const prepare = inventories(options);
  const reading = handOverPlaces(READING_MAX);
  const planning = handOverPlaces(handOversMax);
  const taking = handOverPlaces(handOversMax);
  let turn: Promise<unknown> = Promise.resolve();

  return async (kind: ChangeKind, asked: Asked, request: FastifyRequest, reply: FastifyReply) => {
    checkAsked(asked);
    // The sender's address is read before the body, because the connection may be closed afterwards.
    const origin = originOf(request) + (asked.file === undefined ? '' : `, file ${basename(asked.file)}`);
    const isPlanned = asked.full === true || asked.dryRun;
    const limits = {
      maxBytes: changesMaxBytes,
      maxItems: isPlanned ? PLANNED_ITEMS_MAX : ITEMS_MAX,
      hint: isPlanned ? IN_ONE_PIECE : 'Send it in several parts.',
    };
    const { items, notes } = await reading.within(request, () =>
      readItems(kind, request, asked.decimal, limits),
    );
    const read = { items: services.outbox.dated(items), notes };
    const act = async () => {
      const submission = await submit();
      refuseLongWait(asked.wait, submission.items.length);
      return takeItems(services.outbox, submission);
    };
    const planned = () => prepare(read, kind, asked, origin, reply);
    // A whole inventory may wait here until the catalogue is read. It waits before its turn, so that other submissions
    // need not wait for it.
    const submit = await (isPlanned ? planning.within(request, planned) : planned());
    if (asked.dryRun) {
      const { text, status } = await planning.within(request, async () =>
        previewItems(services, await submit()),
      );
      reply.code(status);
      return { text, isOver: true };
    }
    // The submission takes one of the limited places only from here on, so that slow senders do not occupy them.
    const { text, status, error } = await taking.within(request, () => {
      // Submissions run one after another, so that of two values for the same target the later one stays.
      const mine = turn.then(act);
      turn = mine.catch(() => {});
      return mine;
    });
    if (error) sendRetryAfter(reply, status, error);
    reply.code(status);
    return { text, isOver: error !== undefined };
  };
}

/** Returns the routes `POST /stock` and `POST /products`. */
export function changeRoutes(options: LocalApiOptions): ApiFamily {
  const polls = new LongPolls(options);
  const outcomes = outcomesOf(options, polls);
  const handOver = handOvers(options);
  const post = (
    kind: ChangeKind,
    doc: { path: string; operationId: string; summary: string; more: string },
  ) => {
    const { more, ...named } = doc;
    return route({
      method: 'post',
      ...named,
      may: [kind === 'stock' ? 'stock' : 'prices'],
      description: `${CHANGES}${more}`,
      body: kind === 'stock' ? stockItems : productItems,
      bodyTypes: Object.keys(BODY_FORMATS),
      answer: changesAnswer,
      mayBePartial: true,
      refused: { statuses: [429, 503, 507], answer: changesAnswer },
      query: kind === 'stock' ? stockQuery : handOverQuery,
      handle: async ({ query, request, reply }) => {
        const waitMs = query.wait * 1_000;
        // The connection that will wait is counted before items are accepted. Otherwise a sender could be refused after
        // its items were accepted.
        const leave = waitMs > 0 ? polls.enter(request) : () => {};
        try {
          const { text, isOver } = await handOver(kind, query, request, reply);
          return waitMs === 0 || isOver ? text : await outcomes(text, waitMs, reply);
        } finally {
          leave();
        }
      },
    });
  };
  return {
    tag: 'changes',
    // The routes read and limit the body themselves, as a stream.
    prepare(app) {
      polls.endWith(app);
      app.removeAllContentTypeParsers();
      app.addContentTypeParser(
        Object.keys(BODY_FORMATS),
        { bodyLimit: Number.MAX_SAFE_INTEGER },
        (_request, body, done) => done(null, body),
      );
    },
    routes: [
      post('stock', {
        path: '/stock',
        operationId: 'setStock',
        summary: 'Hand over stock quantities, or a whole inventory',
        more: WHOLE,
      }),
      post('product', {
        path: '/products',
        operationId: 'setProducts',
        summary: 'Hand over prices, texts and visibility',
        more: '',
      }),
    ],
  };
}

const CHANGES =
  'An answer for each item; a bad one takes nothing from its neighbours. What is pending or held is on the disk ' +
  'when the answer comes. 207 when some were rejected, with `wait` also by the platform. Two items that count one article are both rejected, or added up ' +
  'with `rows=sum`; so are two that set one product to different values. Later values of other requests win. ' +
  'A body has at most 32 MiB and 100,000 items, and 20,000 items with `dryRun`; 413 says which.';
const WHOLE =
  ' With `full` the items are a whole inventory, in one request of at most 20,000 items: only what differs from the mirror ' +
  'or from your last count is handed over, and the guards watch what it lacks. 207 also when the catalogue could not be read first.';
const IN_ONE_PIECE =
  'It is planned in one piece. Hand it over as a file: {tillsync} push stock FILE --full, or with --dry-run';
