import { rmSync } from 'node:fs';
import path from 'node:path';
import { hasCode } from '../../../../src/core/errors.ts';
import type { Random } from '../../../../src/core/time.ts';
import { SEQ_JUMP } from '../../../../src/orders/merging/order.ts';
import { drawChance, drawFrom, drawInt } from '../../../../src/sandbox/draws.ts';
import { chanceFor } from '../profile.ts';
import { SimulatedBranch } from './chain-branch.ts';
import { prepareRestored } from './chain-hub.ts';
import { chainFaults } from './chain-soundness.ts';
import { ChainWorld } from './chain-world.ts';

const HOUR_MS = 3_600_000;
const DAY_MS = 24 * HOUR_MS;
const STEPS = 60;
/** Normal steps together are this many times as frequent as mishaps. */
const WORK_SHARE = 4;

export interface ChainReport {
  seed: number;
  /** A sentence for each fault. */
  faults: string[];
  /** The steps, in order. */
  steps: string[];
  orders: number;
}

/** Makes a fault on purpose, so that a test can check that the simulation finds it. */
export type Sabotage = (world: ChainWorld) => Promise<void>;

/** Plays days of a company from one seed, with mishaps and a calm end. */
export async function simulateChain(seed: number, sabotage?: Sabotage): Promise<ChainReport> {
  const world = new ChainWorld(seed);
  try {
    await world.open();
    const days = new ChainDays(world);
    await sabotage?.(world);
    await days.live();
    await days.rest();
    const orders = world.sandbox.control.orders().length;
    return { seed, faults: [...chainFaults(world, days), ...days.faults], steps: days.steps, orders };
  } finally {
    await world.close();
  }
}

type Steps = Record<string, () => Promise<void>>;

export class ChainDays {
  readonly world: ChainWorld;
  readonly steps: string[] = [];
  readonly faults: string[] = [];
  readonly forgotten = new Set<string>();
  /** Orders whose customer was forgotten, but whom the hub may know again from a restored backup. */
  readonly known = new Set<string>();
  readonly #random: Random;
  #hasBackup = false;
  #copies = 0;
  /** Older copies of branches, by name: a directory with all files, and a backup of the mirror alone. */
  readonly #copied = new Map<string, { directory: string; backup: string }>();

  constructor(world: ChainWorld) {
    this.world = world;
    this.#random = chanceFor(world.seed, 3);
  }

  async live(): Promise<void> {
    for (let step = 0; step < STEPS; step++) {
      const isWork = drawInt(this.#random, 0, WORK_SHARE) > 0;
      const steps = isWork ? this.#work : this.#mishaps;
      const name = drawFrom(this.#random, Object.keys(steps));
      this.steps.push(name);
      await this.#try(steps[name] as () => Promise<void>);
      await this.world.clock.advance(drawInt(this.#random, 0, 60) * 1_000);
    }
  }

  /** Brings everything up, and lets enough time pass for all work to end. */
  async rest(): Promise<void> {
    const { world } = this;
    const { hub, branches, server, clock } = world;
    Object.assign(server, { isDown: false, lostAnswers: 0, lostAcknowledgements: 0, lostTakes: 0 });
    Object.assign(world, { isPlatformDown: false, losesCallbacks: false });
    for (const store of [hub, ...branches]) if (!store.isOpen) await store.open();
    for (let round = 0; round < 7; round++) {
      // Waits until a refusal or a lost answer is retried.
      await clock.advance(round === 2 ? 11 * 60_000 : 130_000);
      // After an outage the first calls wait for the token keeper's pause.
      await this.#try(() => hub.poll());
      if (round <= 2) await this.#try(() => hub.sweep());
      for (const branch of branches) {
        await branch.handUp();
        await world.posOf(branch.name).read();
      }
      await this.#try(async () => {
        while (await hub.push());
      });
      await hub.publish();
      // After a gap in its feed a branch first waits for the missing entries.
      for (const branch of branches) await this.#try(() => branch.follow());
    }
  }

  /**
   * Runs a step. It may fail because a part is unreachable, or because tokens are missing, which are then handed in.
   * Any other error is thrown.
   */
  async #try(step: () => Promise<void>): Promise<void> {
    try {
      await step();
    } catch (error) {
      if (hasCode(error, 'auth-required')) return await this.#handOverTokens();
      const isExpected = hasCode(error, 'link-down', 'link-refused', 'platform-unreachable');
      if (!isExpected) throw error;
    }
  }

  /** Hands in tokens as a person does when asked, for example after a hub was off longer than tokens live. */
  async #handOverTokens(): Promise<void> {
    const { hub, sandbox } = this.world;
    const { refreshToken } = sandbox.issueTokens();
    await this.#try(() => this.world.run(hub.services.platform.tokens.set({ refreshToken }).then(() => {})));
  }

