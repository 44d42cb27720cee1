import { connect, type Socket } from 'node:net';
import { Agent, request } from 'undici';

export const SECRET = 'agreed-secret';

export interface Answer {
  status: number;
  headers: Record<string, string | string[] | undefined>;
  text: string;
}

/** Sends one request, by default a POST with the right secret on a connection of its own. */
export async function post(
  url: string,
  body: string | Uint8Array | null,
  options: { headers?: Record<string, string | string[]>; method?: string; dispatcher?: Agent } = {},
): Promise<Answer> {
  const dispatcher =
    options.dispatcher ?? new Agent({ pipelining: 0, connect: { rejectUnauthorized: false } });
  try {
    const response = await request(url, {
      method: (options.method ?? 'POST') as 'POST',
      headers: { 'content-type': 'application/json', 'x-webhook-secret': SECRET, ...options.headers },
      body,
      dispatcher,
    });
    return { status: response.statusCode, headers: response.headers, text: await response.body.text() };
  } finally {
    if (!options.dispatcher) await dispatcher.close();
  }
}

/** A plain socket, for requests that no HTTP client would send. */
export class RawConnection {
  readonly socket: Socket;
  text = '';
  readonly closed: Promise<void>;

  constructor(port: number) {
    this.socket = connect(port, '127.0.0.1');
    this.socket.on('data', (chunk) => {
      this.text += chunk.toString('latin1');
    });
    this.socket.on('error', () => {});
    this.closed = new Promise((resolve) => this.socket.on('close', () => resolve()));
  }

  write(text: string | Uint8Array): Promise<void> {
    return new Promise((resolve) => this.socket.write(text, () => resolve()));
  }

  /** Waits until the answer contains `part` or the connection has ended. */
  async until(part: string): Promise<string> {
    let ended = false;
    void this.closed.then(() => {
      ended = true;
    });
    while (!this.text.includes(part) && !ended) await new Promise((resolve) => setTimeout(resolve, 1));
    return this.text;
  }

  get status(): number {
    return Number(/^HTTP\/1\.1 (\d{3})/.exec(this.text)?.[1]);
  }
}
