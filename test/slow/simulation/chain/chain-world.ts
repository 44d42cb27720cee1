import { existsSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { TillsyncError } from '../../../../src/core/errors.ts';
import { PUBLISHED_LIMITS } from '../../../../src/demo/sandbox-platform.ts';
import type { Transport } from '../../../../src/platform/transport.ts';
import { createSandbox, type SandboxCore } from '../../../../src/sandbox/sandbox.ts';
import { InProcessServer } from '../../../link/in-process.ts';
import { FakeClock, settle } from '../../../support/fake-clock.ts';
import { chanceFor } from '../profile.ts';
import { SimulatedBranch } from './chain-branch.ts';
import { SimulatedHub } from './chain-hub.ts';
import { ChainPos } from './chain-pos.ts';

/** A branch as the platform has it; `isKnown` is true if the hub's configuration has it. */
export interface Place {
  name: string;
  subsidiaryId: string;
  externalId: string | null;
  mayPrice: boolean;
  isKnown: boolean;
}

const PLACES: readonly Place[] = [
  { name: 'B1', subsidiaryId: 'sub-1', externalId: 'B1', mayPrice: false, isKnown: true },
  { name: 'B2', subsidiaryId: 'sub-2', externalId: 'B2', mayPrice: true, isKnown: true },
  { name: 'sub-3', subsidiaryId: 'sub-3', externalId: null, mayPrice: false, isKnown: true },
  { name: 'B9', subsidiaryId: 'sub-9', externalId: 'B9', mayPrice: false, isKnown: false },
];

const PRODUCTS = 6;
const CALLBACK_URL = 'https://hub.example/webhook';

/** A company on one simulated clock: the platform, a hub, branches with their POS, and the server between them. */
export class ChainWorld {
  readonly seed: number;
  readonly clock = new FakeClock(undefined, undefined, () => settle(1));
  readonly directory: string;
  readonly places = PLACES;
  readonly server = new InProcessServer();
  readonly sandbox: SandboxCore;
  readonly hub: SimulatedHub;
  readonly branches: SimulatedBranch[];
  readonly tills = new Map<string, ChainPos>();
  /** Number of states that the platform gave an order, including the first. */
  readonly states = new Map<string, number>();
  isPlatformDown = false;
  losesCallbacks = false;

  constructor(seed: number) {
    this.seed = seed;
    const fast = existsSync('/dev/shm') ? '/dev/shm' : tmpdir();
    this.directory = mkdtempSync(path.join(fast, 'tillsync-chain-'));
    const { clock } = this;
    this.sandbox = createSandbox({
      clock,
      random: chanceFor(seed, 1),
      limits: PUBLISHED_LIMITS,
      seed: {
        branches: PLACES.map(({ subsidiaryId, externalId }) => ({ subsidiaryId, externalId })),
        products: PRODUCTS,
      },
      webhookTransport: async ({ body }) => {
        if (!this.hub.isOpen || this.losesCallbacks) throw new Error('connection refused');
        await this.hub.callback(body);
        return 200;
      },
    });
    this.sandbox.control.setWebhook({ callbackUrl: CALLBACK_URL, secret: 'secret', active: true });
    const { refreshToken } = this.sandbox.issueTokens();
    const holdsBack = chanceFor(seed, 2).next() < 0.5;
    this.hub = new SimulatedHub(this, this.#transport(), refreshToken, holdsBack);
    this.branches = PLACES.filter(({ isKnown }) => isKnown).map((place) => new SimulatedBranch(this, place));
  }

  async open(): Promise<void> {
    await this.hub.open();
    await this.hub.sweep();
    await this.hub.poll();
    for (const branch of this.branches) {
      await branch.open();
      const shelf = new Map(this.stocksOf(branch.place).map(({ id, qty }) => [id, qty]));
      const pos = new ChainPos(branch, shelf, chanceFor(this.seed, 100 + this.tills.size));
      this.tills.set(branch.name, pos);
    }
  }

  posOf(name: string): ChainPos {
    return this.tills.get(name) as ChainPos;
  }

  /** Returns the platform's stocks of a branch. `id` is the id that orders of the branch give the product. */
  stocksOf({ subsidiaryId }: Place): { id: string; sku: number; qty: number }[] {
    return this.sandbox.control.products().flatMap(({ children }) =>
      children.flatMap(({ sku, stocks, integrations }) => {
        const stock = stocks.find((each) => each.subsidiaryId === subsidiaryId);
        const ids = integrations.find((each) => each.subsidiaryId === subsidiaryId);
        const id = ids?.extId ?? ids?.productIdPosA ?? ids?.productCodePosB;
        return stock && id ? [{ id, sku, qty: stock.qty }] : [];
      }),
    );
  }

  /** Advances time until the promise is settled. */
  async run<T>(promise: Promise<T>): Promise<T> {
    let isOver = false;
    const over = promise.finally(() => {
      isOver = true;
    });
    over.catch(() => undefined);
    for (let tries = 0; !isOver; tries++) {
      for (let turn = 0; turn < 20 && !isOver; turn++) await settle(1);
      if (!isOver) await this.clock.advance(tries < 100 ? 250 : 5_000);
      if (tries > 10_000) throw new Error('It does not end.');
    }
    return over;
  }

  async close(): Promise<void> {
    for (const store of [this.hub, ...this.branches]) await store.close();
    await this.sandbox.close();
    rmSync(this.directory, { recursive: true, force: true });
  }

  /** Returns the hub's connection to the sandbox, on which calls fail while the platform is down. */
  #transport(): Transport {
    return {
      send: async ({ method, path: url, headers, body, signal }) => {
        if (this.isPlatformDown) throw new TillsyncError('platform-unreachable', 'The network is down.');
        const answer = await this.sandbox.handle({
          method,
          url,
          headers,
          body,
          signal: signal ?? new AbortController().signal,
        });
        if (answer.kind === 'dropped') throw new TillsyncError('platform-unreachable', 'No answer.');
        return { status: answer.status, headers: answer.headers, bytes: Buffer.from(answer.body) };
      },
      close: async () => {},
    };
  }
}
