import { z } from 'zod';
import type { RouteDoc } from './api-route.ts';
import { errorAnswer } from './schemas/common.ts';

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
