import { once } from 'node:events';
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import type { Endpoint } from '../../../src/platform/platform.ts';
import type { SandboxCore } from '../../../src/sandbox/sandbox.ts';
import { endpointOf } from '../../../src/sandbox/settings.ts';

/**
 * Progress of a call: it has arrived; the platform has applied it and answered nothing yet; half of the answer is sent;
 * the whole answer is sent.
 */
export type CallPoint = 'arrived' | 'done' | 'half' | 'answered';

/** A value of a target (`stock:EXTERNAL_ID` or `price:SKU`) that the platform applied. */
export interface AppliedValue {
  target: string;
  value: number;
}

export interface GateCall {
  endpoint: Endpoint;
  /** Number of the daemon's run in which the call was made. */
  life: number;
  applied: AppliedValue[];
  /** Monotonic milliseconds when the whole answer was passed to the network; null if never. */
  answeredMs: number | null;
}

export interface Ambush {
  endpoints: readonly Endpoint[];
  point: CallPoint;
  act: () => void;
}

/** A proxy between daemon and sandbox, which can stop a call at any of its points and records every value. */
export class PlatformGate {
  readonly #core: SandboxCore;
  readonly #server = createServer((request, response) => void this.#carry(request, response));
  readonly calls: GateCall[] = [];
  /** The refresh token that the platform accepts now. */
  refreshToken: string;
  /** The last call that rotated the tokens. */
  lastRotation: GateCall | undefined;
  life = 0;
  ambush: Ambush | undefined;

  constructor(core: SandboxCore, refreshToken: string) {
    this.#core = core;
    this.refreshToken = refreshToken;
  }

  /** Starts the proxy; returns its base address for the daemon. */
  async listen(): Promise<string> {
    this.#server.listen(0, '127.0.0.1');
    await once(this.#server, 'listening');
    const address = this.#server.address();
    if (address === null || typeof address === 'string') throw new Error('The gate has no port');
    return `http://127.0.0.1:${address.port}`;
  }

  async close(): Promise<void> {
    this.#server.closeAllConnections();
    this.#server.close();
    await once(this.#server, 'close');
  }

  async #carry(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const { method = 'GET', url = '/' } = request;
    const { life } = this;
    try {
      const body = await bodyOf(request);
      const { pathname } = new URL(url, 'http://gate.invalid');
      const endpoint = endpointOf(method, pathname, this.#core.control.settings());
      if (endpoint === undefined) throw new Error(`No such endpoint: ${method} ${pathname}`);
      const call: GateCall = { endpoint, life, applied: [], answeredMs: null };
      if (this.#strikes(call, 'arrived')) return void response.destroy();
      const headers = { ...request.headers } as Record<string, string | undefined>;
      const answer = await this.#core.handle({ method, url, headers, body });
      if (answer.kind === 'dropped') return void response.destroy();
      this.#note(call, body, answer);
      if (this.#strikes(call, 'done')) return void response.destroy();
      const bytes = Buffer.from(answer.body);
      response.writeHead(answer.status, { ...answer.headers, 'content-length': String(bytes.length) });
      const half = bytes.length >> 1;
      await written(response, bytes.subarray(0, half));
      if (this.#strikes(call, 'half')) return void response.destroy();
      await written(response, bytes.subarray(half));
      call.answeredMs = performance.now();
      response.end();
      this.#strikes(call, 'answered');
    } catch {
      // The caller was killed while it sent or read.
      response.destroy();
    }
  }

  #strikes(call: GateCall, point: CallPoint): boolean {
    const { ambush } = this;
    if (ambush?.point !== point || !ambush.endpoints.includes(call.endpoint)) return false;
    this.ambush = undefined;
    ambush.act();
    return true;
  }

  #note(call: GateCall, sent: Buffer, answer: { status: number; body: string }): void {
    this.calls.push(call);
    if (answer.status !== 200) return;
    const said = JSON.parse(answer.body) as Answer;
    if (call.endpoint === 'token.refresh') {
      this.refreshToken = said.data.refreshToken ?? '';
      this.lastRotation = call;
      return;
    }
    if (sent.length === 0 || !call.endpoint.startsWith('product.')) return;
    const asked = JSON.parse(sent.toString()) as Item & { products?: Item[] };
    const refused = new Set(said.data.errors?.map(({ index }) => index));
    if (said.success)
      call.applied = (asked.products ?? [asked]).flatMap((item, i) =>
        refused.has(i) ? [] : appliedValue(item),
      );
  }
}

/** An item of a batch, as in the platform's document. */
interface Item {
  externalId?: string;
  sku?: number;
  qty?: number;
  price?: number;
}

interface Answer {
  success: boolean;
  data: { refreshToken?: string; errors?: { index: number }[] };
}

/** Returns the value of an item; empty if it sets neither a count nor a price. */
export function appliedValue({ externalId, sku, qty, price }: Item): AppliedValue[] {
  if (qty !== undefined) return [{ target: `stock:${externalId}`, value: qty }];
  return price === undefined ? [] : [{ target: `price:${sku ?? externalId?.split('-')[1]}`, value: price }];
}

async function bodyOf(request: IncomingMessage): Promise<Buffer> {
  const parts: Buffer[] = [];
  for await (const part of request) parts.push(part as Buffer);
  return Buffer.concat(parts);
}

function written(response: ServerResponse, bytes: Buffer): Promise<void> {
  return new Promise((resolve, reject) =>
    response.write(bytes, (error) => (error ? reject(error) : resolve())),
  );
}
