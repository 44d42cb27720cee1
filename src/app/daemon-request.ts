import { existsSync } from 'node:fs';
import { CompactEncrypt, compactDecrypt, exportJWK, generateKeyPair, importJWK } from 'jose';
import type { Config } from '../config/config-type.ts';
import { asTillsyncError, TillsyncError, whenFree } from '../core/errors.ts';
import { openWhenFree } from '../core/files.ts';
import type { Clock } from '../core/time.ts';
import type { DaemonRequest, RequestRows } from '../db/daemon-requests.ts';
import { openState } from './state.ts';
import { RUNNING, storagePaths } from './storage.ts';

/** Time after which a request is ignored, because its command waits no longer. */
const REQUEST_HOLDS_MS = 60_000;
const LOOK_FOR_ANSWER_MS = 100;
/** Time that a command waits beyond the work's own time limit. The daemon checks for requests every second. */
const DAEMON_PATIENCE_MS = 10_000;

/** Algorithms by which a result is encrypted for the command that requested it. */
const SEAL = { alg: 'ECDH-ES', enc: 'A256GCM' };

function isOpen({ result, fault }: DaemonRequest<unknown>): boolean {
  return result === null && fault === null;
}

async function sealed(result: unknown, { key }: DaemonRequest<unknown>): Promise<string> {
  const bytes = Buffer.from(JSON.stringify(result));
  return new CompactEncrypt(bytes).setProtectedHeader(SEAL).encrypt(await importJWK(key, SEAL.alg));
}

/**
 * Handles a command's request inside the daemon, which means as the service's user and in its sandbox. Throws
 * `storage-…`.
 */
export async function answerRequest<Asked, Result>(
  rows: RequestRows,
  name: string,
  { clock, signal }: { clock: Clock; signal: AbortSignal },
  answer: (asked: Asked) => Promise<Result>,
): Promise<void> {
  const request = await whenFree(clock, () => rows.read<Asked>(name), undefined, signal);
  if (!request || !isOpen(request) || Math.abs(clock.nowMs() - request.askedAtMs) >= REQUEST_HOLDS_MS) return;
  const done = await answer(request.asked)
    .then((result) => sealed(result, request))
    .then(
      (result) => ({ result, fault: null }),
      (error) => ({ result: null, fault: asTillsyncError(error).message }),
    );
  await whenFree(clock, () => rows.write(name, { ...request, ...done }));
}

export interface AskOptions<Asked> {
  config: Pick<Config, 'storage'>;
  clock: Clock;
  signal: AbortSignal;
  name: string;
  asked: Asked;
  /** Time limit for the work. */
  timeoutMs: number;
}

/**
 * Asks the running daemon to do the work, as its user and inside its sandbox, so that the result is the same as when
 * the daemon works by itself. Returns undefined if no daemon runs. Throws `internal` if the daemon does not answer or
 * the work fails, `storage-…` if this user may not ask.
 */
export async function askRunning<Asked, Result>(options: AskOptions<Asked>): Promise<Result | undefined> {
  const { config, clock, signal, name, asked, timeoutMs } = options;
  const { state: path } = storagePaths(config.storage.directory);
  if (!existsSync(path)) return undefined;
  const state = await openWhenFree(clock, () => openState({ path, clock }));
  try {
    if (!(await whenFree(clock, () => state.leases.isHeld(RUNNING)))) return undefined;
    const free = <T>(action: () => T) => whenFree(clock, action, undefined, signal);
    const { publicKey, privateKey } = await generateKeyPair(SEAL.alg);
    const key = await exportJWK(publicKey);
    const askedAtMs = clock.nowMs();
    const endMs = clock.monotonicMs() + timeoutMs + DAEMON_PATIENCE_MS;
    await free(() => state.requests.write(name, { askedAtMs, asked, key, result: null, fault: null }));
    let fault = 'The running tillsync did not answer.';
    while (!signal.aborted && clock.monotonicMs() < endMs) {
      await clock.sleep(LOOK_FOR_ANSWER_MS, signal);
      const request = await free(() => state.requests.read<Asked>(name));
      if (request?.askedAtMs !== askedAtMs || isOpen(request)) continue;
      if (request.result !== null) {
        const { plaintext } = await compactDecrypt(request.result, privateKey);
        return JSON.parse(Buffer.from(plaintext).toString()) as Result;
      }
      fault = request.fault ?? fault;
      break;
    }
    throw new TillsyncError(signal.aborted ? 'aborted' : 'internal', fault, {
      hint: 'If the configuration was changed since it started: {restart}',
    });
  } finally {
    state.close();
  }
}
