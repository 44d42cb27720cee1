import type { Dice } from './dice.ts';

/** A request such as a faulty or hostile sender makes. */
export interface HostileRequest {
  bytes: Buffer;
  /** Whether the order may be stored, because the request has the secret and its body may be complete. */
  mayBeKept: boolean;
}

export interface RequestParts {
  path: string;
  secret: string;
  body: Buffer;
}

type Make = (services: RequestParts, dice: Dice) => { head: string; body?: Buffer; mayBeKept?: boolean };

const line = ({ path }: RequestParts, method = 'POST', version = 'HTTP/1.1') =>
  `${method} ${path} ${version}\r\nHost: x\r\n`;
const proof = ({ secret }: RequestParts) => `x-webhook-secret: ${secret}\r\n`;
const length = ({ body }: RequestParts, by = 0) => `Content-Length: ${body.length + by}\r\n`;

/** Requests without a valid secret; nothing of them may be stored. */
const UNPROVEN: readonly Make[] = [
  (p) => ({ head: `${line(p)}${length(p)}\r\n` }),
  (p) => ({ head: `${line(p)}x-webhook-secret:\r\n${length(p)}\r\n` }),
  (p) => ({ head: `${line(p)}${proof(p)}${proof(p)}${length(p)}\r\n` }),
  (p) => ({ head: `${line(p)}${proof(p)}X-WebHook-Secret: wrong\r\n${length(p)}\r\n` }),
  (p) => ({ head: `${line(p)}x-webhook-secret: ${p.secret}, ${p.secret}\r\n${length(p)}\r\n` }),
  (p) => ({ head: `${line(p)}x-webhook-secret: ${p.secret.toUpperCase()}\r\n${length(p)}\r\n` }),
  (p) => ({ head: `${line(p)}x-webhook-secret: ${p.secret}\0\r\n${length(p)}\r\n` }),
  (p) => ({ head: `${line(p)}x-webhook-secret: ${p.secret}\u00a0x\r\n${length(p)}\r\n` }),
  (p) => ({ head: `${line(p)}x-webhook-secret: ${'s'.repeat(1024 * 1024)}\r\n${length(p)}\r\n` }),
  (p) => ({ head: `${line(p)}x_webhook_secret: ${p.secret}\r\n${length(p)}\r\n` }),
  (p) => ({ head: `${line(p)}x-webhook-secret : ${p.secret}\r\n${length(p)}\r\n` }),
  (p) => ({ head: `${line(p)}Cookie: x-webhook-secret=${p.secret}\r\n${length(p)}\r\n` }),
  (p) => ({ head: `POST ${p.path}?x-webhook-secret=${p.secret} HTTP/1.1\r\nHost: x\r\n${length(p)}\r\n` }),
  (p) => ({
    head: `${line(p)}${Array.from({ length: 3_000 }, (_, n) => `h${n}: v\r\n`).join('')}${length(p)}\r\n`,
  }),
  (p) => ({
    head: `${line(p)}Trailer: x-webhook-secret\r\nTransfer-Encoding: chunked\r\n\r\n${p.body.length.toString(16)}\r\n`,
    body: Buffer.concat([p.body, Buffer.from(`\r\n0\r\n${proof(p)}\r\n`)]),
  }),
];

