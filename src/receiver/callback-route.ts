import type { IncomingMessage, ServerResponse } from 'node:http';
import type { FastifyReply, FastifyRequest, RouteOptions } from 'fastify';
import { asTillsyncError } from '../domain/errors.ts';
import type { Log } from '../domain/log.ts';
import type { Clock } from '../domain/time/clock.ts';
import { answer } from './answer.ts';
import type { GroupCommit } from './group-commit.ts';
import { type NotificationReader, readNotification } from './notification.ts';
import { readRequestBody } from './request-body.ts';
import type { SecretGate } from './secret-gate.ts';

/** Header of the callback (document, "Callback request sent by the service"). */
const SECRET_HEADER = 'x-webhook-secret';
const RETRY_AFTER_S = 5;

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
  /** Told of each request once it is over: the status answered, null when the sender was gone before. */
  onAnswered?: ((status: number | null, durationMs: number) => void) | undefined;
}

/**
 * The one route of the receiver: secret first, then the body, then the disk, then the answer.
 * 200 kept · 400 not JSON, bytes kept · 401 secret · 413 too large · 503 not kept, to be sent again.
 */
export function callbackRoute(options: CallbackRouteOptions): RouteOptions {
  const { gate, commits, clock, log, bodyLimitBytes, read, isClosing, onAnswered } = options;

  const onRequest = (request: FastifyRequest, { raw }: FastifyReply, done: () => void): void => {
    try {
      if (gate.admits(request.raw.headers[SECRET_HEADER])) done();
      else answer(raw, 401, '{"error":"wrong or missing x-webhook-secret"}');
    } catch (error) {
      log.error({ err: error }, 'the webhook secret could not be read; a notification is put off');
      putOff(raw);
    }
  };

  const receive = async (request: IncomingMessage, response: ServerResponse): Promise<void> => {
    const body = await readRequestBody(request, bodyLimitBytes);
    if (body === 'cut-off') return;
    if (body === 'too-large') {
      answer(response, 413, '{"error":"the notification is too large"}');
      return;
    }
    const { entry, isJson } = readNotification(body, { read, receivedAtMs: clock.nowMs() });
    await commits.add(entry, body.length);
    const closing = isClosing() ? { connection: 'close' } : undefined;
    if (isJson) answer(response, 200, '{"ok":true}', closing);
    else answer(response, 400, '{"error":"the body is not JSON"}', closing);
  };

  const handler = ({ raw: request }: FastifyRequest, { raw: response }: FastifyReply): void => {
    receive(request, response).catch((error) => {
      log.debug({ code: asTillsyncError(error).code }, 'a notification is put off');
      putOff(response);
    });
  };

  const onResponse = (_request: FastifyRequest, reply: FastifyReply, done: () => void): void => {
    onAnswered?.(reply.raw.headersSent ? reply.raw.statusCode : null, reply.elapsedTime);
    done();
  };

  const route: RouteOptions = { method: 'POST', url: options.path, onRequest, handler };
  return onAnswered ? { ...route, onResponse } : route;
}

function putOff(response: ServerResponse): void {
  const retryAfter = { 'retry-after': String(RETRY_AFTER_S) };
  answer(response, 503, '{"error":"could not be kept, send it again"}', retryAfter);
}
