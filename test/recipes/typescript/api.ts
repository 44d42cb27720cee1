// Calls of the local API. Three tills hand over counts with this file: till.ts, till-stream.ts and till-hook.ts.
import { all, type Event, run } from './ledger.ts';

const { TILL_URL, TILL_KEY, TILL_STORE } = process.env;

/** Makes a request; throws unless the answer is 2xx. */
export async function ask(path: string, options: RequestInit = {}): Promise<Response> {
  const headers = {
    authorization: `Bearer ${TILL_KEY}`,
    'content-type': 'application/json',
    ...options.headers,
  };
  const answer = await fetch(TILL_URL + path, { ...options, headers });
  if (answer.ok) return answer;
  const { error } = (await answer.json()) as { error: { code: string; message: string } };
  // The mirror was made anew and its event numbers begin again, so the till reads every order again.
  if (error.code === 'feed-restarted') run('UPDATE place SET seq = 0');
  throw new Error(`${path}: ${answer.status} ${error.message}`);
}

const post = (path: string, items: object[]) => ask(path, { method: 'POST', body: JSON.stringify(items) });

/** Counts first; an order is acknowledged only after tillsync has accepted, held or rejected every count. */
export async function handOver() {
  const owed = all<Pick<Event, 'seq' | 'orderId'>>('SELECT order_id AS orderId, seq FROM owed LIMIT 1000');
  const counts = all<{ externalId: string; qty: number }>('SELECT externalId, qty FROM counts');
  if (counts.length > 0) {
    const answer = await post(
      '/v1/stock',
      counts.map((count) => ({ ...count, subsidiaryExternalId: TILL_STORE })),
    );
    const { results } = (await answer.json()) as {
      results: { index: number; state: string; message?: string }[];
    };
    for (const { index, state, message } of results)
      if (state === 'rejected')
        console.error(`A person has to look: ${counts[index]?.externalId}: ${message}`);
    for (const { externalId, qty } of counts)
      run('UPDATE stock SET told = ? WHERE external_id = ?', qty, externalId);
  }
  if (owed.length > 0) await post('/v1/orders/ack', owed);
  for (const { orderId, seq } of owed) run('DELETE FROM owed WHERE order_id = ? AND seq = ?', orderId, seq);
}

/** Repeats the work. After an error, the work is repeated a second later; the ledger still has what is owed. */
export async function forever(restMs: number, work: () => Promise<void>) {
  for (;;) {
    let ms = restMs;
    await work().catch((error) => {
      console.error(String(error));
      ms = 1_000;
    });
    await new Promise((resolve) => setTimeout(resolve, ms));
  }
}
