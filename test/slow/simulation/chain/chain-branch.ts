import type { Services } from '../../../../src/app/services.ts';
import { silentLog } from '../../../../src/core/log.ts';
import { BranchFollower } from '../../../../src/link/branch.ts';
import type { BranchLink } from '../../../../src/link/link.ts';
import { compileSpellings } from '../../../../src/orders/merging/field-aliases.ts';
import type { SubmittedChange } from '../../../../src/outbox/intake/change.ts';
import { ChainStore } from './chain-store.ts';
import type { ChainWorld, Place } from './chain-world.ts';

const SPELLINGS = compileSpellings({});

/** The tillsync of a branch, or of another machine that has a copy of its files. */
export class SimulatedBranch extends ChainStore {
  readonly place: Place;
  readonly name: string;
  follower!: BranchFollower;
  #link!: BranchLink;

  constructor(world: ChainWorld, place: Place, directory = place.name) {
    const nobody = () => Promise.reject(new Error('A branch calls nobody.'));
    super(world, directory, {
      config: `[link]\nhub = "nats://127.0.0.1:4222"\nbranch = "${place.name}"`,
      transport: { send: nobody, close: async () => {} },
    });
    this.place = place;
    this.name = place.name;
  }

  protected async begin({ mirror, stores }: Services): Promise<void> {
    const { clock, server } = this.world;
    this.#link = server.branch(this.name);
    this.follower = new BranchFollower({
      link: this.#link,
      mirror,
      stores,
      spellings: SPELLINGS,
      version: '0',
      outboxKeptMs: 0,
      onOrders: () => {},
      onHubClock: () => {},
      clock,
      log: silentLog,
      verdict: () => ({ level: 'green', findings: [] }),
    });
    await this.follower.begin();
  }

  /** Applies everything that the server has for this branch. */
  async follow(): Promise<void> {
    const over = new AbortController();
    await this.#link.follow(async (messages) => {
      const isTaken = await this.follower.take(messages);
      if (messages.length === 0) over.abort();
      return isTaken;
    }, over.signal);
  }

  /** Sends to the hub as the loop does: first the hello, then the waiting items. */
  async handUp(): Promise<void> {
    await this.follower.hello();
    while (await this.follower.uploadOnce());
  }

  /**
   * Takes what the POS submits, through whatever interface: first counts, then acknowledgements of the orders that the
   * counts include.
   */
  async take(items: readonly SubmittedChange[], orderIds: readonly string[]): Promise<void> {
    const { guard: guards } = this.config;
    await this.services.stores.write(({ intake, reservations }) => {
      intake.accept(items, { source: 'inbox', guards });
      reservations.acknowledge(orderIds, 'inbox');
    });
  }
}
