import { silentLog } from '../../src/core/log.ts';
import type { OrderReading } from '../../src/orders/merging/order.ts';
import {
  createReceiver,
  type Receiver,
  type ReceiverOptions,
} from '../../src/orders/receiving/callback-server.ts';
import { FakeClock } from '../support/fake-clock.ts';
import { SECRET } from './http-client.ts';
import { MemorySink } from './memory-sink.ts';

export interface Started {
  url: string;
  port: number;
  receiver: Receiver;
  sink: MemorySink;
  clock: FakeClock;
  unreadable: string[];
}

/** Reads only the order id, the one field that these tests need. */
export function readId(value: unknown): OrderReading | { unreadable: string } {
  const id = typeof value === 'object' && value !== null ? Reflect.get(value, 'internalOrderId') : undefined;
  return typeof id === 'string' ? { orderId: id, fields: {} } : { unreadable: 'No internalOrderId.' };
}

/** Starts a receiver on a free port. The caller closes it. */
export async function startReceiver(options: Partial<ReceiverOptions> = {}): Promise<Started> {
  const sink = new MemorySink();
  const clock = new FakeClock();
  const unreadable: string[] = [];
  const receiver = createReceiver({
    host: '127.0.0.1',
    port: 0,
    path: '/webhook',
    secrets: () => [SECRET],
    sink,
    read: readId,
    clock,
    log: silentLog,
    bodyLimitBytes: 64 * 1024,
    onUnreadable: (reason) => unreadable.push(reason),
    ...options,
  });
  const { url, port } = await receiver.listen();
  return { url, port, receiver, sink, clock, unreadable };
}
