import { createPrivateKey, X509Certificate } from 'node:crypto';
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { connect, type Socket } from 'node:net';
import { connect as connectSecure } from 'node:tls';
import * as z from 'zod';
import { TillsyncError } from '../core/errors.ts';
import { isoUtc } from '../core/time.ts';

/**
 * Oldest accepted version of nats-server. Older versions acknowledge messages that are not on the disk yet,
 * and have known security holes.
 */
const SERVER_MIN = [2, 10, 27];
const TIMEOUT_MS = 5_000;
const GREETING_MAX = 64 * 1024;

/** Throws `config-invalid` if the server's version is too old. */
export function refuseOld(url: string, version: string): void {
  const parts = version.split('.').map((part) => Number.parseInt(part, 10));
  const differs = SERVER_MIN.findIndex((least, i) => parts[i] !== least);
  if (differs === -1 || (parts[differs] ?? 0) > (SERVER_MIN[differs] ?? 0)) return;
  throw new TillsyncError('config-invalid', `The nats-server at ${url} is ${version}, which is too old.`, {
    hint: `Install nats-server ${SERVER_MIN.join('.')} or later: sudo apt install tillsync-hub. Debian 13 has it; for Debian 12 see docs/chain.md.`,
  });
}

/** What a nats-server shows to every client before it asks for a key. */
export interface ServerSeen {
  version: string;
  /** `server_name` of the server's configuration. */
  name: string;
  /** The server's certificate; null if connections are unencrypted. */
  certificate: {
    /** SHA-256 fingerprint of the certificate. */
    fingerprint: string;
    /** Reason why a branch would refuse the certificate; null if a branch accepts it. */
    fault: string | null;
  } | null;
}

const INFO = z.object({
  version: z.string(),
  server_name: z.string().default(''),
  tls_required: z.boolean().default(false),
});

/**
 * Returns host and port of a `nats://…` or `tls://…` address. `isName`: the host is a name, not a numeric
 * address.
 */
export function placeOf(url: string): { host: string; port: number; isName: boolean } {
  const { hostname, port } = new URL(url.replace(/^\w+:/, 'http:'));
  const host = hostname.replace(/^\[(.*)\]$/, '$1');
  return { host, port: Number(port || 4222), isName: !/^[\d.]+$|:/.test(host) };
}

/** Reads a PEM file. Throws `config-invalid` if the file cannot be read. */
export function readPem(file: string): string {
  try {
    return readFileSync(file, 'utf8');
  } catch (cause) {
    const why = cause instanceof Error && 'code' in cause ? String(cause.code) : String(cause);
    throw new TillsyncError('config-invalid', `${file} cannot be read (${why}).`, { cause });
  }
}

const PEM_LENGTH_MAX = 20_000;

/**
 * Reads the certificates of a PEM file, to send them to another machine, without a private key that may stand beside
 * them. Throws `config-invalid` if there are none.
 */
export function readAuthorities(file: string): string {
  const text = readPem(file);
  const found = text.match(/-----BEGIN CERTIFICATE-----[^-]+-----END CERTIFICATE-----/g) ?? [];
  if (text.length > PEM_LENGTH_MAX || found.length === 0 || !found.every(isCertificate)) {
    throw new TillsyncError('config-invalid', `${file} holds no certificate.`);
  }
  return `${found.join('\n')}\n`;
}

function isCertificate(pem: string): boolean {
  try {
    return new X509Certificate(pem).subject !== '';
  } catch {
    return false;
  }
}

/**
 * Connects and reads the server's greeting. `ca`: PEM text of the trusted certificate authorities, or null for those of
 * this machine. `calledAs`: the address that the certificate must name. Throws `link-down` if nothing answers,
 * `link-refused` if the answer is not from nats-server, `config-invalid` if the server is too old.
 */
