import { createServer, type Socket } from 'node:net';
import { onTestFinished } from 'vitest';

/** A published message. `reply` is the subject for an answer. */
export interface Published {
  subject: string;
  reply: string;
  body: Buffer;
}

interface Subscriber {
  socket: Socket;
  sid: string;
  pattern: string;
}

/**
 * The routing part of a nats-server: it passes each message with its headers to the subscribers of its subject. It has
 * no permissions and stores nothing. Functions given to `serve` answer instead of JetStream.
 */
export class NatsStandIn {
  readonly published: Published[] = [];
  url = '';
  /** Number of clients that will be refused when they send their key. */
  refusals = 0;
  #subscribers: Subscriber[] = [];
  /** Subjects that the server made for answers, with those that the askers hear. */
  readonly #answers = new Map<string, string>();
  readonly #served: { pattern: string; serve: (message: Published) => void }[] = [];

  static async start(): Promise<NatsStandIn> {
    const standIn = new NatsStandIn();
    const server = createServer((socket) => standIn.#accept(socket));
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
    onTestFinished(() => void server.close());
    standIn.url = `nats://127.0.0.1:${(server.address() as { port: number }).port}`;
    return standIn;
  }

  /** Calls `serve` for messages to these subjects, which then get no status 503 although no client subscribed. */
  serve(pattern: string, serve: (message: Published) => void): void {
    this.#served.push({ pattern, serve });
  }

  /**
   * Delivers a message as if the server sent it. `status` ends the first line of the headers, such as 503 for no
   * responder.
   */
  deliver(
    to: string,
    { subject = to, reply = '', headers = {}, status = '', body = '' as string | Buffer } = {},
  ): void {
    const lines = Object.entries(headers as Record<string, string>).map(
      ([name, value]) => `${name}: ${value}\r\n`,
    );
    const head = Buffer.from(`NATS/1.0${status === '' ? '' : ` ${status}`}\r\n${lines.join('')}\r\n`);
    this.#route({ to, subject, reply, head, body: Buffer.from(body) });
  }

  #route(message: { to: string; subject: string; reply: string; head: Buffer; body: Buffer }): number {
    const { to, subject, reply, head, body } = message;
    const hearing = this.#subscribers.filter(({ pattern }) => isMatch(pattern, to));
    for (const { socket, sid } of hearing) {
      const [verb, sizes] =
        head.length > 0
          ? ['HMSG', `${head.length} ${head.length + body.length}`]
          : ['MSG', String(body.length)];
      socket.write(`${verb} ${subject} ${sid} ${reply === '' ? '' : `${reply} `}${sizes}\r\n`);
      socket.write(Buffer.concat([head, body, Buffer.from('\r\n')]));
    }
    return hearing.length;
  }

  #accept(socket: Socket): void {
    const info = { server_id: 'STANDIN', version: '2.10.27', proto: 1, headers: true, nonce: 'bm9uY2U' };
    socket.write(`INFO ${JSON.stringify({ ...info, max_payload: 8 * 1024 * 1024 })}\r\n`);
    let left: Buffer = Buffer.alloc(0);
    socket.on('data', (chunk) => {
      left = Buffer.concat([left, chunk]);
      for (let used = this.#command(socket, left); used > 0; used = this.#command(socket, left)) {
        left = left.subarray(used);
      }
    });
    const gone = () => {
      this.#subscribers = this.#subscribers.filter((each) => each.socket !== socket);
    };
    socket.on('close', gone).on('error', gone);
  }

  /** Runs the first command if it is complete. Returns the number of its bytes, 0 if it is incomplete. */
  #command(socket: Socket, bytes: Buffer): number {
    const end = bytes.indexOf('\r\n');
    if (end === -1) return 0;
    const [verb = '', ...words] = bytes.subarray(0, end).toString().trim().split(/\s+/);
    if (verb === 'CONNECT' && this.refusals > 0) {
      this.refusals -= 1;
      socket.end("-ERR 'Authorization Violation'\r\n");
      return 0;
    }
    if (verb === 'PING') socket.write('PONG\r\n');
    if (verb === 'SUB') {
      this.#subscribers.push({ socket, pattern: words[0] ?? '', sid: words.at(-1) ?? '' });
    }
    if (verb === 'UNSUB' && words.length === 1) {
      this.#subscribers = this.#subscribers.filter((each) => each.socket !== socket || each.sid !== words[0]);
    }
    if (verb !== 'PUB' && verb !== 'HPUB') return end + 2;
    const size = Number(words.at(-1));
    const begin = end + 2;
    if (bytes.length < begin + size + 2) return 0;
    const headSize = verb === 'HPUB' ? Number(words.at(-2)) : 0;
    const [subject = '', reply = ''] = words.slice(0, verb === 'HPUB' ? -2 : -1);
    const head = Buffer.from(bytes.subarray(begin, begin + headSize));
    const body = Buffer.from(bytes.subarray(begin + headSize, begin + size));
    this.#publish({ subject, reply, head, body });
    return begin + size + 2;
  }

  #publish({ head, ...message }: Published & { head: Buffer }): void {
    this.published.push(message);
    const served = this.#served.filter(({ pattern }) => isMatch(pattern, message.subject));
    for (const { serve } of served) serve(message);
    const to = this.#answers.get(message.subject) ?? message.subject;
    const heard = this.#route({ ...message, to, subject: to, reply: this.#replyOf(message), head });
    if (heard + served.length === 0 && message.reply !== '') this.deliver(message.reply, { status: '503' });
  }

  /** Returns the subject for the answer. A question of a branch's account to the hub's gets one that the server makes. */
  #replyOf({ subject, reply }: Published): string {
    if (reply === '' || !subject.startsWith('up.')) return reply;
    const made = `_R_.${this.#answers.size + 1}`;
    this.#answers.set(made, reply);
    return made;
  }
}

/** Returns whether a subject matches a pattern, in which `*` means one word and `>` all remaining words. */
function isMatch(pattern: string, subject: string): boolean {
  const [wanted, words] = [pattern.split('.'), subject.split('.')];
  for (const [i, word] of wanted.entries()) {
    if (word === '>') return words.length > i;
    if (words[i] === undefined || (word !== '*' && word !== words[i])) return false;
  }
  return wanted.length === words.length;
}
