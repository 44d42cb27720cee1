import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import type { ChangeKind } from '../domain/change/change.ts';
import { TillsyncError } from '../domain/errors.ts';
import type { ApiFamily, RouteDoc } from './api-route.ts';
import { BODY_FORMATS, type BodyItem, readChangeBody } from './change-body.ts';
import { type BeginHandOver, takeItems } from './change-intake.ts';
import { changesAnswer, productItems, stockItems } from './schemas/changes.ts';

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
