import type { FastifyInstance, FastifyPluginAsync } from 'fastify';
import { z } from 'zod';
import { TillsyncError } from '../core/errors.ts';
import { AccessGate } from './access.ts';

/** What the OpenAPI document tells of one route. */
export interface RouteDoc {
  method: 'get' | 'post';
  /** Below `/v1`, with parameters as `{name}`. */
  path: string;
  operationId: string;
  summary: string;
  description?: string;
  params?: z.ZodObject;
  query?: z.ZodObject;
  /** Named in `API_SCHEMAS`. */
  body?: z.ZodType;
  /** Further content types of the body. */
  bodyTypes?: readonly string[];
  /** By status; `null` for a stream of events. */
  answers: Partial<Record<200 | 207, z.ZodType>>;
  /** Whether 200 is `text/event-stream`. */
  streams?: boolean;
}

/** A family of routes: what serves them and what documents them. */
export interface ApiFamily {
  /** Made when somebody asks, with the schemas they name. */
  docs: () => readonly RouteDoc[];
  plugin: FastifyPluginAsync;
}

/** Reads parameters, a query or a body. Throws `usage` that names every fault at once. */
export function readAs<T extends z.ZodType>(schema: T, value: unknown, what: string): z.output<T> {
  const result = schema.safeParse(value);
  if (result.success) return result.data;
  const faults = result.error.issues.map(({ path, message }) => {
    const place = path.join('.');
    return place === '' ? message : `${place}: ${message}`;
  });
  throw new TillsyncError('usage', `The ${what} cannot be used. ${faults.join('; ')}.`, {
    hint: 'GET /v1/openapi.json describes what is taken.',
  });
}

export const isoTime = z.string().describe('ISO 8601 in UTC');
/** As the platform sent it, so that no digit is lost. */
export const amount = z.union([z.number(), z.string()]).nullable();
export const text = z.string().nullable();
export const flag = z.boolean().nullable();

/** `limit` of a list. */
export function limitOf(usual: number, max: number) {
  return z.coerce.number().int().min(1).max(max).default(usual).describe('How many at most');
}

export const errorAnswer = z.object({
  error: z.object({
    code: z.string().describe('Stays the same; branch on it, never on the message'),
    message: z.string().describe('What happened and what was kept'),
    hint: z.string().nullable().describe('What to do about it'),
  }),
});

type Json = Record<string, unknown>;

/** The OpenAPI 3.1 document of the routes, made from the schemas that read what is sent. */
export function openApiDocument(docs: readonly RouteDoc[], version: string): Json {
  const paths: Record<string, Json> = {};
  for (const doc of docs) {
    const path = paths[doc.path] ?? {};
    path[doc.method] = operation(doc);
    paths[doc.path] = path;
  }
  return {
    openapi: '3.1.0',
    info: {
      title: 'tillsync local API',
      version,
      description:
        'Orders from the mirror, and stock and price changes for the platform. Times are ISO 8601 in UTC, ' +
        'amounts as the platform sent them. Where there is a key, everybody sends it, but for whoever comes by the Unix socket.',
    },
    servers: [{ url: '/v1' }],
    security: [{}, { bearer: [] }, { apiKey: [] }],
    paths,
    components: {
      securitySchemes: {
        bearer: { type: 'http', scheme: 'bearer' },
        apiKey: { type: 'apiKey', in: 'header', name: 'x-api-key' },
      },
    },
  };
}

