import type { FastifyReply, FastifyRequest, RouteOptions } from 'fastify';
import type { Clock } from '../domain/clock.ts';
import { asTillsyncError } from '../domain/errors.ts';
import type { Log } from '../domain/log.ts';
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
}

/**
 * The one route of the receiver: secret first, then the body, then the disk, then the answer.
 * 200 kept · 400 not JSON, bytes kept · 401 secret · 413 too large · 503 not kept, to be sent again.
 */
export function callbackRoute(options: CallbackRouteOptions): RouteOptions {
  const { gate, commits, clock, log, bodyLimitBytes, read, isClosing } = options;

  const onRequest = (request: FastifyRequest, reply: FastifyReply, done: () => void): void => {
    let admitted: boolean;
    try {
      admitted = gate.admits(request.raw.headers[SECRET_HEADER]);
    } catch (error) {
      log.error({ err: error }, 'the webhook secret could not be read; a notification is put off');
      putOff(reply);
      return;
    }
    if (!admitted) {
      answer(reply, 401, '{"error":"wrong or missing x-webhook-secret"}');
      return;
    }
    // Whatever the content type says, the bytes decide; Fastify would refuse one that it cannot parse.
    delete request.raw.headers['content-type'];
    done();
  };

  const handler = async (request: FastifyRequest, reply: FastifyReply): Promise<FastifyReply> => {
    const body = await readRequestBody(request.raw, bodyLimitBytes);
    if (body === 'cut-off') return reply.hijack();
    if (body === 'too-large') return answer(reply, 413, '{"error":"the notification is too large"}');
    const { entry, isJson } = readNotification(body, { read, receivedAtMs: clock.nowMs() });
    try {
      await commits.add(entry, body.length);
    } catch (error) {
      log.debug({ code: asTillsyncError(error).code }, 'a notification is put off');
      return putOff(reply);
    }
    if (isClosing()) reply.header('connection', 'close');
    if (!isJson) return answer(reply, 400, '{"error":"the body is not JSON"}');
    return answer(reply, 200, '{"ok":true}');
  };

  return { method: 'POST', url: options.path, onRequest, handler };
}

/** A short JSON answer that tells nothing of the inside. */
export function answer(reply: FastifyReply, status: number, json: string): FastifyReply {
  return reply.code(status).header('content-type', 'application/json; charset=utf-8').send(json);
}

function putOff(reply: FastifyReply): FastifyReply {
  reply.header('retry-after', String(RETRY_AFTER_S));
  return answer(reply, 503, '{"error":"could not be kept, send it again"}');
}
