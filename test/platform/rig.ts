import { join } from 'node:path';
import { onTestFinished } from 'vitest';
import type { State } from '../../src/app/state.ts';
import { TillsyncError } from '../../src/core/errors.ts';
import { type Log, silentLog } from '../../src/core/log.ts';
import { PlatformClient } from '../../src/platform/client.ts';
import type { LockOut } from '../../src/platform/tokens.ts';
import type { Transport, TransportAnswer } from '../../src/platform/transport.ts';
import { createSandbox, type SandboxCore } from '../../src/sandbox/sandbox.ts';
import type { SandboxOptions } from '../../src/sandbox/shop.ts';
import { FakeClock, seededRandom } from '../support/fake-clock.ts';
import { documentLimits, tempDirectory, tempState } from './temp-state.ts';

type TransportRequest = Parameters<Transport['send']>[0];

type PlatformClientOptions = ConstructorParameters<typeof PlatformClient>[0];

/** Returns a socket's fault in the form of the real transport. */
function unreachable(): TillsyncError {
  return new TillsyncError('platform-unreachable', 'The connection ended.', {
    cause: Object.assign(new Error('other side closed'), { code: 'UND_ERR_SOCKET' }),
  });
}

/** Returns a transport that calls the sandbox without a socket, on the test's own clock. */
export function sandboxTransport(sandbox: SandboxCore, clock: FakeClock): Transport {
  return {
    async send(request: TransportRequest): Promise<TransportAnswer> {
      const ended = new AbortController();
      request.signal?.addEventListener('abort', () => ended.abort(), { once: true });
      if (request.timeoutMs !== undefined) {
        void clock.sleep(request.timeoutMs, ended.signal).then(() => ended.abort());
      }
      const answer = await sandbox.handle({
        method: request.method,
        url: request.path,
        headers: request.headers,
        body: request.body,
        signal: ended.signal,
      });
      const cut = ended.signal.aborted;
      ended.abort();
      if (request.signal?.aborted) throw new TillsyncError('aborted', 'Stopped.');
      if (answer.kind === 'dropped' || cut) throw unreachable();
      return { status: answer.status, headers: answer.headers, bytes: Buffer.from(answer.body) };
    },
    close: async () => {},
  };
}

export interface Rig {
  clock: FakeClock;
  sandbox: SandboxCore;
  state: State & { path: string };
  /** Makes a client like that of another process. All clients share one state.db. */
  client(options?: Partial<PlatformClientOptions>): PlatformClient;
  /** Advances time until the promise is settled. */
  run<T>(promise: Promise<T>, maxMs?: number): Promise<T>;
  /** Does the same as `run` for a promise that must reject, and returns its error. */
  fault(promise: Promise<unknown>, maxMs?: number): Promise<TillsyncError>;
  told: { lockOuts: LockOut[]; healed: number; logged: string[] };
}

export async function rig(options: Partial<SandboxOptions> & { seeded?: boolean } = {}): Promise<Rig> {
  const clock = new FakeClock();
  const sandbox = createSandbox({ clock, random: seededRandom(3), limits: documentLimits, ...options });
  onTestFinished(() => sandbox.close());
  const path = join(tempDirectory(), 'state.db');
  const state = tempState(clock, path);
  const told: Rig['told'] = { lockOuts: [], healed: 0, logged: [] };
  const note = (fields: object, message: string) => {
    told.logged.push(
      `${message} ${JSON.stringify(fields, (_key, value) => (value instanceof Error ? `${value} ${JSON.stringify(value)} ${String(value.cause)}` : value))}`,
    );
  };
  const log: Log = { ...silentLog, debug: note, info: note, warn: note, error: note };
  const client: Rig['client'] = (more = {}) => {
    const own = tempState(clock, path);
    return new PlatformClient({
      transport: sandboxTransport(sandbox, clock),
      ledger: own.ledger,
      tokens: own.tokens,
      limits: documentLimits,
      clock,
      random: seededRandom(5),
      log,
      onLockOut: (lockOut) => told.lockOuts.push(lockOut),
      onHealed: () => {
        told.healed += 1;
      },
      ...more,
    });
  };
  const run: Rig['run'] = async (promise, maxMs = 600_000) => {
    let settled = false;
    const done = promise.finally(() => {
      settled = true;
    });
    done.catch(() => undefined);
    for (let ms = 0; !settled && ms < maxMs; ms += 50) await clock.advance(50);
    if (!settled) throw new Error(`not settled within ${maxMs} ms of the clock`);
    return done;
  };
  const fault: Rig['fault'] = async (promise, maxMs) => {
    try {
      await run(promise, maxMs);
    } catch (error) {
      if (error instanceof TillsyncError) return error;
      throw error;
    }
    throw new Error('it did not fail');
  };
  if (options.seeded !== false) {
    const { token, refreshToken } = sandbox.issueTokens();
    await client().tokens.seed({ refreshToken, accessToken: token });
  }
  return { clock, sandbox, state, client, run, fault, told };
}