export async function lookAtServer(
  url: string,
  { ca, calledAs }: { ca: string | null; calledAs: string },
  signal: AbortSignal,
): Promise<ServerSeen> {
  const { host, port } = placeOf(url);
  const socket = connect({ host, port });
  // Without this listener a later error of the socket would end the process. The `once` calls below report errors.
  socket.on('error', () => {});
  const ends = AbortSignal.any([signal, AbortSignal.timeout(TIMEOUT_MS)]);
  try {
    await once(socket, 'connect', { signal: ends });
    const info = INFO.safeParse(await greeting(socket, ends));
    if (!info.success) throw new TillsyncError('link-refused', `What answers at ${url} is no nats-server.`);
    const { version, server_name: name, tls_required: isSecure } = info.data;
    refuseOld(url, version);
    if (!isSecure) return { version, name, certificate: null };
    const called = placeOf(calledAs);
    const secure = connectSecure({
      socket,
      host: called.host,
      rejectUnauthorized: false,
      ...(called.isName && { servername: called.host }),
      ...(ca !== null && { ca }),
    });
    await once(secure, 'secureConnect', { signal: ends });
    const fingerprint = secure.getPeerX509Certificate()?.fingerprint256 ?? '';
    const fault = secure.authorized ? null : String(secure.authorizationError);
    return { version, name, certificate: { fingerprint, fault } };
  } catch (cause) {
    if (cause instanceof TillsyncError) throw cause;
    const code = cause instanceof Error && 'code' in cause ? String(cause.code) : String(cause);
    const why = code === 'ABORT_ERR' ? 'no answer in time' : code;
    throw new TillsyncError('link-down', `Nothing answers at ${url} (${why}).`, { cause });
  } finally {
    socket.destroy();
  }
}

/** Returns the parsed first line `INFO {…}`, or undefined if the server sends anything else. */
async function greeting(socket: Socket, signal: AbortSignal): Promise<unknown> {
  let text = '';
  while (!text.includes('\n') && text.length < GREETING_MAX) {
    const [part] = (await once(socket, 'data', { signal })) as [Buffer];
    text += part.toString('latin1');
    if (!'INFO '.startsWith(text.slice(0, 5))) return undefined;
  }
  // The bytes after the greeting belong to the TLS handshake.
  socket.pause();
  try {
    return JSON.parse(text.slice('INFO '.length));
  } catch {
    return undefined;
  }
}

/** The server's certificate, read from its file. */
export interface CertificateSeen {
  /** Sentence that says why no branch would accept the certificate; null if branches accept it. */
  fault: string | null;
  /** End of validity, milliseconds since 1970. */
  validToMs: number;
  /** SHA-256 fingerprint of the certificate. */
  fingerprint: string;
}

/**
 * Checks a certificate (PEM, the server's own first) and its key for branches that connect to `publicUrl`; an empty
 * `publicUrl` skips the check of the name. Throws `config-invalid` for unreadable files.
 */
export function lookAtCertificate(
  { certFile, keyFile }: { certFile: string; keyFile: string },
  publicUrl: string,
  nowMs: number,
): CertificateSeen {
  const [certificate, key] = [readPem(certFile), readPem(keyFile)];
  let read: X509Certificate;
  let fits: boolean;
  try {
    read = new X509Certificate(certificate);
    fits = read.checkPrivateKey(createPrivateKey(key));
  } catch {
    const fault = `${certFile} and ${keyFile} are no PEM files of a certificate and of a key without a password.`;
    return { fault, validToMs: 0, fingerprint: '' };
  }
  const validToMs = Date.parse(read.validTo);
  return { fault: faultOf(), validToMs, fingerprint: read.fingerprint256 };

  function faultOf(): string | null {
    if (!fits) return `The key in ${keyFile} does not belong to the certificate in ${certFile}.`;
    const to = publicUrl === '' ? undefined : placeOf(publicUrl);
    if (to && (to.isName ? read.checkHost(to.host) : read.checkIP(to.host)) === undefined) {
      const names = read.subjectAltName ?? 'no name at all';
      return `hub.public_url says ${to.host}, and the certificate in ${certFile} is for ${names}.`;
    }
    if (validToMs <= nowMs) return `The certificate in ${certFile} ended at ${isoUtc(validToMs)}.`;
    const validFromMs = Date.parse(read.validFrom);
    return validFromMs > nowMs
      ? `The certificate in ${certFile} is not valid before ${isoUtc(validFromMs)}.`
      : null;
  }
}
