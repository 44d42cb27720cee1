import { randomUUID } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import type { JetStreamClient, JetStreamManager, JsMsg } from '@nats-io/jetstream';
import type { Msg, NatsConnection } from '@nats-io/transport-node';
import { hasCode, TillsyncError } from '../core/errors.ts';
import { isSecure } from '../core/values.ts';
import {
  type BranchLink,
  type DownMessage,
  ENTRIES_KEPT_MS,
  type HubLink,
  type Question,
  type QuestionHandler,
  SUPPORT_QUESTIONS,
  type SupportHandler,
  type SupportQuestion,
} from './link.ts';
import {
  answerSubject,
  askSubject,
  clientName,
  downSubject,
  inboxOf,
  STREAM,
  upSubject,
} from './server-config.ts';
import { refuseOld } from './server-look.ts';
import type { Ways } from './ways.ts';

const CONNECT_TIMEOUT_MS = 10_000;
/**
 * Number of refusals in a row after which a client's key counts as unknown. A server that reloads its configuration
 * refuses known keys too, for up to three reloads in a row.
 */
const REFUSALS_MAX = 4;
const AFTER_REFUSAL_MS = 250;
/**
 * Number of attempts to reconnect, which take about five seconds in all. Then a new connection is made, to another
 * address if there is one.
 */
const TRIES_OF_A_WAY = 2;
/** Number of unanswered questions in a row after which another address is tried, although the server is connected. */
const UNANSWERED_MAX = 3;
export const ANSWER_TIMEOUT_MS = 15_000;
const PUBLISH_TIMEOUT_MS = 10_000;
const FETCH_MAX = 200;
/** Duration of one fetch. It is limited because an endless fetch may stop silently after a reconnect. */
const FETCH_MS = 15_000;
const HEARTBEAT_MS = 5_000;
/** Interval at which a branch reports that it still works on an answer. */
const SIGN_EVERY_MS = 2_000;
/** Silence of a branch after which the hub stops waiting for its answer. */
const SILENCE_MS = 8_000;
/**
 * Size of one part of an answer. The server accepts 8 MB, but other messages would wait behind so long a
 * part.
 */
const PART_BYTES = 512 * 1024;
const NO_RESPONDERS = 503;
/** Prefix of a reply subject that the server rewrote for another account. */
const REPLY_ACROSS_ACCOUNTS = '_R_.';
/** Error code of nats-server for `error creating store for consumer`. */
const CONSUMER_NOT_MADE = 10_012;
const SECOND_NS = 1_000_000_000;
/**
 * Time after which the server resends what a branch has not acknowledged, for example after a broken
 * connection.
 */
const ACK_WAIT_NS = 10 * SECOND_NS;
const STREAM_BYTES = 8 * 1024 ** 3;

export type HubUser = '@hub' | '@system';

export interface NatsOptions {
  url: string;
  /** Seed of the user's nkey. */
  seed: string;
  /**
   * User name at the server: the branch's id, or one of the hub's own users, whose names no branch can have.
   */
  user: string | HubUser;
  /** TLS settings; null for an unencrypted connection inside one machine. */
  tls: LinkTls | null;
  /** Addresses to try in turn, instead of `url`. `tls` is used only for those with TLS. */
  ways?: Ways | undefined;
}

export interface LinkTls {
  /** PEM of the trusted authority; null means the authorities that this machine trusts. */
  ca: string | null;
  /** Name in the server's certificate, if it differs from the address. */
  serverName: string | null;
  /** True to accept any certificate; used only where nothing confidential is sent. */
  takesAny?: boolean;
}

/** Options, or a function that reads them again for each connection. */
type AnyOptions = NatsOptions | (() => Promise<NatsOptions>);

/** Manages one connection to the server, which is opened on first use and again after each loss. */
export class NatsWire {
  readonly #read: () => Promise<NatsOptions>;
  readonly #onConnection: (connection: NatsConnection) => void;
  #connection: NatsConnection | undefined;
  /** Called after a reconnect or a close, because the server has then forgotten the client's requests. */
  onAgain: () => void = () => {};
  #connecting: Promise<NatsConnection> | undefined;

