import type { Config } from '../config/config-type.ts';
import { pageLink } from '../config/key-file.ts';

/**
 * Returns the status page's address for a browser on this machine, with the API key if one is given; null while its
 * port is unknown.
 */
export function statusPageOf({ local: { host, port } }: Config, key?: string): string | null {
  if (port === 0) return null;
  const isAny = host === '0.0.0.0' || host === '::';
  const name = isAny ? '127.0.0.1' : host.includes(':') ? `[${host}]` : host;
  return pageLink(`http://${name}:${port}`, key);
}
