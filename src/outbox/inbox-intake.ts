import type Database from 'better-sqlite3';
import { MirrorCatalog } from '../catalog/catalog-store.ts';
import { type Branch, branchDirectory } from '../catalog/product.ts';
import { type Clock, isoUtc } from '../core/time.ts';
import { readProductChange, readStockChange } from './change.ts';
import type { GuardSettings } from './guard-rails.ts';
import { type InboxBatch, type InboxChange, WIRE_NAMES } from './inbox.ts';
import { type Acceptance, type IntakeItem, OutboxIntake } from './intake.ts';
import { type AckResult, OrderTakings } from './order-takings.ts';
import { type ResolveOptions, resolveChange } from './resolve.ts';

/** A key of which the inbox row was deleted long ago without our noting it. */
const FORGET_AFTER_MS = 30 * 24 * 3_600_000;

/**
 * The mirror's memory of which inbox rows it has taken in. Two files cannot change in one transaction, so a row
 * is noted here together with its change, then deleted from the inbox, then forgotten here; dying anywhere in
 * between, and doing it again, takes it in once. Transactions are the caller's.
 */
export class InboxCopy {
  readonly #clock: Clock;
  readonly #note: Database.Statement<[string, string]>;
  readonly #forget: Database.Statement<[string]>;
  readonly #forgetOld: Database.Statement<[string]>;
  readonly #forgetAll: Database.Statement<[]>;

  constructor({ db, clock }: { db: Database.Database; clock: Clock }) {
    this.#clock = clock;
    this.#note = db.prepare(`
      INSERT INTO inbox_copied (inbox_key, copied_at) VALUES (?, ?) ON CONFLICT DO NOTHING`);
    this.#forget = db.prepare('DELETE FROM inbox_copied WHERE inbox_key = ?');
    this.#forgetAll = db.prepare('DELETE FROM inbox_copied');
    this.#forgetOld = db.prepare('DELETE FROM inbox_copied WHERE copied_at < ?');
  }

  /** Notes the rows of a batch as taken in, and gives those that were not before. */
  take(batch: InboxBatch): InboxBatch {
    const at = isoUtc(this.#clock.nowMs());
    const isNew = ({ key }: { key: string }) => this.#note.run(key, at).changes > 0;
    return { changes: batch.changes.filter(isNew), acks: batch.acks.filter(isNew), more: batch.more };
  }

  /** To be called when the inbox has no row at all: whatever is noted was deleted there, though a process died over it. */
  forgetAll(): void {
    this.#forgetAll.run();
  }

  /** To be called when the inbox no longer has the rows. */
  forget(batch: InboxBatch): void {
    for (const { key } of [...batch.changes, ...batch.acks]) this.#forget.run(key);
    this.#forgetOld.run(isoUtc(this.#clock.nowMs() - FORGET_AFTER_MS));
  }
}

export interface InboxReport {
  accepted: Acceptance[];
  acks: AckResult[];
  /** Rows that had been taken in before. */
  repeated: number;
}

/** Copies rows of the inbox into the outbox, each once, in one transaction of the mirror. */
export class InboxIntake {
  readonly #db: Database.Database;
  readonly #copy: InboxCopy;
  readonly #intake: OutboxIntake;
  readonly #takings: OrderTakings;
  readonly #resolving: ResolveOptions;

  constructor({ db, clock, branches }: { db: Database.Database; clock: Clock; branches: readonly Branch[] }) {
    const directory = branchDirectory(branches);
    this.#db = db;
    this.#copy = new InboxCopy({ db, clock });
    this.#intake = new OutboxIntake({ db, clock });
    this.#takings = new OrderTakings({ db, clock, branches: directory });
    this.#resolving = { catalog: new MirrorCatalog({ db, branches }), branches: directory };
  }

  /** First the counts, then the acknowledgements that say that these counts include them. */
  takeIn(batch: InboxBatch, guards: GuardSettings): InboxReport {
    return this.#db
      .transaction(() => {
        const fresh = this.#copy.take(batch);
        const items = fresh.changes.map((row) => this.#itemOf(row));
        const accepted = this.#intake.accept(items, { source: 'inbox', guards });
        // An order has no id as long as that, so there is none to acknowledge.
        const orderIds = fresh.acks.filter((ack) => ack.tooLong === null).map((ack) => ack.orderId);
        const acks = this.#takings.acknowledge(orderIds, 'inbox');
        const all = batch.changes.length + batch.acks.length;
        return { accepted, acks, repeated: all - accepted.length - acks.length };
      })
      .immediate();
  }

  /** To be called when the inbox has no row at all, nor a file that was set aside. */
  forgetAll(): void {
    this.#db.transaction(() => this.#copy.forgetAll()).immediate();
  }

  /** To be called when the inbox no longer has the rows of the batch. */
  forget(batch: InboxBatch): void {
    this.#db.transaction(() => this.#copy.forget(batch)).immediate();
  }

  /** A row that no check of the inbox could catch is kept as rejected, since nobody else would tell the POS. */
  #itemOf({ kind, value, reference, tooLong }: InboxChange): IntakeItem {
    if (tooLong !== null) {
      const { column, bytes, maxBytes } = tooLong;
      const message = `${WIRE_NAMES[column] ?? column} has ${bytes} bytes; no more than ${maxBytes} are taken.`;
      return { kind, fault: { code: 'bad-value', column, message }, value, reference };
    }
    if (kind === 'stock') {
      const reading = readStockChange(value);
      if ('fault' in reading) return { kind, fault: reading.fault, value, reference };
      const { change } = reading;
      return { kind, change, reference, resolution: resolveChange({ kind, change }, this.#resolving) };
    }
    const reading = readProductChange(value);
    if ('fault' in reading) return { kind, fault: reading.fault, value, reference };
    const { change } = reading;
    return { kind, change, reference, resolution: resolveChange({ kind, change }, this.#resolving) };
  }
}
