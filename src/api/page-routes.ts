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

const TYPES: Readonly<Record<string, string>> = {
  '.html': 'text/html; charset=utf-8',
  '.css': 'text/css; charset=utf-8',
  '.js': 'text/javascript; charset=utf-8',
  '.svg': 'image/svg+xml',
};

type PageFiles = ReadonlyMap<string, Uint8Array>;

/**
 * Returns each file of the page in the forms in which it is sent: plain and gzipped. Files whose type is not in `TYPES`
 * are left out.
 */
async function wireForms(files: PageFiles) {
  const known = [...files].filter(([name]) => path.extname(name) in TYPES);
  const forms = known.map(async ([name, content]) => {
    const body = Buffer.from(content);
    const gzipped = await promisify(gzip)(body, { level: 9 });
    return [name, { body, gzipped, etag: `"${hash('sha256', body, 'hex').slice(0, 32)}"` }] as const;
  });
  return new Map(await Promise.all(forms));
}

/**
 * Content security policy: no other sites, no inline scripts, no frames. Only lit-html may turn text into markup, so a
 * text in an order can never become markup.
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
  // The browser caches the file, but asks each time whether its copy is still current.
  'cache-control': 'no-cache',
  vary: 'accept-encoding',
};

/**
 * Serves the status page at `GET /` and its files at `GET /page/NAME`. They contain no data, so no API key is needed.
 * `load` is called at the first request and returns the files by name, including `index.html`.
 */
export function pageRoutes(load: () => Promise<PageFiles>, log: Log): FastifyPluginAsync {
  let loading: ReturnType<typeof wireForms> | undefined;
  const answer = async (name: string, request: FastifyRequest, reply: FastifyReply) => {
    loading ??= load().then(wireForms);
    loading.catch(() => {
      loading = undefined;
    });
    const form = (await loading).get(name);
    if (!form) {
      return sendError(reply, new TillsyncError('not-found', `The page has no part ${name}.`), log);
    }
    reply.headers(HEADERS).header('etag', form.etag);
    if (request.headers['if-none-match'] === form.etag) return reply.code(304).send();
    reply.type(TYPES[path.extname(name)] ?? '');
    if (!/\bgzip\b/.test(String(request.headers['accept-encoding']))) return reply.send(form.body);
    return reply.header('content-encoding', 'gzip').send(form.gzipped);
  };
  return async (app) => {
    app.get('/', (request, reply) => answer('index.html', request, reply));
    app.get<{ Params: { name: string } }>('/page/:name', (request, reply) =>
      answer(request.params.name, request, reply),
    );
  };
}

const DIRECTORY = new URL('../page/', import.meta.url);
/** Help pages, each with its source in docs/. */
const HELP = { 'help.html': 'troubleshooting.md', 'help.es.html': 'troubleshooting.es.md' };
const PAGE_OF = new Map(Object.entries(HELP).map(([page, document]) => [document, page]));
/** Sources that a browser cannot use directly. Each is bundled into one file. */
const BUNDLED = ['main.ts', 'main.css', 'help.css'];

/** Returns the status page's files by name. In the package they exist; in a checkout they are built from source. */
export async function pageFiles(directory = DIRECTORY): Promise<Map<string, Uint8Array>> {
  const files = new Map<string, Uint8Array>();
  for (const name of await readdir(directory)) {
    if (/\.(html|css|js|svg)$/.test(name)) files.set(name, await readFile(new URL(name, directory)));
  }
  if (files.has('main.js')) return files;
  for (const [name, content] of (await bundlePage()).files) files.set(name, content);
  for (const [name, document] of Object.entries(HELP)) {
    files.set(name, Buffer.from(await helpPage(document, /\.(\w+)\.html$/.exec(name)?.[1] ?? 'en')));
  }
  return files;
}

/**
 * Builds `main.js` and the style sheets. `inputs` are the paths of all sources, including those of packages. Throws
 * `not-found` if esbuild is missing.
 */
export async function bundlePage(): Promise<{ files: Map<string, Uint8Array>; inputs: string[] }> {
  const esbuild = await tool<typeof import('esbuild')>('es', 'build');
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
    // Without this call, esbuild's helper process would stay alive.
    await esbuild.stop();
  }
}

/**
 * Returns a Markdown file of docs/ as an HTML page. Each finding's text has an anchor: `help.html#orders.stale`. Links
 * to files without such a page become plain text.
 */
async function helpPage(document: string, language: string): Promise<string> {
  const { Marked } = await tool<typeof import('marked')>('mar', 'ked');
  const marked = new Marked({
    renderer: {
      heading({ tokens, depth, text }) {
        const id = text
          .toLowerCase()
          .replace(/[^\p{L}\p{N}_\s-]/gu, '')
          .replaceAll(' ', '-');
        return `<h${depth} id="${id}">${this.parser.parseInline(tokens)}</h${depth}>\n`;
      },
      paragraph({ tokens, text }) {
        const code = /^(?:Code|Código) `([\w.-]+)`/.exec(text)?.[1];
        return `<p${code ? ` id="${code}"` : ''}>${this.parser.parseInline(tokens)}</p>\n`;
      },
      link({ href, tokens }) {
        const words = this.parser.parseInline(tokens);
        const place = href.startsWith('#') ? href : PAGE_OF.get(href);
        return place === undefined ? words : `<a href="${place}">${words}</a>`;
      },
    },
  });
  const text = await readFile(new URL(`../../docs/${document}`, DIRECTORY), 'utf8');
  const title = /^# (.*)$/m.exec(text)?.[1];
  return `<!doctype html>
<html lang="${language}">
  <head>
    <meta charset="utf-8" />
    <meta name="viewport" content="width=device-width, initial-scale=1" />
    <title>tillsync: ${title}</title>
    <link rel="icon" href="/page/icon.svg" type="image/svg+xml" />
    <link rel="stylesheet" href="/page/help.css" />
  </head>
  <body>
    <main>
${await marked.parse(text)}
    </main>
  </body>
</html>
`;
}

/** Imports a tool by a computed name, so that the bundler leaves it out of the package, which does not need it. */
async function tool<T>(...partsOfName: string[]): Promise<T> {
  const name = partsOfName.join('');
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
