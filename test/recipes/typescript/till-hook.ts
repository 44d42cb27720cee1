// node till-hook.ts: tillsync posts each event to it. Needs Node 24, ledger.ts, api.ts, `npm install standardwebhooks`.
import { createServer } from 'node:http';
import { text } from 'node:stream/consumers';
import { Webhook } from 'standardwebhooks';
import { forever, handOver } from './api.ts';
import { book, type Event, sellAndPrepare } from './ledger.ts';

const { TILL_HOOK_PORT, TILL_HOOK_SECRET = '' } = process.env;
const webhook = new Webhook(TILL_HOOK_SECRET);

createServer(async (request, response) => {
  try {
    const event = webhook.verify(await text(request), request.headers as Record<string, string>);
    // The event that `tillsync hooks test` makes up is not booked.
    const { test = false, ...told } = event as Event & { test?: boolean };
    if (!test) book([told]);
    response.writeHead(204).end();
  } catch (error) {
    console.error(String(error));
    response.writeHead(500).end(); // tillsync sends the event again.
  }
}).listen(Number(TILL_HOOK_PORT), '127.0.0.1');

await forever(500, async () => {
  sellAndPrepare();
  await handOver();
});
