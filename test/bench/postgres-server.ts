import postgres from 'postgres';
import { plainReceiver } from './plain-receiver.ts';

/**
 * A usual receiver with PostgreSQL: node postgres-server.ts SOCKET_DIRECTORY SECRET. Prints its URL, and closes the
 * server and its database connections when standard input ends.
 */
const [host = '', secret = ''] = process.argv.slice(2);
const sql = postgres({ host, username: 'bench', database: 'postgres' });

const server = await plainReceiver(secret, async (body) => {
  const { internalOrderId, status } = body as { internalOrderId: string; status: string };
  await sql`
    INSERT INTO orders (order_id, status, received_at, payload)
    VALUES (${internalOrderId}, ${status}, now(), ${sql.json(body as postgres.JSONValue)})
    ON CONFLICT (order_id) DO UPDATE
      SET status = excluded.status, received_at = excluded.received_at, payload = excluded.payload`;
});
process.stdout.write(`${server.url}\n`);
process.stdin.resume().on('end', () => void server.close().then(() => sql.end()));
