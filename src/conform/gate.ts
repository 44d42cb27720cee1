import { once } from 'node:events';
import { mkdirSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import {
  Agent,
  createServer,
  type IncomingMessage,
  request,
  type Server,
  type ServerResponse,
} from 'node:http';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import type { Clock } from '../core/time.ts';

/** A request of the till, with its answer. */
export interface Asked {
  /**
   * Number of the request in the order of arrival. `answered`: number of requests that had arrived when it was
   * answered.
   */
  number: number;
  answered: number;
  atMs: number;
  method: string;
  path: string;
  status: number;
  /** Parsed JSON of a POST; undefined for other methods. */
  body: unknown;
}

/** How a request is refused: with an HTTP status, or by cutting the connection. */
export type Refusal = { status: number; retryAfterS: number } | 'cut';

const BODY_MAX_BYTES = 8 * 1024 * 1024;
const ASKED_MAX = 50_000;

/**
 * Proxy between the till and the local API. It records each request, and refuses some as a busy or stopped tillsync
 * would. Its address stays the same while tillsync restarts.
 */
export class Gate {
  readonly asked: Asked[] = [];
  /** Number of requests that arrived, including those that are not answered yet. */
  arrived = 0;
  /** Returns how to refuse a request; undefined passes it on. Set only while requests are to be refused. */
  refuse: ((method: string) => Refusal | undefined) | undefined;
  /** Number of requests that `hold` holds. */
  held = 0;
  #holding: Promise<void> | undefined;
  readonly #clock: Clock;
  readonly #target: () => string | undefined;
  readonly #server: Server;
  readonly #agent = new Agent({ keepAlive: true });

  /** `target` returns the address of the local API; undefined while tillsync does not run. */
  constructor(clock: Clock, target: () => string | undefined) {
    this.#clock = clock;
    this.#target = target;
    this.#server = createServer((asked, answer) => void this.#carry(asked, answer));
  }

  async listen(): Promise<string> {
    this.#server.listen(0, '127.0.0.1');
    await once(this.#server, 'listening');
    return `http://127.0.0.1:${(this.#server.address() as AddressInfo).port}`;
  }

  async close(): Promise<void> {
    this.#server.closeAllConnections();
    await new Promise<void>((resolve) => this.#server.close(() => resolve()));
    this.#agent.destroy();
  }

  /** Holds each POST on its way to tillsync until the returned function is called. */
  hold(): () => void {
    const { promise, resolve } = Promise.withResolvers<void>();
    this.#holding = promise;
    return () => {
      this.#holding = undefined;
      resolve();
    };
  }

  async #carry(asked: IncomingMessage, answer: ServerResponse): Promise<void> {
    const { method = 'GET', url = '/', headers } = asked;
    this.arrived += 1;
    const [number, atMs] = [this.arrived, this.#clock.nowMs()];
    const note = (status: number, body?: unknown) => {
      const path = url.split('?', 1)[0] ?? url;
      if (this.asked.length < ASKED_MAX)
        this.asked.push({ number, answered: this.arrived, atMs, method, path, status, body });
    };
    const cut = () => {
      note(0);
      asked.socket.destroy();
    };
    const body = await read(asked).catch(() => undefined);
    if (method === 'POST' && this.#holding) {
      this.held += 1;
      await this.#holding;
    }
    const target = this.#target();
    const refusal = target === undefined ? 'cut' : this.refuse?.(method);
    if (body === undefined || target === undefined || refusal === 'cut') return cut();
    const parsed = method === 'POST' ? jsonOf(body) : undefined;
    if (refusal) {
      const { status, retryAfterS } = refusal;
      note(status, parsed);
      answer.writeHead(status, { 'content-type': 'application/json', 'retry-after': String(retryAfterS) });
      const error = { code: 'rate-limited', message: 'Not now. Nothing was taken.', hint: null };
      answer.end(JSON.stringify({ error }));
      return;
    }
    const { host: _host, 'transfer-encoding': _encoding, ...rest } = headers;
    const onward = request(target + url, {
      method,
      headers: { ...rest, ...(body.length > 0 && { 'content-length': String(body.length) }) },
      agent: this.#agent,
    });
    onward.on('error', cut);
    onward.on('response', (given) => {
      note(given.statusCode ?? 0, parsed);
      answer.writeHead(given.statusCode ?? 502, given.headers);
      given.pipe(answer);
      given.on('error', () => asked.socket.destroy());
    });
    answer.on('close', () => onward.destroy());
    onward.end(body);
  }
}

async function read(asked: IncomingMessage): Promise<Buffer> {
  const parts: Buffer[] = [];
  let bytes = 0;
  for await (const part of asked as AsyncIterable<Buffer>) {
    bytes += part.length;
    if (bytes > BODY_MAX_BYTES) throw new RangeError('The body is too large');
    parts.push(part);
  }
  return Buffer.concat(parts);
}

function jsonOf(body: Buffer): unknown {
  try {
    return JSON.parse(body.toString());
  } catch {
    return undefined;
  }
}

/**
 * Files in the directory of the script. The script appends a line to `calls` for each call and to `refused` for each
 * refused call. It refuses calls while the file `refuse` exists, and lets them wait while the file `hold` exists. Of
 * calls that hand something over, `files` has the arguments, the files and the standard input.
 */
const CALLS = 'calls';
const REFUSED = 'refused';
const REFUSE = 'refuse';
const HOLD = 'hold';
/** First line of a file that has the arguments of a call, one a line. */
export const ARGUMENTS = '# arguments';

/**
 * A script `tillsync` between the till and tillsync's commands. It records each call, copies the files handed over, and
 * refuses some calls as a locked store would. It runs the kit's own tillsync, never one that is installed.
 */
export class CommandGate {
  /** Directory of the script, for the till's PATH. */
  readonly directory: string;

  /**
   * `program` is the command line that starts tillsync; `env` has the variables that tillsync needs, such as its
   * configuration.
   */
  constructor(directory: string, program: readonly string[], env: Record<string, string>) {
    this.directory = directory;
    mkdirSync(join(directory, 'files'), { recursive: true });
    for (const name of [CALLS, REFUSED]) writeFileSync(join(directory, name), '');
    const settings = Object.entries(env).map(([name, value]) => `export ${name}=${quoted(value)}\n`);
    const text = `#!/bin/sh
gate=$(dirname "$0")
echo call >> "$gate/${CALLS}"
case " $* " in
*" push "* | *" ack "*)
  while [ -e "$gate/${HOLD}" ]; do sleep 0.1; done
  if [ -e "$gate/${REFUSE}" ]; then
    echo refused >> "$gate/${REFUSED}"
    echo 'Another program keeps the files locked. Nothing was taken.' >&2
    exit 1
  fi
  kept=$(mktemp "$gate/files/XXXXXX")
  { echo '${ARGUMENTS}'; printf '%s\\n' "$@"; } > "$kept"
  input= last=
  for word; do
    if [ "$word" = - ]; then input=yes
    elif [ -f "$word" ]; then cp "$word" "$(mktemp "$gate/files/XXXXXX")"; fi
    last=$word
  done
  if [ "$input" ] || [ "$last" = ack ]; then
    kept=$(mktemp "$gate/files/XXXXXX")
    cat > "$kept"
    exec < "$kept"
  fi ;;
esac
${settings.join('')}exec ${program.map(quoted).join(' ')} "$@"
`;
    writeFileSync(join(directory, 'tillsync'), text, { mode: 0o755 });
  }

  /** Number of calls, including refused ones. */
  get arrived(): number {
    return this.#lines(CALLS);
  }

  /** Number of refused calls. */
  get refused(): number {
    return this.#lines(REFUSED);
  }

  /** Starts or stops the refusal of calls that hand over changes or acknowledgements. */
  refuse(isRefusing: boolean): void {
    this.#mark(REFUSE, isRefusing);
  }

  /** Lets calls that hand over changes or acknowledgements wait, or go on. */
  hold(isHolding: boolean): void {
    this.#mark(HOLD, isHolding);
  }

  /** Returns the texts of the files that were handed over and contain the text, oldest first. */
  textsWith(text: string): string[] {
    const files = join(this.directory, 'files');
    return readdirSync(files)
      .map((name) => ({
        at: statSync(join(files, name)).mtimeMs,
        text: readFileSync(join(files, name), 'utf8'),
      }))
      .filter((each) => each.text.includes(text))
      .sort((one, other) => one.at - other.at)
      .map((each) => each.text);
  }

  #mark(name: string, isOn: boolean): void {
    const file = join(this.directory, name);
    if (isOn) writeFileSync(file, '');
    else rmSync(file, { force: true });
  }

  #lines(name: string): number {
    return readFileSync(join(this.directory, name), 'utf8').split('\n').length - 1;
  }
}

function quoted(word: string): string {
  return `'${word.replaceAll("'", `'\\''`)}'`;
}
