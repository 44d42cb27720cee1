import { TillsyncError } from '../domain/errors.ts';

/** Faults before a connection stood, so that nothing of the request can have arrived. */
const BEFORE_SENDING = new Set([
  'ENOTFOUND',
  'EAI_AGAIN',
  'ECONNREFUSED',
  'EHOSTUNREACH',
  'ENETUNREACH',
  'UND_ERR_CONNECT_TIMEOUT',
  'DEPTH_ZERO_SELF_SIGNED_CERT',
  'SELF_SIGNED_CERT_IN_CHAIN',
  'UNABLE_TO_GET_ISSUER_CERT_LOCALLY',
  'UNABLE_TO_VERIFY_LEAF_SIGNATURE',
  'CERT_HAS_EXPIRED',
  'CERT_NOT_YET_VALID',
  'ERR_TLS_CERT_ALTNAME_INVALID',
]);

/** What undici or the system threw, as `platform-unreachable` that keeps its cause. */
export function networkFault(error: unknown): TillsyncError {
  const code = codeOf(error);
  return new TillsyncError(
    'platform-unreachable',
    `The platform gave no whole answer: ${code ?? 'unknown fault'}.`,
    {
      cause: error,
      hint: hintOf(code),
    },
  );
}

/** Whether a failed request certainly never left this machine, so that it changed nothing on the platform. */
export function neverSent(error: unknown): boolean {
  const cause = error instanceof TillsyncError ? error.cause : error;
  const causes = cause instanceof AggregateError ? cause.errors : [cause];
  return causes.length > 0 && causes.every((each) => BEFORE_SENDING.has(codeOf(each) ?? ''));
}

function codeOf(error: unknown): string | undefined {
  if (error instanceof AggregateError) return codeOf(error.errors[0]);
  if (typeof error !== 'object' || error === null || !('code' in error)) return undefined;
  return typeof error.code === 'string' ? error.code : undefined;
}

function hintOf(code: string | undefined): string {
  if (code === 'ENOTFOUND' || code === 'EAI_AGAIN') {
    return 'The name of platform.base_url cannot be resolved; check it and the DNS of this machine.';
  }
  if (code?.includes('CERT') || code?.includes('ISSUER')) {
    return "The platform's TLS certificate is not accepted; check this machine's clock and platform.base_url.";
  }
  return 'Check the internet connection of this machine; tillsync tries again by itself.';
}