  constructor(options: AnyOptions, onConnection: (connection: NatsConnection) => void = () => {}) {
    this.#read = typeof options === 'function' ? options : async () => options;
    this.#onConnection = onConnection;
  }

  /**
   * Returns the connection, opening it if needed. Throws `link-down`, `link-refused` for an unknown key,
   * `config-invalid` for a server that is too old, and errors of the function that reads the options.
   */
  async connection(): Promise<NatsConnection> {
    if (this.#connection && !this.#connection.isClosed()) return this.#connection;
    // Several loops may ask at once, and a second connection would never be closed.
    this.#connecting ??= this.#connect().finally(() => {
      this.#connecting = undefined;
    });
    return this.#connecting;
  }

  /** Closes the connection and tries its address last from now on. Does nothing if there is only one address. */
  async giveUp(): Promise<void> {
    const { ways } = await this.#read();
    if (ways?.giveUp()) await this.#connection?.close();
  }

  async #connect(): Promise<NatsConnection> {
    const { ways, tls, ...options } = await this.#read();
    if (!ways) return this.#connectTo({ ...options, tls });
    let fault: unknown;
    for (const url of ways.list()) {
      try {
        const made = await this.#connectTo({ ...options, url, tls: isSecure(url) ? tls : null });
        ways.noteWorked(url);
        return made;
      } catch (error) {
        // A refused key or a too old server is reported rather than an unreachable one, because a person can act on it.
        if (!hasCode(fault, 'link-refused', 'config-invalid')) fault = error;
      }
    }
    throw fault;
  }

  async #connectTo({ url, tls, seed, user }: NatsOptions): Promise<NatsConnection> {
    const { connect, nkeyAuthenticator } = await import('@nats-io/transport-node');
    const open = () =>
      connect({
        servers: url,
        name: clientName(user),
        authenticator: nkeyAuthenticator(new TextEncoder().encode(seed)),
        inboxPrefix: inboxOf(user),
        timeout: CONNECT_TIMEOUT_MS,
        // After these attempts a new connection is made, which reports why it fails or uses another address.
        maxReconnectAttempts: TRIES_OF_A_WAY,
        reconnectTimeWait: 1_000,
        reconnectJitter: 1_000,
        reconnectJitterTLS: 2_000,
        ignoreAuthErrorAbort: true,
        ignoreClusterUpdates: true,
        pingInterval: 20_000,
        ...(tls && {
          tls: {
            ...(tls.ca !== null && { ca: tls.ca }),
            ...(tls.serverName !== null && { servername: tls.serverName }),
            ...(tls.takesAny === true && { rejectUnauthorized: false }),
          },
        }),
      });
    let made: NatsConnection;
    try {
      made = await againWhenRefused(open);
    } catch (cause) {
      if (isUnknownKey(cause) && !user.startsWith('@')) throw unknownKey(user, cause);
      throw down(cause, `The nats-server at ${url} cannot be reached`);
    }
    try {
      refuseOld(url, made.info?.version ?? '0');
    } catch (error) {
      await made.close();
      throw error;
    }
    this.#connection = made;
    void this.#watch(made);
    this.#onConnection(made);
    return made;
  }

  async #watch(made: NatsConnection): Promise<void> {
    for await (const status of made.status()) {
      if (status.type === 'reconnect') this.onAgain();
      // A client whose key was removed would retry for ever without an error; a new connection reports the
      // reason.
      if (status.type === 'error' && isUnknownKey(status.error)) await made.close();
    }
    // The connection was closed, for example to use another address, so open requests get no answer.
    this.onAgain();
  }

  async close(): Promise<void> {
    await this.#connecting?.catch(() => {});
    const made = this.#connection;
    this.#connection = undefined;
    // `drain` would wait for a server that may not answer any more.
    await made?.close();
  }
}

/**
 * Opens a connection, and tries again if the key is refused, because the server may be reloading its
 * configuration.
 */
async function againWhenRefused(open: () => Promise<NatsConnection>): Promise<NatsConnection> {
  for (let refusals = 1; ; refusals++) {
    try {
      return await open();
    } catch (cause) {
      if (!isUnknownKey(cause) || refusals === REFUSALS_MAX) throw cause;
      await sleep(AFTER_REFUSAL_MS);
    }
  }
}

