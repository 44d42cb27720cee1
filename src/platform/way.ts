import { readFileSync } from 'node:fs';
import { createSecureContext, getCACertificates, type SecureContext } from 'node:tls';
import { getProxyForUrl } from 'proxy-from-env';
import { TillsyncError } from '../core/errors.ts';

export interface Address {
  host: string;
  port: number;
}

/** Settings for connections to the platform. */
export interface PlatformWay {
  baseUrl: string;
  /** Address of a proxy. If left out or empty, HTTPS_PROXY and NO_PROXY of the environment apply. */
  proxy?: string | undefined;
  /** PEM file with further trusted certificate authorities; left out or empty if there are none. */
  caFile?: string | undefined;
}

/**
 * Returns the address of the proxy; undefined if there is none. It may contain a password, so it must never be shown.
 */
export function proxyOf({ baseUrl, proxy }: PlatformWay): string | undefined {
  return proxy || getProxyForUrl(baseUrl) || undefined;
}

/**
 * Returns host and port of a proxy address, without its password. Throws `config-invalid` if the address is invalid.
 */
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
 * Returns the certificate authorities that a connection trusts: the process's own and those of `caFile`; undefined
 * without `caFile`. Throws `config-invalid` if the file is unusable.
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
