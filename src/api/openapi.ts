import * as z from 'zod';
import { product as productSchema, productSku } from '../catalog/product.ts';
import { branchStatus } from '../link/branch-status.ts';
import {
  boardOrder,
  order,
  orderItem,
  orderModifier,
  orderToBook,
  trendHour,
} from '../orders/merging/mirrored-order.ts';
import { productItem, stockItem } from '../outbox/intake/change.ts';
import { type ApiFamily, type ApiRoute, TAGS } from './api.ts';
import * as changes from './change-schemas.ts';
import examples from './examples.json' with { type: 'json' };
import { preparationEvent } from './preparation-schema.ts';
import * as api from './schemas.ts';
import * as status from './status-schemas.ts';

/**
 * Schemas of requests, by name in the OpenAPI document. They are closed: a request with an unknown property is refused.
 */
const REQUESTS = {
  StockItem: stockItem,
  StockItems: changes.stockItems,
  ProductItem: productItem,
  ProductItems: changes.productItems,
  Acknowledgement: api.ackItem,
  Acknowledgements: api.ackRequest,
  DiscardRequest: changes.discardRequest,
  ReleaseRequest: changes.releaseRequest,
  HookTest: api.hookTestRequest,
};

/**
 * Schemas of answers, by name. They are open: clients must ignore unknown properties, because later versions may add
 * some.
 */
const ANSWERS = {
  Error: api.errorAnswer,
  Order: order,
  OrderItem: orderItem,
  OrderModifier: orderModifier,
  OrderEvent: api.feedEvent,
  OrderPage: api.feedPage,
  OrderToBook: orderToBook,
  OrderToBookPage: api.toBookPage,
  OrderAnswer: api.orderAnswer,
  ExplanationEntry: api.explanationEntry,
  OrderExplanation: api.orderExplanation,
  StockExplanation: api.stockExplanation,
  StockExplanations: api.stockExplanations,
  BoardOrder: boardOrder,
  Board: api.boardAnswer,
  FoundOrders: api.foundOrders,
  TrendHour: trendHour,
  Trends: api.trendsAnswer,
  AcknowledgementResult: api.ackResult,
  AcknowledgementResults: api.ackAnswer,
  Product: productSchema,
  ProductSku: productSku,
  ProductPage: api.productPage,
  Candidate: changes.candidate,
  Outcome: changes.outcome,
  ItemResult: changes.itemResult,
  ItemResults: changes.changesAnswer,
  Preview: changes.preview,
  Inventory: changes.inventory,
  Change: changes.change,
  ChangePage: changes.outboxPage,
  ChangeAnswer: changes.changeAnswer,
  ChangeConflict: changes.changeConflict,
  Discarded: changes.discardAnswer,
  Released: changes.releaseAnswer,
  Finding: status.finding,
  Verdict: status.verdict,
  AlarmTestResult: api.alarmTestResult,
  AlarmTestAnswer: api.alarmTestAnswer,
  HookTestAnswer: api.hookTestAnswer,
  OutboxCounts: api.outboxCounts,
  Status: status.statusAnswer,
  BranchStatus: branchStatus,
  BranchList: status.branchesAnswer,
  HookEvent: api.hookEvent,
  PreparationEvent: preparationEvent,
  RejectedChangeEvent: changes.rejectedChangeEvent,
};

/** Refusals by status, each with its name in the OpenAPI document and its description. */
const REFUSALS: Readonly<Record<number, readonly [string, string]>> = {
  400: ['Unusable', 'The request as a whole cannot be used; nothing was taken'],
  401: ['KeyNeeded', 'A key is needed, or the one that was sent is wrong'],
  403: ['Forbidden', 'A web page of another site, or a key without the right'],
  404: ['NotFound', 'There is none of that id'],
  413: ['TooLarge', 'Send it in several parts; nothing was taken'],
  415: ['UnknownType', 'Not sent as one of the types of the body; nothing was taken'],
  429: ['TooMany', 'Again after Retry-After'],
  503: ['NotNow', 'Again after Retry-After'],
  507: ['DiskFull', 'The disk is full or read-only; nothing was taken'],
};
const OF_ALL = [400, 401, 403, 503];
const OF_BODIES = [413, 415, 507];

interface Example {
  request?: unknown;
  answer?: unknown;
}

const EXAMPLES: Readonly<Record<string, Example | undefined>> = examples;

type Json = Record<string, unknown>;
type Io = 'input' | 'output';

const toUri = (id: string) => `#/components/schemas/${id}`;

