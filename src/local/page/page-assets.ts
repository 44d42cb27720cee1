import { hash } from 'node:crypto';
import path from 'node:path';
import { promisify } from 'node:util';
import { gzip } from 'node:zlib';

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
