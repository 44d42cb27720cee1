import { Agent, request } from 'undici';

export interface WebhookRequest {
  url: string;
  headers: Record<string, string>;
  body: string;
  signal: AbortSignal;
}

/** Carries one notification to the receiver and resolves to its HTTP status; rejects when there was none. */
export type WebhookTransport = (request: WebhookRequest) => Promise<number>;

export interface HttpWebhookTransport {
  send: WebhookTransport;
  close(): Promise<void>;
}

/** Sends over real sockets, through an agent of its own. */
export function httpWebhookTransport(): HttpWebhookTransport {
  const agent = new Agent({ keepAliveTimeout: 4000 });
  return {
    send: async ({ url, headers, body, signal }) => {
      const answer = await request(url, { method: 'POST', headers, body, signal, dispatcher: agent });
      await answer.body.dump();
      return answer.statusCode;
    },
    close: () => agent.destroy(),
  };
}