/** Builds the OpenAPI 3.1 document of the routes. */
export function openApiDocument(families: readonly ApiFamily[], version: string): Json {
  const named = new Names();
  const paths: Record<string, Json> = {};
  for (const { tag, routes } of families) {
    for (const { doc } of routes) {
      paths[doc.path] ??= {};
      Object.assign(paths[doc.path] as Json, { [doc.method]: operation(doc, tag, named) });
    }
  }
  const refusals = Object.entries(REFUSALS).map(([status, [name, description]]) => {
    const headers = RETRY_AFTER.includes(Number(status)) ? { headers: { 'Retry-After': retryAfter } } : {};
    return [name, { description, ...headers, content: contentOf(named.ref(api.errorAnswer, 'output')) }];
  });
  return {
    openapi: '3.1.0',
    info: {
      title: 'tillsync local API',
      version,
      license: { name: 'MIT', identifier: 'MIT' },
      description:
        'Orders from the mirror, and stock and price changes for the platform. Times are ISO 8601 in UTC, ' +
        'amounts as the platform sent them. Every request on a port needs a key; the Unix socket needs none. ' +
        'Requests are closed: a property that is not described is refused. Answers are open: properties and values of enums may be ' +
        'added, so pass over what you do not know.',
    },
    servers: [{ url: '/v1' }],
    security: [{ bearer: [] }, { apiKey: [] }],
    tags: Object.entries(TAGS).map(([name, description]) => ({ name, description })),
    paths,
    webhooks: {
      orderEvent: { post: orderHook(named) },
      preparationEvent: { post: preparationHook(named) },
      rejectedChange: { post: changeHook(named) },
    },
    components: {
      schemas: named.schemas(),
      responses: Object.fromEntries(refusals),
      securitySchemes: {
        bearer: { type: 'http', scheme: 'bearer' },
        apiKey: { type: 'apiKey', in: 'header', name: 'x-api-key' },
      },
    },
  };
}

const RETRY_AFTER = [429, 503];
const retryAfter = { description: 'Seconds', schema: { type: 'integer', minimum: 1 } };

function operation(doc: ApiRoute['doc'], tag: string, named: Names): Json {
  const {
    operationId,
    summary,
    description,
    body,
    bodyTypes = ['application/json'],
    answer,
    may,
    streams,
  } = doc;
  const parameters = [...parametersOf(doc.params, 'path'), ...parametersOf(doc.query, 'query')];
  if (streams === 'always') {
    parameters.push({
      name: 'Last-Event-ID',
      in: 'header',
      schema: { type: 'integer' },
      description: 'Of a stream: goes on after this seq',
    });
  }
  const example = EXAMPLES[operationId];
  const more = Object.entries(EXAMPLES).filter(([name]) => name.startsWith(`${operationId}?`));
  // Only JSON is described by a schema. An event stream, and bodies as NDJSON or CSV, are described as text.
  const answered =
    streams === 'always'
      ? { 'text/event-stream': { schema: { type: 'string' }, example: example?.answer } }
      : contentOf(named.ref(answer, 'output'), example?.answer, asVariants(more, 'answer'));
  const asked = bodyTypes.map((type) =>
    body && type === 'application/json'
      ? contentOf(named.ref(body, 'input'), example?.request, asVariants(more, 'request'))
      : { [type]: { schema: { type: 'string' } } },
  );
  const refusals = [...OF_ALL, ...(body ? OF_BODIES : []), ...(doc.refusals ?? [])];
  const special = Object.fromEntries(
    doc.refused?.statuses.map((status) => {
      const own = named.ref(doc.refused?.answer as z.ZodType, 'output');
      const schema = status === 409 ? own : { anyOf: [own, named.ref(api.errorAnswer, 'output')] };
      const said = REFUSALS[status]?.[1] ?? 'It does not fit the present state, which the answer has';
      return [status, { description: said, content: contentOf(schema) }];
    }) ?? [],
  );
  return {
    operationId,
    tags: [tag],
    summary,
    ...(description !== undefined && { description }),
    // `security` is a list of alternatives. Their roles are the rights of which a named key needs one.
    ...(may.length > 0 && {
      security: may.flatMap((right) => [{ bearer: [right] }, { apiKey: [right] }]),
    }),
    ...(parameters.length > 0 && { parameters }),
    ...(body && { requestBody: { required: true, content: Object.assign({}, ...asked) } }),
    responses: {
      200: { description: 'Done', content: answered },
      ...(doc.mayBePartial && {
        207: {
          description:
            'Done in part: some items were rejected, or the catalogue could not be read before a whole inventory',
          content: answered,
        },
      }),
      ...Object.fromEntries(
        refusals.map((status) => [status, { $ref: `#/components/responses/${REFUSALS[status]?.[0]}` }]),
      ),
      ...special,
      default: { description: 'An error', content: contentOf(named.ref(api.errorAnswer, 'output')) },
    },
  };
}

/** Returns the document's entry for the POST of an event of an order to a hook. */
function orderHook(named: Names): Json {
  return {
    operationId: 'orderEvent',
    tags: ['orders'],
    summary: 'One event of an order, sent to the address of a hook',
    description: HOOK_PROMISE,
    ...hookParts(named.ref(api.hookEvent, 'output'), examples.orderEvent.request),
  };
}