/** Returns whether the server refused the key. Its error is the same for unknown and for removed keys. */
function isUnknownKey(cause: unknown): boolean {
  return cause instanceof Error && /authorization violation/i.test(cause.message);
}

function unknownKey(branch: string, cause: unknown): TillsyncError {
  return new TillsyncError('link-refused', `The hub does not know the key of branch ${branch}.`, {
    cause,
    hint: `At the hub, invite the branch again: sudo tillsync branch invite ${branch}`,
  });
}

/** Returns a `link-down` error with the reason. */
export function down(cause: unknown, what: string): TillsyncError {
  const why = cause instanceof Error ? cause.message : String(cause);
  return new TillsyncError('link-down', `${what} (${why}).`, { cause });
}

/** The hub's side of the link over JetStream. */
export class NatsHubLink implements HubLink {
  readonly #wire: NatsWire;
  #manager: JetStreamManager | undefined;
  #client: JetStreamClient | undefined;
  #answering: NatsConnection | undefined;

  constructor(options: AnyOptions) {
    this.#wire = new NatsWire(options);
  }

  async prepare(branches: readonly string[]): Promise<string> {
    const connection = await this.#wire.connection();
    const { jetstream, jetstreamManager } = await import('@nats-io/jetstream');
    try {
      this.#manager ??= await jetstreamManager(connection, { checkAPI: false });
      this.#client ??= jetstream(connection);
      const { streams, consumers } = this.#manager;
      const info = await streams.add({
        name: STREAM,
        subjects: [downSubject('*')],
        storage: 'file',
        discard: 'old',
        max_age: (ENTRIES_KEPT_MS / 1000) * SECOND_NS,
        max_bytes: STREAM_BYTES,
        num_replicas: 1,
        duplicate_window: 120 * SECOND_NS,
      });
      const there = new Set<string>();
      for await (const { name, config } of consumers.list(STREAM)) {
        there.add(name);
        if (config.ack_wait !== ACK_WAIT_NS) await consumers.update(STREAM, name, { ack_wait: ACK_WAIT_NS });
      }
      for (const branch of branches.filter((name) => !there.has(name))) {
        const consumer = {
          durable_name: branch,
          filter_subject: downSubject(branch),
          ack_policy: 'all',
          deliver_policy: 'all',
          max_ack_pending: 10 * FETCH_MAX,
          ack_wait: ACK_WAIT_NS,
        } as const;
        await consumers.add(STREAM, consumer).catch(async (cause) => {
          // The server's files are damaged or encrypted with another key. The stream is deleted, because the
          // hub can publish all entries again.
          if ((cause as { code?: number }).code === CONSUMER_NOT_MADE) await streams.delete(STREAM);
          throw cause;
        });
      }
      for (const gone of [...there].filter((name) => !branches.includes(name))) {
        await consumers.delete(STREAM, gone);
      }
      return info.created;
    } catch (cause) {
      this.#forget();
      throw down(cause, 'The nats-server does not prepare what branches need');
    }
  }

  async publish(messages: readonly DownMessage[]): Promise<void> {
    const connection = await this.#wire.connection();
    const { headers } = await import('@nats-io/transport-node');
    const { jetstream } = await import('@nats-io/jetstream');
    this.#client ??= jetstream(connection);
    const client = this.#client;
    const sent = await Promise.allSettled(
      messages.map(({ branch, epoch, n, kind, body }) => {
        const about = headers();
        about.set('e', epoch);
        about.set('n', String(n));
        about.set('k', kind);
        const how = { msgID: idOf({ epoch, branch, n }), headers: about, timeout: PUBLISH_TIMEOUT_MS };
        return client.publish(downSubject(branch), body, how);
      }),
    );
    const failed = sent.find(({ status }) => status === 'rejected');
    if (failed?.status === 'rejected') throw down(failed.reason, 'The nats-server did not keep a message');
  }