  get #openBranch(): SimulatedBranch | undefined {
    const open = this.world.branches.filter(({ isOpen }) => isOpen);
    return open.length === 0 ? undefined : drawFrom(this.#random, open);
  }

  #atBranch(act: (branch: SimulatedBranch) => Promise<unknown>): () => Promise<void> {
    return async () => {
      const branch = this.#openBranch;
      if (branch) await act(branch);
    };
  }

  #atHub(act: () => Promise<unknown>): () => Promise<void> {
    return async () => {
      if (this.world.hub.isOpen) await act();
    };
  }

  readonly #work: Steps = {
    order: async () => {
      const { world } = this;
      const place = drawFrom(this.#random, world.places);
      const hidden = drawChance(this.#random, 0.1);
      // Only items with an id are ordered, because a POS cannot book others. In an unknown branch, an id of all
      // branches (`E-…`) is left out, because it may mean any branch.
      const stocks = world.stocksOf(place).filter(({ id }) => place.isKnown || !id.startsWith('E-'));
      const item = { sku: drawFrom(this.#random, stocks).sku, qty: drawInt(this.#random, 1, 3) };
      const wish = { subsidiaryId: place.subsidiaryId, items: [item] };
      const { internalOrderId } = world.sandbox.control.createOrder(wish, { hidden });
      world.states.set(internalOrderId, 1);
      await world.run(world.sandbox.control.settled());
    },
    advance: async () => {
      const { world } = this;
      const orders = world.sandbox.control.orders();
      if (orders.length === 0) return;
      const { internalOrderId: id } = drawFrom(this.#random, orders);
      const isCancelled = drawChance(this.#random, 0.15);
      const known = world.states.get(id) ?? 0;
      if (world.sandbox.control.advanceOrder(id, isCancelled ? 'cancel' : undefined)) {
        world.states.set(id, known + 1);
      }
      await world.run(world.sandbox.control.settled());
    },
    edit: async () => {
      const { world } = this;
      const orders = world.sandbox.control.orders();
      if (orders.length === 0) return;
      const { internalOrderId: id, deliveryFee } = drawFrom(this.#random, orders);
      world.sandbox.control.changeOrder(id, { deliveryFee: deliveryFee + 100 });
      world.states.set(id, (world.states.get(id) ?? 0) + 1);
      if (drawChance(this.#random, 0.5)) world.sandbox.control.announceOrder(id);
      await world.run(world.sandbox.control.settled());
    },
    trade: this.#atBranch(({ name }) => this.world.posOf(name).trade()),
    'read by seq': this.#atBranch(({ name }) => this.world.posOf(name).read()),
    err: this.#atBranch(({ name }) => this.world.posOf(name).err()),
    price: this.#atBranch(({ name, place }) => {
      const { sku } = drawFrom(this.#random, this.world.stocksOf(place));
      return this.world.posOf(name).price(String(sku), drawInt(this.#random, 20, 40) * 100);
    }),
    'hand up': this.#atBranch((branch) => branch.handUp()),
    hello: this.#atBranch((branch) => branch.follower.hello()),
    follow: this.#atBranch((branch) => branch.follow()),
    poll: this.#atHub(() => this.world.hub.poll()),
    push: this.#atHub(() => this.world.hub.push()),
    publish: this.#atHub(() => this.world.hub.publish()),
  };

  readonly #mishaps: Steps = {
    'branch stops': this.#atBranch((branch) => branch.close()),
    'branch starts': async () => {
      const closed = this.world.branches.filter(({ isOpen }) => !isOpen);
      for (const branch of closed) await branch.open();
    },
    'branch restarts': this.#atBranch(async (branch) => {
      await branch.close();
      await branch.open();
    }),
    'mirror lost': this.#atBranch(async (branch) => {
      await branch.close();
      branch.replaceMirror();
      await branch.open();
      await this.world.posOf(branch.name).tellAll();
    }),
    'branch copied': this.#atBranch(async (branch) => {
      this.#copies += 1;
      const directory = path.join(this.world.directory, `copy-${this.#copies}`);
      const backup = `${directory}.db`;
      branch.copyMirror(backup);
      await branch.close();
      branch.filesTo(directory);
      await branch.open();
      this.#copied.set(branch.name, { directory, backup });
    }),
    'branch is its older copy': async () => {
      for (const [name, { directory }] of this.#copied) {
        const branch = this.world.branches.find((each) => each.name === name) as SimulatedBranch;
        await branch.close();
        branch.filesFrom(directory);
        await branch.open();
        await this.world.posOf(name).tellAll();
      }
      this.#copied.clear();
    },
    'branch restored': async () => {
      for (const [name, { backup }] of this.#copied) {
        const branch = this.world.branches.find((each) => each.name === name) as SimulatedBranch;
        if (!branch.isOpen) await branch.open();
        const newest = branch.services.mirror.orders.newestSeq();
        await branch.close();
        prepareRestored(backup, newest - SEQ_JUMP, this.world);
        branch.replaceMirror(backup);
        await branch.open();
        await branch.services.stores.write(({ queries, admin }) => {
          for (const { changeId } of queries.list({ state: 'held', limit: 1_000 })) admin.discard(changeId);
        });
        await this.world.posOf(name).tellAll();
      }
      this.#copied.clear();
    },
    'two machines': this.#atBranch((branch) => this.#twoMachines(branch)),
    'hub stops': this.#atHub(() => this.world.hub.close()),
    'hub starts': async () => {
      if (!this.world.hub.isOpen) await this.world.hub.open();
    },
    'hub restarts': this.#atHub(async () => {
      await this.world.hub.close();
      await this.world.hub.open();
    }),
    'hub dies after a call': this.#atHub(async () => {
      await this.world.hub.push(true);
      await this.world.hub.close();
      await this.world.hub.open();
    }),
    'hub restored, later': async () => this.#restoreHub(),
    'hub backed up': this.#atHub(async () => {
      this.world.hub.copyMirror(this.world.hub.backupFile);
      this.#hasBackup = true;
    }),
    'hub restored': async () => this.#restoreHub(),
    'server down': async () => {
      this.world.server.isDown = true;
    },
    'server up': async () => {
      this.world.server.isDown = false;
    },
    'server loses its files': async () => this.world.server.lose(),
    'messages expire': async () => {
      this.world.server.expire(drawFrom(this.#random, this.world.branches).name, drawInt(this.#random, 1, 5));
    },
    'answers are lost': async () => {
      this.world.server.lostAnswers = drawInt(this.#random, 1, 3);
    },
    'acknowledgements are lost': async () => {
      this.world.server.lostAcknowledgements = drawInt(this.#random, 1, 3);
    },
    'takes are lost': async () => {
      this.world.server.lostTakes = drawInt(this.#random, 1, 3);
    },
    'platform down': async () => {
      this.world.isPlatformDown = true;
    },
    'platform up': async () => {
      this.world.isPlatformDown = false;
    },
    'callbacks are lost': async () => {
      this.world.losesCallbacks = !this.world.losesCallbacks;
    },
    hours: () => this.world.clock.advance(drawInt(this.#random, 1, 30) * HOUR_MS),
    'nine days': async () => {
      await this.world.clock.advance(9 * DAY_MS);
      // The server keeps messages no longer than seven days.
      for (const { name } of this.world.branches)
        this.world.server.expire(name, this.world.server.pending(name));
    },
    poison: this.#atHub(async () => {
      const { name } = drawFrom(this.#random, this.world.branches);
      await this.world.hub.poison(
        name,
        drawFrom(this.#random, [{}, { reading: 7 }, { reading: { orderId: 'x' } }]),
      );
    }),
    'customer forgotten': this.#atHub(async () => {
      const orders = this.world.hub.rows<{ order_id: string }>(
        'SELECT order_id FROM orders WHERE ended_at NOT NULL',
      );
      if (orders.length === 0) return;
      const { order_id: id } = drawFrom(this.#random, orders);
      await this.world.hub.services.mirror.customers.forgetAll([id]);
      this.forgotten.add(id);
    }),
  };

  async #restoreHub(): Promise<void> {
    const { hub } = this.world;
    if (!this.#hasBackup) return;
    if (!hub.isOpen) await hub.open();
    this.#hasBackup = false;
    // The backup may still have the data of customers who were forgotten since; a branch may have it or not.
    for (const id of this.forgotten) this.known.add(id);
    this.forgotten.clear();
    await hub.restore(hub.backupFile);
    rmSync(hub.backupFile);
  }

  /** Starts another machine with a copy of the branch's files, which works for a while and is then switched off. */
  async #twoMachines(branch: SimulatedBranch): Promise<void> {
    const pos = this.world.posOf(branch.name);
    this.#copies += 1;
    const directory = path.join(this.world.directory, `twin-files-${this.#copies}`);
    await branch.close();
    branch.filesTo(directory);
    await branch.open();
    const twin = new SimulatedBranch(this.world, branch.place, `twin-${this.#copies}`);
    twin.filesFrom(directory);
    await twin.open();
    try {
      for (let turn = drawInt(this.#random, 2, 8); turn > 0; turn--) {
        const one = drawFrom(this.#random, [branch, twin]);
        await this.#try(async () => {
          const act = drawFrom(this.#random, ['follow', 'hand up', 'trade']);
          if (act === 'trade') {
            pos.branch = one;
            await pos.trade();
          } else if (act === 'follow') await one.follow();
          else await one.handUp();
        });
      }
    } finally {
      pos.branch = branch;
      await twin.close();
    }
    // The staff of the other machine submit all counts again on the machine that stays.
    await branch.close();
    await branch.open();
    await pos.tellAll();
  }
}
