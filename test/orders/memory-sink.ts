import type { IncomingEntry, OrderSink, SaveOutcome } from '../../src/orders/merging/order.ts';

/** A sink that stores entries in memory. A test can make it wait or fail. */
export class MemorySink implements OrderSink {
  readonly groups: IncomingEntry[][] = [];
  /** Called before each commit. It may wait or throw. */
  before: (entries: readonly IncomingEntry[]) => void | Promise<void> = () => {};

  async save(entries: readonly IncomingEntry[]): Promise<SaveOutcome[]> {
    await this.before(entries);
    this.groups.push([...entries]);
    return entries.map((entry) => (entry.kind === 'order' ? 'created' : 'quarantined'));
  }

  get entries(): IncomingEntry[] {
    return this.groups.flat();
  }

  get orderIds(): string[] {
    return this.entries.flatMap((entry) =>
      entry.kind === 'order' ? [entry.observation.reading.orderId] : [],
    );
  }

  get quarantined() {
    return this.entries.flatMap((entry) => (entry.kind === 'unreadable' ? [entry.unreadable] : []));
  }
}

export function orderEntry(orderId: string, raw = `{"internalOrderId":"${orderId}"}`): IncomingEntry {
  return {
    kind: 'order',
    observation: { source: 'webhook', observedAtMs: 0, raw, reading: { orderId, fields: {} } },
  };
}

/** Returns a promise and the function that resolves it. */
export function gate(): { opened: Promise<void>; open: () => void } {
  const { promise, resolve } = Promise.withResolvers<void>();
  return { opened: promise, open: resolve };
}