/** Requests that a strict parser must refuse, or that are no callback, with or without the secret. */
const MALFORMED: readonly Make[] = [
  (p) => ({ head: `${line(p)}${proof(p)}${length(p)}${length(p, 1)}\r\n` }),
  (p) => ({ head: `${line(p)}${proof(p)}${length(p)}Transfer-Encoding: chunked\r\n\r\n` }),
  (p) => ({ head: `${line(p)}${proof(p)}Transfer-Encoding: chunked, identity\r\n\r\n` }),
  (p) => ({ head: `${line(p)}${proof(p)}Transfer-Encoding:\x0bchunked\r\n\r\n` }),
  (p) => ({ head: `${line(p)}${proof(p)}Content-Length: -1\r\n\r\n` }),
  (p) => ({ head: `${line(p)}${proof(p)}Content-Length: 0x20\r\n\r\n` }),
  (p) => ({ head: `${line(p)}${proof(p)}Content-Length: ${'9'.repeat(400)}\r\n\r\n` }),
  (p) => ({ head: `${line(p)}${proof(p)}Transfer-Encoding: chunked\r\n\r\nFFFFFFFFFFFFFFFFF\r\n` }),
  (p) => ({ head: `${line(p)}${proof(p)}Transfer-Encoding: chunked\r\n\r\n-5\r\n` }),
  (p) => ({ head: `${line(p, 'P\0ST')}${proof(p)}${length(p)}\r\n` }),
  (p) => ({ head: `${line(p, 'POST', 'HTTP/9.9')}${proof(p)}${length(p)}\r\n` }),
  (p) => ({ head: `${line(p, 'post')}${proof(p)}${length(p)}\r\n` }),
  (p) => ({ head: `${p.path}\r\n\r\n` }),
  (p) => ({ head: `\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03`, body: p.body }),
  (p) => ({ head: `PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n`, body: p.body }),
  (p) => ({ head: `${line(p, 'CONNECT')}${proof(p)}\r\n` }),
  (p) => ({ head: `${line(p, 'GET')}${proof(p)}${length(p)}\r\n` }),
  (p) => ({ head: `${line(p, 'PUT')}${proof(p)}${length(p)}\r\n` }),
  (p) => ({ head: `POST /${p.path}/../admin HTTP/1.1\r\nHost: x\r\n${proof(p)}${length(p)}\r\n` }),
  (p) => ({ head: `POST /%ff%00 HTTP/1.1\r\nHost: x\r\n${proof(p)}${length(p)}\r\n` }),
  (p) => ({
    head: `POST http://other.example${p.path} HTTP/1.1\r\nHost: x\r\n${proof(p)}${length(p)}\r\n`,
    mayBeKept: true,
  }),
  (p) => ({
    head: `POST ${p.path} HTTP/1.1\r\nHost: a\r\nHost: b\r\n${proof(p)}${length(p, 50)}\r\n`,
    mayBeKept: true,
  }),
  (p) => ({ head: `${line(p)}${proof(p)}${length(p, 500)}\r\n` }),
  (p) => ({ head: `${line(p)}${proof(p)}Expect: a-miracle\r\n${length(p)}\r\n`, mayBeKept: true }),
];

/** Odd but valid callbacks: with the secret and a body that may be complete. */
const ODD: readonly Make[] = [
  (p) => ({ head: `${line(p)}${proof(p)}${length(p)}\r\n` }),
  (p) => ({ head: `${line(p)}X-WEBHOOK-SECRET:   ${p.secret}  \r\n${length(p)}\r\n` }),
  (p) => ({ head: `${line(p)}${proof(p)}${length(p)}Content-Type: text/html\r\n\r\n` }),
  (p) => ({ head: `${line(p)}${proof(p)}${length(p)}Content-Encoding: gzip\r\n\r\n` }),
  (p) => ({
    head: `${line(p)}${proof(p)}${length(p)}Content-Type: application/json; charset=utf-16\r\n\r\n`,
  }),
  (p) => ({ head: `${line(p)}${proof(p)}${length(p)}Upgrade: websocket\r\nConnection: upgrade\r\n\r\n` }),
  (p) => ({
    head: `${line(p)}${proof(p)}Transfer-Encoding: chunked\r\n\r\n${p.body.length.toString(16)};x="y"\r\n`,
    body: Buffer.concat([p.body, Buffer.from('\r\n0\r\n\r\n')]),
  }),
  (p, dice) => ({
    head: `${line(p)}${proof(p)}${length(p)}\r\n`,
    body: p.body.subarray(0, dice.below(p.body.length)),
  }),
];

/** Draws a request of any kind around the body. */
export function hostileRequest(services: RequestParts, dice: Dice): HostileRequest {
  const kind = dice.pick([UNPROVEN, MALFORMED, ODD]);
  const { head, body = services.body, mayBeKept = kind === ODD } = dice.pick(kind)(services, dice);
  return { bytes: Buffer.concat([Buffer.from(head, 'latin1'), body]), mayBeKept };
}
