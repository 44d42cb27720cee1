import type { FastifyPluginAsync, FastifyReply, FastifyRequest } from 'fastify';
import { TillsyncError } from '../../domain/errors.ts';
import type { Log } from '../../domain/log.ts';
import { sendError } from '../api-error.ts';
import { type PageAsset, pageAssets } from './page-assets.ts';

export interface PageRoutesOptions {
  /** The page's files by name, `index.html` among them; called at the first look at the page. */
  load: () => Promise<ReadonlyMap<string, Uint8Array>>;
  log: Log;
}

/**
 * Nothing from elsewhere, nothing inline, nothing framed. Markup is made from text by the one policy of the page's
 * library, so that no text of an order can become markup.
 */
const POLICY = [
  "default-src 'none'",
  "script-src 'self'",
  "style-src 'self'",
  "img-src 'self'",
  "connect-src 'self'",
  "base-uri 'none'",
  "form-action 'none'",
  "frame-ancestors 'none'",
  "require-trusted-types-for 'script'",
  'trusted-types lit-html',
].join('; ');

const HEADERS = {
  'content-security-policy': POLICY,
  'x-frame-options': 'DENY',
  'x-content-type-options': 'nosniff',
  'referrer-policy': 'no-referrer',
  'cross-origin-opener-policy': 'same-origin',
  'cross-origin-resource-policy': 'same-origin',
  // Kept by the browser, and asked for each time whether it is still the same.
  'cache-control': 'no-cache',
  vary: 'accept-encoding',
};

/** `GET /`: the status page; `GET /page/NAME`: its parts. They hold no data, so anyone may have them. */
export function pageRoutes({ load, log }: PageRoutesOptions): FastifyPluginAsync {
  let loading: Promise<Map<string, PageAsset>> | undefined;
  const assets = () => {
    loading ??= load().then(pageAssets);
    loading.catch(() => {
      loading = undefined;
    });
    return loading;
  };
  const answer = async (name: string, request: FastifyRequest, reply: FastifyReply) => {
    const asset = (await assets()).get(name);
    if (!asset) {
      return sendError(reply, new TillsyncError('not-found', `The page has no part ${name}.`), log);
    }
    reply.headers(HEADERS).header('etag', asset.etag);
    if (request.headers['if-none-match'] === asset.etag) return reply.code(304).send();
    reply.type(asset.type);
    if (!/\bgzip\b/.test(String(request.headers['accept-encoding']))) return reply.send(asset.body);
    return reply.header('content-encoding', 'gzip').send(asset.gzipped);
  };
  return async (app) => {
    app.get('/', (request, reply) => answer('index.html', request, reply));
    app.get<{ Params: { name: string } }>('/page/:name', (request, reply) =>
      answer(request.params.name, request, reply),
    );
  };
}
