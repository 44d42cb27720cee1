import { whenFree } from '../domain/busy.ts';
import { TillsyncError } from '../domain/errors.ts';
import type { Leases } from '../domain/leases.ts';
import type { Branch } from '../domain/product/catalog-lookup.ts';
import {
  type CatalogKeeper,
  CatalogSweep,
  type CatalogSweepOptions,
  type SweepReport,
  type SweepRequest,
} from './catalog-sweep.ts';

const LEASE = 'catalog.sweep';
const LEASE_HOLD_MS = 600_000;
const LOOK_EVERY_MS = 500;

export interface LeasedSweepOptions extends CatalogSweepOptions {
  leases: Leases;
}

export interface LeasedSweepRequest extends SweepRequest {
  /** Told when another process is sweeping, so that this one waits until it has ended. */
  onBusy?: () => void;
}

/**
 * The sweep of a branch, of which one process does one at a time: an older reading of the list that ended last
 * would take products for vanished that a newer one has just seen.
 */
export class LeasedSweep {
  readonly #options: LeasedSweepOptions;

  constructor(options: LeasedSweepOptions) {
    this.#options = options;
  }

  /** Errors: those of CatalogSweep.sweep; `lease-lost` when another process took over a sweep that stood still. */
  async sweep(branch: Branch, request: LeasedSweepRequest = {}): Promise<SweepReport> {
    const { leases, clock } = this.#options;
    const fence = await this.#lease(request);
    const sweep = new CatalogSweep({ ...this.#options, keeper: this.#fenced(fence) });
    try {
      return await sweep.sweep(branch, request);
    } finally {
      await whenFree(clock, () => leases.release(LEASE, fence)).catch(() => {});
    }
  }

  async #lease({ signal, onBusy }: LeasedSweepRequest): Promise<number> {
    const { leases, clock } = this.#options;
    for (;;) {
      const fence = await whenFree(clock, () => leases.acquire(LEASE, LEASE_HOLD_MS), undefined, signal);
      if (fence !== undefined) return fence;
      if (signal?.aborted) {
        throw new TillsyncError('aborted', 'Stopped while another process reads the catalogue.');
      }
      onBusy?.();
      await clock.sleep(LOOK_EVERY_MS, signal);
    }
  }

  /** Writes nothing more once another process has the lease. */
  #fenced(fence: number): CatalogKeeper {
    const { keeper, leases, clock } = this.#options;
    const hold = async () => {
      if (await whenFree(clock, () => leases.renew(LEASE, fence, LEASE_HOLD_MS))) return;
      throw new TillsyncError(
        'lease-lost',
        'Another process has begun to read the catalogue; this reading was left.',
        { retryable: true },
      );
    };
    return {
      readMark: () => keeper.readMark(),
      unlisted: (branch, seen) => keeper.unlisted(branch, seen),
      quarantine: (text) => keeper.quarantine(text),
      async applyPage(branch, records, mark) {
        await hold();
        return await keeper.applyPage(branch, records, mark);
      },
      async applyRead(record, mark) {
        await hold();
        return await keeper.applyRead(record, mark);
      },
      async completeSweep(sweep) {
        await hold();
        return await keeper.completeSweep(sweep);
      },
    };
  }
}
