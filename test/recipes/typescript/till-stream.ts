// node till-stream.ts: keeps a stream of events open, and books each as it comes. Node 24, with ledger.ts and api.ts.
import { ask, forever, handOver } from './api.ts';
import { book, type Event, place, sellAndPrepare } from './ledger.ts';

/** Follows the stream from where the ledger stands, until it ends. */
async function follow() {
  const { body } = await ask(`/v1/orders?after=${place()}`, { headers: { accept: 'text/event-stream' } });
  let text = '';
  for await (const part of body?.pipeThrough(new TextDecoderStream()) ?? []) {
    const messages = (text + part).split('\n\n');
    text = messages.pop() ?? ''; // Did not come whole yet.
    // What has no data is a comment, which shows that the line is alive.
    const data = messages.flatMap((message) => /^data: (.*)$/m.exec(message)?.[1] ?? []);
    book(data.map((json) => JSON.parse(json) as Event));
  }
}

void forever(500, follow);
await forever(500, async () => {
  sellAndPrepare();
  await handOver();
});