  async answer(handler: QuestionHandler): Promise<void> {
    const connection = await this.#wire.connection();
    if (this.#answering === connection) return;
    this.#answering = connection;
    const respond = (message: Msg) => {
      const [, branch = '', question = ''] = message.subject.split('.');
      // The server makes such a reply subject for a question from another account. Without the check, a server with one
      // account for all would let a branch choose any subject to which the hub publishes.
      if (!message.reply?.startsWith(REPLY_ACROSS_ACCOUNTS)) return;
      // An answer that cannot be sent is dropped, because the branch asks again.
      void handler(branch, question as Question, message.data)
        ?.then((answer) => message.respond(answer))
        .catch(() => {});
    };
    for (const question of ['join', 'hello', 'changes'] satisfies Question[]) {
      connection.subscribe(upSubject('*', question), {
        callback: (error, message) => {
          if (!error) respond(message);
        },
      });
    }
    await connection.flush();
  }

  async ask(branch: string, question: SupportQuestion, body: string): Promise<Uint8Array> {
    const connection = await this.#wire.connection();
    const reply = answerSubject(branch, randomUUID());
    const messages = connection.subscribe(reply);
    const silence = setTimeout(() => messages.unsubscribe(), SILENCE_MS);
    const parts: Uint8Array[] = [];
    let by: string | undefined;
    try {
      connection.publish(askSubject(branch, question), body, { reply });
      for await (const message of messages) {
        const header = (name: string) => message.headers?.get(name) ?? '';
        if (message.headers?.code === NO_RESPONDERS) break;
        // If two machines with one key answer, only the first machine's parts are read.
        by ??= header('by');
        if (header('by') !== by) continue;
        silence.refresh();
        const [part, of] = [Number(header('part')), Number(header('of'))];
        if (of === 0) continue;
        if (part !== parts.length + 1) break;
        parts.push(message.data);
        if (part === of) return Buffer.concat(parts);
      }
    } catch (cause) {
      throw down(cause, `Branch ${branch} cannot be asked`);
    } finally {
      clearTimeout(silence);
      messages.unsubscribe();
    }
    const what = by === undefined ? 'does not answer' : 'began to answer and broke off';
    throw new TillsyncError('link-down', `Branch ${branch} ${what}.`);
  }

  async close(): Promise<void> {
    this.#forget();
    await this.#wire.close();
  }

  #forget(): void {
    this.#manager = undefined;
    this.#client = undefined;
  }
}

/** The branch's side of the link over JetStream. */
export class NatsBranchLink implements BranchLink {
  readonly #wire: NatsWire;
  readonly #branch: string;
  readonly #id = randomUUID();
  #handler: SupportHandler | undefined;
  #unanswered = 0;

  constructor(options: Omit<NatsOptions, 'user'> & { branch: string }) {
    const { branch, ...rest } = options;
    this.#branch = branch;
    this.#wire = new NatsWire({ ...rest, user: branch }, (connection) => this.#listen(connection));
  }

  answer(handler: SupportHandler): void {
    this.#handler = handler;
  }

