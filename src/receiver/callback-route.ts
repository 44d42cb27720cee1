import type { IncomingMessage, ServerResponse } from 'node:http';
import type { FastifyReply, FastifyRequest, RouteOptions } from 'fastify';
import { type Callback, type CallbackFault, PROBE_HEADER } from '../domain/callback.ts';
import { asTillsyncError } from '../domain/errors.ts';
import type { Log } from '../domain/log.ts';
import type { IntakeEntry } from '../domain/order/order-intake.ts';
import type { Clock } from '../domain/time/clock.ts';
import { answer } from './answer.ts';
import type { GroupCommit } from './group-commit.ts';
import { type NotificationReader, readNotification } from './notification.ts';
import { readRequestBody } from './request-body.ts';
import type { SecretGate } from './secret-gate.ts';

/** Header of the callback (document, "Callback request sent by the service"). */
const SECRET_HEADER = 'x-webhook-secret';
const RETRY_AFTER_S = 5;
const ADDRESS_LENGTH_MAX = 45;

export interface CallbackRouteOptions {
  path: string;
  gate: SecretGate;
  read: NotificationReader;
  commits: GroupCommit;
  clock: Clock;
  log: Log;
  bodyLimitBytes: number;
  /** Once true, an answer also ends its connection. */
  isClosing: () => boolean;
  /** Told of each request once it is over. */
  onAnswered?: OnAnswered | undefined;
}

export type OnAnswered = (callback: Callback, durationMs: number) => void;

/** What is known of a request before its answer. */
type Noted = Partial<Pick<Callback, 'fault' | 'orderId' | 'code' | 'orderStatus'>>;

/**
 * The one route of the receiver: secret first, then the body, then the disk, then the answer.
 * 200 kept · 400 not JSON, bytes kept · 401 secret · 413 too large · 503 not kept, to be sent again.
 */
export function callbackRoute(options: CallbackRouteOptions): RouteOptions {
  const { gate, commits, clock, log, bodyLimitBytes, read, isClosing, onAnswered } = options;

  const noted = new WeakMap<ServerResponse, Noted>();

  const onRequest = (request: FastifyRequest, { raw }: FastifyReply, done: () => void): void => {
    try {
      if (gate.admits(request.raw.headers[SECRET_HEADER])) {
        done();
        return;
      }
      noted.set(raw, { fault: whyRefused(request.raw) });
      answer(raw, 401, '{"error":"wrong or missing x-webhook-secret"}');
    } catch (error) {
      noted.set(raw, { fault: 'not-kept' });
      log.error({ err: error }, 'the webhook secret could not be read; a notification is put off');
      putOff(raw);
    }
  };

  const receive = async (request: IncomingMessage, response: ServerResponse): Promise<void> => {
    const body = await readRequestBody(request, bodyLimitBytes);
    if (body === 'cut-off') return;
    if (body === 'too-large') {
      noted.set(response, { fault: 'too-large' });
      answer(response, 413, '{"error":"the notification is too large"}');
      return;
    }
    const { entry, isJson } = readNotification(body, { read, receivedAtMs: clock.nowMs() });
    noted.set(response, notedOf(entry, isJson));
    await commits.add(entry, body.length);
    const closing = isClosing() ? { connection: 'close' } : undefined;
    if (isJson) answer(response, 200, '{"ok":true}', closing);
    else answer(response, 400, '{"error":"the body is not JSON"}', closing);
  };

  const handler = ({ raw: request }: FastifyRequest, { raw: response }: FastifyReply): void => {
    receive(request, response).catch((error) => {
      log.debug({ code: asTillsyncError(error).code }, 'a notification is put off');
      noted.set(response, { ...noted.get(response), fault: 'not-kept' });
      putOff(response);
    });
  };

  const onResponse = (request: FastifyRequest, reply: FastifyReply, done: () => void): void => {
    const status = reply.raw.headersSent ? reply.raw.statusCode : null;
    const { orderId = null, code = null, orderStatus = null, fault = null } = noted.get(reply.raw) ?? {};
    const callback = {
      ...{ atMs: clock.nowMs(), status, orderId, code, orderStatus, from: senderOf(request) },
      fault: status === null ? ('cut-off' as const) : fault,
      isProbe: request.raw.headers[PROBE_HEADER] !== undefined,
    };
    onAnswered?.(callback, reply.elapsedTime);
    done();
  };

  const route: RouteOptions = { method: 'POST', url: options.path, onRequest, handler };
  return onAnswered ? { ...route, onResponse } : route;
}

function whyRefused({ headers }: IncomingMessage): CallbackFault {
  if (headers[SECRET_HEADER] !== undefined) return 'secret-wrong';
  return /^application\/(.*\+)?json\b/i.test(headers['content-type'] ?? '')
    ? 'secret-missing'
    : 'no-callback';
}

function notedOf(entry: IntakeEntry, isJson: boolean): Noted {
  if (entry.kind === 'unreadable') return { fault: isJson ? 'unreadable' : 'not-json' };
  const { orderId, fields } = entry.observation.reading;
  return { orderId, code: fields.code ?? null, orderStatus: fields.status ?? null };
}

/** The sender; of what a proxy on this machine passes on, the address that this proxy saw. */
function senderOf({ socket, headers }: FastifyRequest): string {
  const address = (socket.remoteAddress ?? '').replace(/^::ffff:/, '');
  const named =
    String(headers['x-forwarded-for'] ?? '')
      .split(',')
      .at(-1)
      ?.trim() ?? '';
  const isProxy = address === '::1' || address.startsWith('127.') || address === '';
  return (isProxy && named !== '' ? named : address).slice(0, ADDRESS_LENGTH_MAX);
}

function putOff(response: ServerResponse): void {
  const retryAfter = { 'retry-after': String(RETRY_AFTER_S) };
  answer(response, 503, '{"error":"could not be kept, send it again"}', retryAfter);
}
