import type { FastifyInstance, FastifyPluginAsync } from 'fastify';
import { TillsyncError } from '../domain/errors.ts';
import { AccessGate } from './access-gate.ts';
import type { ApiFamily } from './api-route.ts';
import { openApiDocument } from './openapi.ts';

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
