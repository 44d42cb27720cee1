import { Agent, request } from 'undici';
import { onTestFinished } from 'vitest';
import type { PlatformLimits } from '../../src/platform/platform.ts';
import { type Sandbox, startSandbox } from '../../src/sandbox/server.ts';
import type { SandboxServerOptions } from '../../src/sandbox/shop.ts';
import { FakeClock, seededRandom } from '../support/fake-clock.ts';

export const LIMITS: PlatformLimits = {
  endpointIntervalMs: 1000,
  ordersIntervalMs: 120_000,
  windowMs: 300_000,
  requestsPerWindow: 1000,
  ordersPerWindow: 100,
};

export interface Answer {
  status: number;
  headers: Record<string, string | string[] | undefined>;
  text: string;
  /** The body as JSON, for tests that know its shape. */
  // biome-ignore lint/suspicious/noExplicitAny: answers are judged by what the tests expect of them
  json: any;
}

export interface Rig {
  sandbox: Sandbox;
  clock: FakeClock;
  tokens: { token: string; refreshToken: string };
  /** Calls the API with the rig's access token over real HTTP. */
  call(method: string, path: string, body?: unknown, token?: string | null): Promise<Answer>;
  /** Does the same as `call`, after the endpoint's interval has passed. */
  later(method: string, path: string, body?: unknown): Promise<Answer>;
}

/** Makes a sandbox on a fake clock behind a real socket, closed at the end of the test. */
export async function rig(options: Partial<SandboxServerOptions> = {}): Promise<Rig> {
  const clock = new FakeClock();
  const sandbox = await startSandbox({ clock, random: seededRandom(7), limits: LIMITS, ...options });
  const agent = new Agent();
  onTestFinished(async () => {
    await sandbox.close();
    await agent.destroy();
  });
  const tokens = sandbox.issueTokens();
  const call: Rig['call'] = async (method, path, body, token = tokens.token) => {
    const answer = await request(sandbox.url + path, {
      method,
      dispatcher: agent,
      headers: {
        ...(token === null ? {} : { authorization: `Bearer ${token}` }),
        ...(body === undefined ? {} : { 'content-type': 'application/json' }),
      },
      ...(body === undefined ? {} : { body: typeof body === 'string' ? body : JSON.stringify(body) }),
    });
    const text = await answer.body.text();
    return { status: answer.statusCode, headers: answer.headers, text, json: parse(text) };
  };
  const later: Rig['later'] = async (method, path, body) => {
    await clock.advance(LIMITS.ordersIntervalMs);
    return call(method, path, body);
  };
  return { sandbox, clock, tokens, call, later };
}

function parse(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}