function operation(doc: RouteDoc): Json {
  const { operationId, summary, description, params, query, body, bodyTypes = ['application/json'] } = doc;
  const parameters = [...parametersOf(params, 'path'), ...parametersOf(query, 'query')];
  if (doc.streams) {
    parameters.push({
      name: 'Last-Event-ID',
      in: 'header',
      schema: { type: 'integer' },
      description: 'Of a stream: goes on after this seq',
    });
  }
  const responses: Json = {
    '4XX': { description: 'Refused; nothing was taken', content: json(errorAnswer) },
    default: { description: 'An error', content: json(errorAnswer) },
  };
  for (const [status, answer] of Object.entries(doc.answers)) {
    const content = doc.streams ? { 'text/event-stream': { schema: { type: 'string' } } } : json(answer);
    responses[status] = { description: ANSWERS[status], content };
  }
  return {
    operationId,
    summary,
    ...(description === undefined ? {} : { description }),
    ...(parameters.length === 0 ? {} : { parameters }),
    ...(body === undefined ? {} : { requestBody: { required: true, content: bodyContent(body, bodyTypes) } }),
    responses,
  };
}

const ANSWERS: Record<string, string> = { 200: 'Done', 207: 'Done in part: some items were rejected' };

function json(schema: z.ZodType): Json {
  return { 'application/json': { schema: jsonSchema(schema, 'output') } };
}

/** Of other content types a schema can say nothing. */
function bodyContent(schema: z.ZodType, types: readonly string[]): Json {
  return Object.fromEntries(
    types.map((type) => [
      type,
      { schema: type === 'application/json' ? jsonSchema(schema, 'input') : { type: 'string' } },
    ]),
  );
}

function parametersOf(schema: z.ZodObject | undefined, place: 'path' | 'query'): Json[] {
  if (!schema) return [];
  const { properties = {} } = jsonSchema(schema, 'output') as { properties?: Record<string, Json> };
  return Object.entries(properties).map(([name, { description, ...rest }]) => ({
    name,
    in: place,
    required: place === 'path',
    schema: rest,
    ...(description === undefined ? {} : { description }),
  }));
}

function jsonSchema(schema: z.ZodType, io: 'input' | 'output'): Json {
  const { $schema: _dialect, ...rest } = z.toJSONSchema(schema, { io, unrepresentable: 'any' });
  return rest;
}

export interface LocalApiOptions {
  /** The key that is asked of everybody; left out: only this machine is let in. */
  apiKey?: string | undefined;
  families: readonly ApiFamily[];
  /** Of tillsync. */
  version: string;
}

const BODY_LIMIT_BYTES = 2 * 1024 * 1024;

/** Everything below `/v1`, behind one gate, with the document that describes it at `/v1/openapi.json`. */
export function localApi({ apiKey, families, version }: LocalApiOptions): FastifyPluginAsync {
  const gate = new AccessGate({ apiKey });
  return async (root) => {
    await root.register(
      async (app) => {
        app.addHook('onRequest', async (request, reply) => {
          reply.headers(ANSWER_HEADERS);
          gate.check(request);
        });
        acceptJsonOnly(app);
        for (const { plugin } of families) await app.register(plugin);
        // Made when somebody asks: few do, and it takes memory.
        let document: string | undefined;
        app.get('/openapi.json', (_request, reply) => {
          document ??= JSON.stringify(
            openApiDocument(
              families.flatMap(({ docs }) => docs()),
              version,
            ),
          );
          reply.type('application/json; charset=utf-8');
          return reply.send(document);
        });
      },
      { prefix: '/v1' },
    );
  };
}

const ANSWER_HEADERS = {
  'cache-control': 'no-store',
  'x-content-type-options': 'nosniff',
  'cross-origin-resource-policy': 'same-origin',
};

/** A form of a web page can send text but no JSON; an action needs no body at all. */
function acceptJsonOnly(app: FastifyInstance): void {
  app.removeAllContentTypeParsers();
  app.addContentTypeParser(
    'application/json',
    { parseAs: 'string', bodyLimit: BODY_LIMIT_BYTES },
    (_request, text: string, done) => {
      try {
        done(null, text === '' ? undefined : JSON.parse(text.replace(/^\uFEFF/, '')));
      } catch {
        done(new TillsyncError('usage', 'The body is not JSON. Nothing was taken.'));
      }
    },
  );
}
