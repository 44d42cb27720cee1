import type { IntakeEntry, IntakeOutcome, OrderKeeper } from '../../src/orders/order.ts';

/** A keeper that stores in memory; a test may make it wait or fail. */
export class MemoryKeeper implements OrderKeeper {
  readonly groups: IntakeEntry[][] = [];
  /** Called before each commit; may wait or throw. */
  before: (entries: readonly IntakeEntry[]) => void | Promise<void> = () => {};

  async keep(entries: readonly IntakeEntry[]): Promise<IntakeOutcome[]> {
    await this.before(entries);
    this.groups.push([...entries]);
    return entries.map((entry) => (entry.kind === 'order' ? 'created' : 'quarantined'));
  }

  get entries(): IntakeEntry[] {
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

export function orderEntry(orderId: string, raw = `{"internalOrderId":"${orderId}"}`): IntakeEntry {
  return {
    kind: 'order',
    observation: { source: 'webhook', observedAtMs: 0, raw, reading: { orderId, fields: {} } },
  };
}

/** A promise and its handle. */
export function gate(): { opened: Promise<void>; open: () => void } {
  const { promise, resolve } = Promise.withResolvers<void>();
  return { opened: promise, open: resolve };
}
