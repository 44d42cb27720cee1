import { TillsyncError } from '../domain/errors.ts';

/** What was to be reached. */
export interface Address {
  host: string;
  port: number;
}

const ONLINE =
  'Check the internet connection and the firewall of this machine; tillsync tries again by itself.';
const CLOCK = "Check this machine's clock, and platform.base_url.";
const SPELLING = 'Check the address and its port.';

/** What is wrong, and what to do about it. All but ETIMEDOUT come only before a connection stands. */
const FAULTS: Record<string, [fault: string, hint: string]> = {
  ENOTFOUND: [
    'the name {host} was not found',
    'Check the spelling of the address, and the DNS of this machine.',
  ],
  EAI_AGAIN: [
    'the name {host} was not found',
    'Check the spelling of the address, and the DNS of this machine.',
  ],
  ECONNREFUSED: ['{host} refuses connections on port {port}', `${SPELLING} ${ONLINE}`],
  EHOSTUNREACH: ['there is no way through the network to {host}', ONLINE],
  ENETUNREACH: ['this machine is not connected to a network that leads to {host}', ONLINE],
  ETIMEDOUT: ['{host} did not answer on port {port}', ONLINE],
  UND_ERR_CONNECT_TIMEOUT: ['{host} did not answer on port {port}', ONLINE],
  DEPTH_ZERO_SELF_SIGNED_CERT: ['the certificate of {host} is signed by nobody this machine trusts', CLOCK],
  SELF_SIGNED_CERT_IN_CHAIN: ['the certificate of {host} is signed by nobody this machine trusts', CLOCK],
  UNABLE_TO_GET_ISSUER_CERT_LOCALLY: [
    'the certificate of {host} is signed by nobody this machine trusts',
    CLOCK,
  ],
  UNABLE_TO_VERIFY_LEAF_SIGNATURE: [
    'the certificate of {host} is signed by nobody this machine trusts',
    CLOCK,
  ],
  CERT_HAS_EXPIRED: ['the certificate of {host} has expired', CLOCK],
  CERT_NOT_YET_VALID: ['the certificate of {host} is not valid yet', CLOCK],
  ERR_TLS_CERT_ALTNAME_INVALID: ['the certificate there is not one of {host}', CLOCK],
};
const NOT_HTTPS = /^ERR_SSL|^EPROTO$/;

/** What undici or the system threw, as `platform-unreachable` that keeps its cause. */
export function networkFault(error: unknown, address: Address): TillsyncError {
  const code = codeOf(error);
  const [fault, hint] = sentenceOf(code);
  const told = fault.replace('{host}', address.host).replace('{port}', String(address.port));
  const ending = code === undefined ? '' : ` (${code})`;
  return new TillsyncError('platform-unreachable', `Cannot reach the platform: ${told}${ending}.`, {
    cause: error,
    hint,
  });
}

/** No whole answer came within the time that a call may take. */
export function noAnswerWithin(timeoutMs: number): TillsyncError {
  return new TillsyncError(
    'platform-unreachable',
    `The platform gave no whole answer within ${timeoutMs / 1000} s.`,
    { hint: ONLINE },
  );
}

/** Whether a failed request certainly never left this machine, so that it changed nothing on the platform. */
export function neverSent(error: unknown): boolean {
  const cause = error instanceof TillsyncError ? error.cause : error;
  const causes = cause instanceof AggregateError ? cause.errors : [cause];
  return causes.length > 0 && causes.every((each) => isBeforeSending(codeOf(each)));
}

/** Host and port of an address such as `https://api.example.com/v1`. */
export function addressOf(baseUrl: string): Address & { isTls: boolean } {
  const { protocol, hostname, port } = new URL(baseUrl);
  const isTls = protocol === 'https:';
  return { host: hostname.replace(/^\[(.*)\]$/, '$1'), port: Number(port) || (isTls ? 443 : 80), isTls };
}

function isBeforeSending(code: string | undefined): boolean {
  return code !== undefined && code !== 'ETIMEDOUT' && Object.hasOwn(FAULTS, code);
}

function sentenceOf(code = ''): [fault: string, hint: string] {
  const known = Object.hasOwn(FAULTS, code) ? FAULTS[code] : undefined;
  if (known) return known;
  if (code.startsWith('HPE_')) return ['what answers at {host} on port {port} does not speak http', SPELLING];
  if (NOT_HTTPS.test(code)) return ['what answers at {host} on port {port} does not speak https', SPELLING];
  return ['the connection to {host} broke before the answer was whole', ONLINE];
}

function codeOf(error: unknown): string | undefined {
  if (error instanceof AggregateError) return codeOf(error.errors[0]);
  if (typeof error !== 'object' || error === null || !('code' in error)) return undefined;
  return typeof error.code === 'string' ? error.code : undefined;
}
