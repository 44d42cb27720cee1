import type { IntakeEntry, IntakeOutcome, OrderKeeper } from '../../domain/order/order-intake.ts';
import { isoUtc } from '../../domain/time/clock.ts';
import type { MirrorFile } from './mirror-file.ts';
import type { MirrorTables } from './mirror-tables.ts';
import type { PollDigests } from './poll-digests.ts';

/** `freshness` may lag this much behind a burst of webhooks, so that each of them need not rewrite it. */
const FRESHNESS_EVERY_MS = 1_000;

export interface OrderIntakeOptions {
  file: MirrorFile;
  digests: PollDigests;
}

/** Keeps what webhooks and repairs bring: one durable transaction for each call. */
export class OrderIntake implements OrderKeeper {
  readonly #options: OrderIntakeOptions;
  #freshMs = Number.NEGATIVE_INFINITY;

  constructor(options: OrderIntakeOptions) {
    this.#options = options;
  }

  async keep(entries: readonly IntakeEntry[]): Promise<IntakeOutcome[]> {
    if (entries.length === 0) return [];
    const { file } = this.#options;
    const nowMs = file.clock.monotonicMs();
    const isWebhook = entries.some(
      (entry) => entry.kind === 'order' && entry.observation.source === 'webhook',
    );
    const refresh = isWebhook && nowMs - this.#freshMs >= FRESHNESS_EVERY_MS;
    const outcomes = await file.write((tables) => {
      if (refresh) webhookCame(tables, isoUtc(file.clock.nowMs()));
      return entries.map((entry) => this.#keepOne(tables, entry));
    });
    if (refresh) this.#freshMs = nowMs;
    return outcomes;
  }

  #keepOne({ merge, quarantine }: MirrorTables, entry: IntakeEntry): IntakeOutcome {
    if (entry.kind === 'unreadable') {
      quarantine.add(entry.unreadable);
      return 'quarantined';
    }
    const { observation } = entry;
    const digest = observation.source === 'poll' ? this.#options.digests.of(observation.raw) : null;
    return merge.apply(observation, digest);
  }
}

function webhookCame({ board }: MirrorTables, now: string): void {
  board.setFreshness({ subject: 'orders.webhook', lastOkAt: now, lastTryAt: now, state: 'ok', message: '' });
}
