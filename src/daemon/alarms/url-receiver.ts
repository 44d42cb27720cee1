import { Agent, request } from 'undici';
import { TillsyncError } from '../../domain/errors.ts';
import type { AlarmReceiver } from './alarm-receiver.ts';

export interface UrlReceiverOptions {
  /** http or https; may hold a secret, so it is never told. */
  url: string;
  /** Sent as `Authorization: Bearer`. */
  token: string | undefined;
  timeoutMs: number;
}

/** Sends each message as JSON by POST; every 2xx counts as arrived. Redirects are not followed. */
export function urlReceiver({ url, token, timeoutMs }: UrlReceiverOptions): AlarmReceiver {
  const { host } = new URL(url);
  return {
    name: 'url',
    description: `the address at ${host}`,
    async tell(report, signal) {
      const agent = new Agent({ pipelining: 0 });
      const limit = AbortSignal.any([signal, AbortSignal.timeout(timeoutMs)]);
      try {
        const { statusCode, body } = await request(url, {
          method: 'POST',
          headers: {
            'content-type': 'application/json',
            'user-agent': `tillsync/${report.version}`,
            ...(token !== undefined && { authorization: `Bearer ${token}` }),
          },
          body: JSON.stringify(report),
          dispatcher: agent,
          signal: limit,
        });
        body.on('error', () => {});
        body.destroy();
        if (statusCode < 200 || statusCode > 299) throw failed(`${host} answered ${statusCode}`);
      } catch (error) {
        if (error instanceof TillsyncError) throw error;
        if (signal.aborted) throw new TillsyncError('aborted', 'Stopped while an alarm was sent.');
        if (limit.aborted) throw failed(`${host} gave no answer within ${timeoutMs} ms`);
        // Its words may repeat the address.
        const code = error instanceof Error && 'code' in error ? String(error.code) : 'connection failed';
        throw failed(`${host} cannot be reached (${code})`);
      } finally {
        void agent.destroy();
      }
    },
  };
}

function failed(what: string): TillsyncError {
  return new TillsyncError('internal', `The alarm was not taken: ${what}.`, {
    retryable: true,
    hint: 'Check alarms.url and the alarm-token with: {tillsync} alarms test',
  });
}
