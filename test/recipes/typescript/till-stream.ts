// node till-stream.ts: keeps a stream of events open, books each on arrival. Needs Node 24, ledger.ts and api.ts.
import { ask, forever, handOver } from './api.ts';
import { book, type Event, place, sellAndPrepare } from './ledger.ts';

/** Books the events of the stream, from the one after the newest in the ledger until the stream ends. */
async function follow() {
  const { body } = await ask(`/v1/orders?after=${place()}`, { headers: { accept: 'text/event-stream' } });
  let text = '';
  for await (const part of body?.pipeThrough(new TextDecoderStream()) ?? []) {
    const messages = (text + part).split('\n\n');
    text = messages.pop() ?? ''; // The last message is not complete yet.
    // A message without data is a comment, which only shows that the connection is alive.
    const data = messages.flatMap((message) => /^data: (.*)$/m.exec(message)?.[1] ?? []);
    book(data.map((json) => JSON.parse(json) as Event));
  }
}

void forever(500, follow);
await forever(500, async () => {
  sellAndPrepare();
  await handOver();
});
