import { hash } from 'node:crypto';
import { existsSync } from 'node:fs';
import { readdir, readFile } from 'node:fs/promises';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { gzip } from 'node:zlib';
import type { FastifyPluginAsync, FastifyReply, FastifyRequest } from 'fastify';
import { TillsyncError } from '../core/errors.ts';
import type { Log } from '../core/log.ts';
import { sendError } from './server.ts';

/** A file of the page as it goes over the wire. */
export interface PageAsset {
  type: string;
  body: Buffer;
  gzipped: Buffer;
  etag: string;
}

const TYPES: Readonly<Record<string, string>> = {
  '.html': 'text/html; charset=utf-8',
  '.css': 'text/css; charset=utf-8',
  '.js': 'text/javascript; charset=utf-8',
  '.svg': 'image/svg+xml',
};

/** Makes what is sent from the page's files by name; files of other types are left out. */
export async function pageAssets(files: ReadonlyMap<string, Uint8Array>): Promise<Map<string, PageAsset>> {
  const assets = new Map<string, PageAsset>();
  for (const [name, content] of files) {
    const type = TYPES[path.extname(name)];
    if (type === undefined) continue;
    const body = Buffer.from(content);
    const gzipped = await promisify(gzip)(body, { level: 9 });
    assets.set(name, { type, body, gzipped, etag: `"${hash('sha256', body, 'hex').slice(0, 32)}"` });
  }
  return assets;
}

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

const DIRECTORY = new URL('../page/', import.meta.url);
/** Parts that a browser cannot use as they are written; each becomes one file. */
const BUNDLED = ['main.ts', 'main.css'];

export interface PageBundle {
  /** `main.js` and `main.css`. */
  files: Map<string, Uint8Array>;
  /** Paths of the sources, those of packages included. */
  inputs: string[];
}

/** The status page's files by name: as the package carries them, or in a checkout made from their sources. */
export async function pageFiles(directory = DIRECTORY): Promise<Map<string, Uint8Array>> {
  const files = new Map<string, Uint8Array>();
  for (const name of await readdir(directory)) {
    if (/\.(html|css|js|svg)$/.test(name)) files.set(name, await readFile(new URL(name, directory)));
  }
  if (files.has('main.js')) return files;
  for (const [name, content] of (await bundlePage()).files) files.set(name, content);
  return files;
}

/** Makes the page's script and style from their sources. Throws `not-found` where the tool for it is missing. */
export async function bundlePage(): Promise<PageBundle> {
  const esbuild = await bundler();
  try {
    const { outputFiles, metafile } = await esbuild.build({
      entryPoints: BUNDLED.map((name) => fileURLToPath(new URL(name, DIRECTORY))),
      outdir: '/',
      bundle: true,
      minify: true,
      write: false,
      metafile: true,
      format: 'esm',
      target: ['chrome100', 'firefox100', 'safari15'],
      legalComments: 'none',
      logLevel: 'silent',
      external: ['/page/*'],
    });
    const files = outputFiles.map(({ path, contents }) => [path.replace(/^.*[\\/]/, ''), contents] as const);
    return { files: new Map(files), inputs: Object.keys(metafile.inputs) };
  } finally {
    // Its helper process would stay otherwise.
    await esbuild.stop();
  }
}

/** Loaded by a name that is not written out: the package, which needs none, then does not carry it. */
async function bundler(): Promise<typeof import('esbuild')> {
  const name: string = ['es', 'build'].join('');
  try {
    return await import(name);
  } catch (cause) {
    const message = existsSync(new URL('main.ts', DIRECTORY))
      ? 'The status page cannot be made from its sources.'
      : 'The status page is not installed.';
    throw new TillsyncError('not-found', message, {
      hint: 'In a checkout run npm ci; otherwise install tillsync again.',
      cause,
    });
  }
}
