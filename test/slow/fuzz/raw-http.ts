import { once } from 'node:events';
import { connect } from 'node:net';

export interface RawAnswer {
  /** Statuses in order of arrival. */
  statuses: number[];
  text: string;
}

export interface RawOptions {
  /** Closes the sending half of the connection once everything is sent. */
  halfClose?: boolean;
  /** Cuts the connection without waiting for an answer. */
  reset?: boolean;
  /** Bytes per write, each of which is a packet of its own. */
  pieceBytes?: number;
  /** Closes the connection once this many answers have begun to arrive. */
  answers?: number;
  /** Time after the last sent byte at which the connection is closed in any case. */
  waitMs?: number;
}

/** Sends raw bytes, and reads until the server closes the connection or `waitMs` are over. */
export async function sendRaw(
  port: number,
  bytes: string | Buffer,
  options: RawOptions = {},
): Promise<RawAnswer> {
  const { halfClose = false, reset = false, answers, pieceBytes, waitMs = 1_000 } = options;
  const socket = connect({ port, host: '127.0.0.1', allowHalfOpen: true, noDelay: true });
  let text = '';
  socket.on('data', (chunk) => {
    text += chunk.toString('latin1');
    if (answers !== undefined && statusesIn(text).length >= answers) socket.destroy();
  });
  // If the connection is cut off during a write, the answer that arrived before is still returned.
  socket.on('error', () => {});
  const ended = new Promise<void>((resolve) => socket.once('end', resolve).once('close', () => resolve()));
  await Promise.race([once(socket, 'connect'), ended]);
  const whole = typeof bytes === 'string' ? Buffer.from(bytes, 'latin1') : bytes;
  const size = pieceBytes ?? Math.max(1, whole.length);
  for (let at = 0; at < whole.length && !socket.destroyed; at += size) {
    socket.write(whole.subarray(at, at + size));
    if (pieceBytes !== undefined) await new Promise((resolve) => setImmediate(resolve));
  }
  if (reset) socket.resetAndDestroy();
  else if (halfClose) socket.end();
  const late = setTimeout(() => socket.destroy(), waitMs);
  await ended;
  clearTimeout(late);
  socket.destroy();
  return { statuses: statusesIn(text), text };
}

const statusesIn = (text: string) =>
  [...text.matchAll(/HTTP\/1\.1 (\d{3})/g)].map(([, status]) => Number(status));
