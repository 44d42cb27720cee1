import type { Random } from '../../../../src/core/time.ts';
import { takesNothing } from '../../../../src/orders/merging/order.ts';
import type { SubmittedChange } from '../../../../src/outbox/intake/change.ts';
import { drawInt } from '../../../../src/sandbox/draws.ts';
import type { SimulatedBranch } from './chain-branch.ts';

interface SeenEvent {
  seq: number;
  order_id: string;
  status: string | null;
}

/** A branch's POS: it reads orders only by `seq`, keeps its own stock and submits each change of it. */
export class ChainPos {
  readonly #random: Random;
  branch: SimulatedBranch;
  /** Quantity of each product, by the id that the branch and its orders use for the product. */
  readonly shelf: Map<string, number>;
  /** Known orders with their last seen status. */
  readonly orders = new Map<string, string | null>();
  readonly #booked = new Map<string, { id: string; qty: number }[]>();
  /** A sentence for each event whose `seq` was not higher than the one before. */
  readonly faults: string[] = [];
  #seq = 0;
  #references = 0;

  constructor(branch: SimulatedBranch, shelf: Map<string, number>, random: Random) {
    this.branch = branch;
    this.shelf = shelf;
    this.#random = random;
  }

  /**
   * Reads new events. Each order is booked once; the counts that include it are submitted before its acknowledgement.
   */
  async read(): Promise<void> {
    const sql = 'SELECT seq, order_id, status FROM order_events WHERE seq > ? ORDER BY seq';
    const events = this.branch.rows<SeenEvent>(sql, this.#seq);
    const changed = new Set<string>();
    const acks: string[] = [];
    for (const { seq, order_id: orderId, status } of events) {
      if (seq <= this.#seq)
        this.faults.push(`${this.branch.name}: seq went from ${this.#seq} back to ${seq}`);
      this.#seq = seq;
      this.orders.set(orderId, status);
      const booked = this.#booked.get(orderId);
      if (booked) acks.push(orderId);
      if (takesNothing(status)) {
        for (const { id, qty } of booked ?? this.#lines(orderId)) {
          if (booked) this.#move(id, qty);
          changed.add(id);
        }
        this.#booked.set(orderId, []);
      } else if (!booked) {
        const lines = this.#lines(orderId);
        for (const { id, qty } of lines) {
          this.#move(id, -qty);
          changed.add(id);
        }
        this.#booked.set(orderId, lines);
        acks.push(orderId);
      }
    }
    await this.#handOver(changed, acks);
  }

  /** Changes the stock of one product, as a sale, a return or a recount in the store does, and submits the count. */
  async trade(): Promise<void> {
    const ids = [...this.shelf.keys()];
    const id = ids[drawInt(this.#random, 0, ids.length - 1)] as string;
    const wished = this.#random.next() < 0.1 ? 0 : drawInt(this.#random, 20, 99);
    this.shelf.set(id, wished);
    await this.#handOver([id], []);
  }

  /** Submits a count of an unknown product, which must be rejected. */
  async err(): Promise<void> {
    await this.branch.take([this.#change({ kind: 'stock', change: { externalId: 'nobody', qty: 3 } })], []);
  }

  async price(sku: string, price: number): Promise<void> {
    await this.branch.take([this.#change({ kind: 'product', change: { sku, price } })], []);
  }

  /**
   * Submits all counts and acknowledges all orders again, as a POS does after its tillsync was lost or restored from an
   * older copy.
   */
  async tellAll(): Promise<void> {
    await this.#handOver(this.shelf.keys(), [...this.#booked.keys()]);
  }

  async #handOver(ids: Iterable<string>, acks: readonly string[]): Promise<void> {
    const counts = [...ids].flatMap((externalId) => {
      const qty = this.shelf.get(externalId);
      return qty === undefined ? [] : [this.#change({ kind: 'stock', change: { externalId, qty } })];
    });
    if (counts.length + acks.length > 0) await this.branch.take(counts, acks);
  }

  #change(change: Extract<SubmittedChange, { change: unknown }>): SubmittedChange {
    this.#references += 1;
    return { ...change, reference: `${this.branch.name}-${this.#references}` };
  }

  #lines(orderId: string): { id: string; qty: number }[] {
    const sql = `SELECT product_external_id AS id, quantity AS qty FROM order_items
      WHERE order_id = ? AND product_external_id IS NOT NULL`;
    return this.branch.rows<{ id: string; qty: number }>(sql, orderId);
  }

  #move(id: string, by: number): void {
    const there = this.shelf.get(id);
    if (there !== undefined) this.shelf.set(id, Math.max(0, there + by));
  }
}