  #listen(connection: NatsConnection): void {
    const handler = this.#handler;
    if (!handler) return;
    for (const question of SUPPORT_QUESTIONS) {
      connection.subscribe(askSubject(this.#branch, question), {
        callback: (error, message) => {
          // An answer that cannot be sent is dropped, because the hub asks again.
          if (!error)
            void this.#respond(connection, message, handler(question, message.string())).catch(() => {});
        },
      });
    }
  }

  async #respond(connection: NatsConnection, message: Msg, answer: Promise<Uint8Array>): Promise<void> {
    const { headers } = await import('@nats-io/transport-node');
    const say = (part: number, of: number, data?: Uint8Array) => {
      const about = headers();
      for (const [name, value] of Object.entries({ by: this.#id, part, of })) about.set(name, String(value));
      message.respond(data, { headers: about });
    };
    say(0, 0);
    const signs = setInterval(() => connection.isClosed() || say(0, 0), SIGN_EVERY_MS);
    const bytes = await answer.finally(() => clearInterval(signs));
    const of = Math.max(1, Math.ceil(bytes.length / PART_BYTES));
    for (let part = 1; part <= of; part++) {
      say(part, of, bytes.subarray((part - 1) * PART_BYTES, part * PART_BYTES));
      await connection.flush();
    }
  }

  async follow(take: (messages: DownMessage[]) => Promise<boolean>, signal: AbortSignal): Promise<void> {
    const { jetstream } = await import('@nats-io/jetstream');
    while (!signal.aborted) {
      const connection = await this.#wire.connection();
      let messages: AsyncIterable<JsMsg> & { stop(): void };
      try {
        const consumer = await jetstream(connection, { checkAPI: false } as object).consumers.get(
          STREAM,
          this.#branch,
        );
        messages = await consumer.fetch({
          max_messages: FETCH_MAX,
          expires: FETCH_MS,
          idle_heartbeat: HEARTBEAT_MS,
        });
      } catch (cause) {
        throw down(cause, 'The feed of the hub cannot be followed');
      }
      const stop = () => messages.stop();
      signal.addEventListener('abort', stop, { once: true });
      this.#wire.onAgain = stop;
      try {
        await this.#takeAll(messages, take);
      } finally {
        this.#wire.onAgain = () => {};
        signal.removeEventListener('abort', stop);
        messages.stop();
      }
    }
  }

  /** Calls `take` with all messages that have arrived, at most `FETCH_MAX` at once, or with [] if none arrived. */
  async #takeAll(
    messages: AsyncIterable<JsMsg>,
    take: (messages: DownMessage[]) => Promise<boolean>,
  ): Promise<void> {
    let batch: JsMsg[] = [];
    let isIdle = true;
    const flush = async () => {
      const last = batch.at(-1);
      if (!last) return;
      const own = batch.filter((message) => isOf(this.#branch, message));
      batch = [];
      // If `take` returns false, the messages are not acknowledged, so the server resends them.
      if (own.length === 0 || (await take(own.map((message) => downMessage(this.#branch, message)))))
        last.ack();
    };
    try {
      for await (const message of messages) {
        isIdle = false;
        batch.push(message);
        if (message.info.pending === 0 || batch.length >= FETCH_MAX) await flush();
      }
    } catch (cause) {
      if (cause instanceof TillsyncError) throw cause;
      throw down(cause, 'The feed of the hub broke off');
    }
    await flush();
    if (isIdle) await take([]);
  }

  async ask(question: Question, body: string): Promise<string> {
    const connection = await this.#wire.connection();
    try {
      const subject = upSubject(this.#branch, question);
      const answer = await connection.request(subject, body, { timeout: ANSWER_TIMEOUT_MS });
      this.#unanswered = 0;
      return answer.string();
    } catch (cause) {
      this.#unanswered += 1;
      if (this.#unanswered % UNANSWERED_MAX === 0) await this.#wire.giveUp();
      throw down(cause, 'The hub does not answer');
    }
  }

  close(): Promise<void> {
    return this.#wire.close();
  }
}

/**
 * Returns whether the hub wrote the message for this branch. Another branch can make the server deliver entries of its
 * own feed to this branch's subject.
 */
function isOf(branch: string, { headers }: JsMsg): boolean {
  const header = (name: string) => headers?.get(name) ?? '';
  return header('Nats-Msg-Id') === idOf({ branch, epoch: header('e'), n: Number(header('n')) });
}

function idOf({ epoch, branch, n }: Pick<DownMessage, 'epoch' | 'branch' | 'n'>): string {
  return `${epoch}:${branch}:${n}`;
}

function downMessage(branch: string, message: JsMsg): DownMessage {
  const header = (name: string) => message.headers?.get(name) ?? '';
  return {
    branch,
    epoch: header('e'),
    n: Number(header('n')),
    kind: header('k'),
    body: message.string(),
  };
}

/** Makes a new nkey of a user. */
export async function newKey(): Promise<{ seed: string; publicKey: string }> {
  const { nkeys } = await import('@nats-io/transport-node');
  const pair = nkeys.createUser();
  const seed = new TextDecoder().decode(pair.getSeed());
  return { seed, publicKey: pair.getPublicKey() };
}

/** Returns the public key of a seed. Throws `config-invalid` for an invalid seed. */
export async function publicKeyOf(seed: string): Promise<string> {
  const { nkeys } = await import('@nats-io/transport-node');
  try {
    return nkeys.fromSeed(new TextEncoder().encode(seed)).getPublicKey();
  } catch {
    throw new TillsyncError('config-invalid', 'The secret link-seed is no key of this kind.', {
      hint: 'Join the hub again: {tillsync} init --join INVITATION',
    });
  }
}
