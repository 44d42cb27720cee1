// node till.ts: gets orders by HTTP, books them, hands over counts, acknowledges. Needs Node 24, ledger.ts and api.ts.
import { ask, forever, handOver } from './api.ts';
import { book, type Event, place, run, sellAndPrepare } from './ledger.ts';

await forever(0, async () => {
  sellAndPrepare();
  // tillsync answers at once if there is an event, else after a second.
  const answer = await ask(`/v1/orders?after=${place()}&store=${process.env.TILL_STORE}&wait=1`);
  const { events, next } = (await answer.json()) as { events: Event[]; next: number };
  book(events);
  run('UPDATE place SET seq = ?', next); // Skips events of other branches.
  await handOver();
});
