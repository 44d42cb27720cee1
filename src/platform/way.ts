import { readFileSync } from 'node:fs';
import { createSecureContext, getCACertificates, type SecureContext } from 'node:tls';
import { getProxyForUrl } from 'proxy-from-env';
import { TillsyncError } from '../core/errors.ts';

/** Host and port of the contacted server. */
export interface Address {
  host: string;
  port: number;
}

/** Settings for connections to the platform. */
export interface PlatformWay {
  baseUrl: string;
  /** Address of a proxy. If left out or empty, the environment's HTTPS_PROXY and NO_PROXY apply. */
  proxy?: string | undefined;
  /** PEM file of further authorities; left out or empty for none. */
  caFile?: string | undefined;
}

/** Address of the proxy; undefined if there is none. It may hold a password, so it is never shown. */
export function proxyOf({ baseUrl, proxy }: PlatformWay): string | undefined {
  return proxy || getProxyForUrl(baseUrl) || undefined;
}

/** Returns host and port of a proxy, without its password. Throws `config-invalid` for an invalid address. */
export function proxyAddress(proxy: string): Address {
  if (!URL.canParse(proxy)) {
    throw new TillsyncError('config-invalid', 'The address of the proxy is none.', {
      hint: 'Correct platform.proxy, or HTTPS_PROXY in the environment: it has a scheme, a host and a port.',
    });
  }
  const { protocol, hostname, port } = new URL(proxy);
  return {
    host: hostname.replace(/^\[(.*)\]$/, '$1'),
    port: Number(port) || (protocol === 'https:' ? 443 : 80),
  };
}

/**
 * Returns the authorities that a connection trusts; undefined means those of the process. Throws
 * `config-invalid` for an unusable file.
 */
export function trustOf({ caFile = '' }: PlatformWay): SecureContext | undefined {
  if (caFile === '') return undefined;
  try {
    return createSecureContext({ ca: [...getCACertificates('default'), readFileSync(caFile, 'utf8')] });
  } catch (cause) {
    const code = cause instanceof Error && 'code' in cause ? String(cause.code) : 'no PEM';
    throw new TillsyncError('config-invalid', `platform.ca_file, ${caFile}, cannot be used (${code}).`, {
      cause,
      hint: 'Name a PEM file that the user of tillsync can read.',
    });
  }
}
