import type { FastifyPluginAsync } from 'fastify';
import type { z } from 'zod';
import { TillsyncError } from '../domain/errors.ts';

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