/** Returns the document's entry for the POST of an event of a preparation to a hook. */
function preparationHook(named: Names): Json {
  return {
    operationId: 'preparationEvent',
    tags: ['orders'],
    summary: 'An order is to be prepared, changed after that, or is not to be prepared any more',
    description: `${HOOK_PROMISE} Each of them is sent once for one state of an order, also after a restore.`,
    ...hookParts(named.ref(preparationEvent, 'output'), examples.preparationEvent.request),
  };
}

/** Returns the document's entry for the POST of a rejected change to a hook. */
function changeHook(named: Names): Json {
  return {
    operationId: 'rejectedChange',
    tags: ['changes'],
    summary: 'A change that was rejected, sent to the address of a hook with "change.rejected" in its events',
    description: `${HOOK_PROMISE} It is not sent if a person or a newer value ended the change before that.`,
    ...hookParts(named.ref(changes.rejectedChangeEvent, 'output'), examples.rejectedChange.request),
  };
}

const HOOK_PROMISE =
  'In order, at least once, one at a time; it is sent again until 2xx is answered. The headers are there where the hook has a secret.';

function hookParts(schema: Json, example: unknown): Json {
  return {
    parameters: Object.entries(HOOK_HEADERS).map(([name, description]) => ({
      ...{ name, description },
      in: 'header',
      required: false,
      schema: { type: 'string' },
    })),
    requestBody: { required: true, content: contentOf(schema, example) },
    responses: {
      '2XX': { description: 'It was taken' },
      '4XX': { description: 'As any other answer: it is sent again' },
    },
  };
}

const HOOK_HEADERS = {
  'webhook-id': 'Of Standard Webhooks: the same for each try of an event',
  'webhook-timestamp': 'Of Standard Webhooks: seconds since 1970; refuse what is older than five minutes',
  'webhook-signature':
    'Of Standard Webhooks: v1, a comma and the HMAC-SHA256 of id.timestamp.body in base64; one for each secret, with blanks between',
  'x-tillsync-signature': 'sha256= and the HMAC-SHA256 of the body in hex',
};

/** Returns examples by their query, such as `full=true&missing=zero`. */
function asVariants(all: readonly [string, Example | undefined][], side: keyof Example): [string, unknown][] {
  return all.map(([name, example]) => [name.slice(name.indexOf('?') + 1), example?.[side]]);
}

/**
 * Returns the content object for a schema. `variants` are examples with their queries. OpenAPI allows either one
 * `example` or named `examples`.
 */
function contentOf(schema: Json, example?: unknown, variants: readonly [string, unknown][] = []): Json {
  if (variants.length === 0) {
    return { 'application/json': { schema, ...(example !== undefined && { example }) } };
  }
  const named = variants.map(([query, value]) => [query.split('=')[0], { summary: `With ?${query}`, value }]);
  const examples = { usual: { value: example }, ...Object.fromEntries(named) };
  return { 'application/json': { schema, examples } };
}

function parametersOf(schema: z.ZodObject | undefined, place: 'path' | 'query'): Json[] {
  if (!schema) return [];
  const { $schema: _dialect, ...whole } = z.toJSONSchema(schema, { io: 'output', unrepresentable: 'any' });
  const { properties = {} } = whole as { properties?: Record<string, Json> };
  return Object.entries(properties).map(([name, { description, ...rest }]) => ({
    name,
    in: place,
    required: place === 'path',
    schema: rest,
    ...(description !== undefined && { description }),
  }));
}

/** Names of the schemas, by which operations refer to them. */
class Names {
  readonly #registries: Record<Io, z.core.$ZodRegistry<{ id: string }>> = {
    input: registryOf(REQUESTS),
    output: registryOf(ANSWERS),
  };

  /** Returns a reference to the schema. Throws if the schema has no name, so that none is forgotten. */
  ref(schema: z.ZodType, io: Io): Json {
    const id = this.#registries[io].get(schema)?.id;
    if (id === undefined) throw new Error('A schema of the API has no name in the document.');
    return { $ref: toUri(id) };
  }

  schemas(): Json {
    return { ...this.#of('input'), ...this.#of('output') };
  }

  #of(io: Io): Json {
    const { schemas } = z.toJSONSchema(this.#registries[io], {
      io,
      uri: toUri,
      unrepresentable: 'any',
      override({ jsonSchema }) {
        if (io === 'output' && jsonSchema.additionalProperties === false)
          delete jsonSchema.additionalProperties;
      },
    });
    return Object.fromEntries(
      Object.entries(schemas).map(([id, { $schema: _dialect, $id: _uri, ...schema }]) => [id, schema]),
    );
  }
}

function registryOf(schemas: Readonly<Record<string, z.ZodType>>): z.core.$ZodRegistry<{ id: string }> {
  const registry = z.registry<{ id: string }>();
  for (const [id, schema] of Object.entries(schemas)) registry.add(schema, { id });
  return registry;
}
