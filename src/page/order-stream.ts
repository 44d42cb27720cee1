import type { FeedEvent } from './answers.ts';
import type { Api } from './api.ts';
import { EventParser } from './event-parser.ts';

/** Follows the change feed after `seq` until it ends or the signal; throws when it does not begin. */
export async function followOrders(
  api: Api,
  seq: number,
  onEvents: (events: FeedEvent[]) => void,
  signal: AbortSignal,
): Promise<void> {
  const stream = await api.open(`/orders?after=${seq}`, signal);
  const parser = new EventParser();
  const decoder = new TextDecoder();
  const reader = stream.getReader();
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      const events = parser.push(decoder.decode(value, { stream: true }));
      onEvents(events.map((data) => JSON.parse(data) as FeedEvent));
    }
  } finally {
    await reader.cancel().catch(() => undefined);
  }
}
