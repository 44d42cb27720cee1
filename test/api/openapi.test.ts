import { Validator } from '@seriousme/openapi-schema-validator';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { type ApiRig, openApi } from './api-rig.ts';

type Json = Record<string, unknown>;
interface Shown {
  example?: unknown;
  examples?: Record<string, { value: unknown }>;
}
interface Operation {
  operationId: string;
  tags: string[];
  security?: object[];
  requestBody?: { content: Record<string, Shown> };
  responses: Record<string, { content?: Record<string, Shown> }>;
}

let rig: ApiRig;
let document: { paths: Record<string, Record<string, Operation>>; components: { schemas: Json } } & Json;
beforeAll(async () => {
  rig = await openApi({ isHub: true });
  document = (await rig.call('/v1/openapi.json')).body;
});
afterAll(() => rig.close());

const operations = () => Object.values(document.paths).flatMap((methods) => Object.values(methods));

/** Calls `look` with each object inside the value, such as a schema. */
function walk(value: unknown, look: (schema: Json) => void): void {
  if (typeof value !== 'object' || value === null) return;
  if (!Array.isArray(value)) look(value as Json);
  for (const inner of Object.values(value)) walk(inner, look);
}

describe('the OpenAPI document', () => {
  it('is one for the schema of OpenAPI 3.1', async () => {
    const { valid, errors } = await new Validator().validate(structuredClone(document));
    expect(errors ?? []).toEqual([]);
    expect(valid).toBe(true);
  });

  it('asks for the key on every route', () => {
    const asked = [document, ...operations()].flatMap(({ security }) => (security ?? []) as object[]);
    expect(asked.length).toBeGreaterThan(operations().length);
    const schemes = asked.map((alternative) => Object.keys(alternative).join());
    expect([...new Set(schemes)].sort()).toEqual(['apiKey', 'bearer']);
  });

  it('has a type for each schema, and no list of patterns, of which generators of clients make `unknown`', () => {
    const without: unknown[] = [];
    walk(document.components.schemas, (schema) => {
      if (
        'allOf' in schema ||
        ('pattern' in schema && typeof schema.pattern === 'string' && schema.type !== 'string')
      )
        without.push(schema);
    });
    expect(without).toEqual([]);
  });

  it('has nothing for the linter of Redocly to say, which tries each example on its schema', {
    tags: ['bulk'],
  }, async () => {
    const { createConfig, lintFromString } = await import('@redocly/openapi-core');
    const config = await createConfig({
      extends: ['recommended'],
      rules: {
        'no-invalid-media-type-examples': { severity: 'error', allowAdditionalProperties: false },
        // The rule is off, because a fixed path such as /orders/search is matched before /orders/{orderId}.
        'no-ambiguous-paths': 'off',
      },
    });
    const problems = await lintFromString({ source: JSON.stringify(document), config });
    const told = problems.map(({ ruleId, message, location }) => [ruleId, message, location[0]?.pointer]);
    expect(told).toEqual([]);
    const broken = structuredClone(document);
    const body = broken.paths['/stock']?.post?.requestBody?.content['application/json'] as Json;
    body.examples = { usual: { value: [{ externalId: 'A', quantity: 1 }] } };
    expect(await lintFromString({ source: JSON.stringify(broken), config })).not.toEqual([]);
  });

  it('shows each operation and each hook by an example', () => {
    const hooks = Object.values(document.webhooks as Record<string, Record<string, Operation>>);
    for (const { operationId, requestBody, responses } of operations()) {
      const answers = Object.values(responses['200']?.content ?? {});
      expect(
        answers.map(({ example, examples }) => example ?? examples?.usual?.value),
        operationId,
      ).toEqual([expect.anything()]);
      const asked = requestBody?.content['application/json'];
      if (requestBody) expect(asked?.example ?? asked?.examples?.usual?.value, operationId).toBeDefined();
    }
    for (const { requestBody } of hooks.flatMap((methods) => Object.values(methods))) {
      expect(requestBody?.content['application/json']?.example).toBeDefined();
    }
  });

  it('shows a whole inventory and a preview by examples of their own', () => {
    const { requestBody, responses } = operations().find(
      (each) => each.operationId === 'setStock',
    ) as Operation;
    const answers = responses['200']?.content?.['application/json']?.examples ?? {};
    expect(Object.keys(answers)).toEqual(['usual', 'dryRun', 'full']);
    expect(Object.keys(requestBody?.content['application/json']?.examples ?? {})).toEqual(
      Object.keys(answers),
    );
    expect(answers.full?.value).toMatchObject({ inventory: { missingBecome: 'zero' } });
    expect(answers.dryRun?.value).toMatchObject({ results: [{ preview: { verdict: 'send' } }, {}] });
  });

  it('names its schemas, and closes those of requests alone', () => {
    const { StockItem, ProductItem, DiscardRequest, ReleaseRequest, HookTest, ...others } = document
      .components.schemas as Record<string, Json>;
    for (const closed of [StockItem, ProductItem, DiscardRequest, ReleaseRequest, HookTest]) {
      expect(closed?.additionalProperties).toBe(false);
    }
    const { Acknowledgement, Acknowledgements: _list, ...answers } = others;
    expect(JSON.stringify(Acknowledgement)).toContain('"additionalProperties":false');
    walk(answers, (schema) => expect(schema.additionalProperties).not.toBe(false));
    // An object that is not a named schema would become a class without a name in a generated client.
    walk([document.paths, document.webhooks], (schema) => expect(schema.type).not.toBe('object'));
  });
});
