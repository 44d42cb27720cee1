import path from 'node:path';
import type { Services } from '../../../../src/app/services.ts';
import { TillsyncError } from '../../../../src/core/errors.ts';
import { silentLog } from '../../../../src/core/log.ts';
import { feedBranches } from '../../../../src/daemon/feed-branches.ts';
import { Hub } from '../../../../src/link/hub.ts';
import { noteStream, pruneFeed } from '../../../../src/link/hub-feed.ts';
import type { HubLink } from '../../../../src/link/link.ts';
import { addToFeed } from '../../../../src/orders/merging/branch-feed.ts';
import { compileSpellings } from '../../../../src/orders/merging/field-aliases.ts';
import { SEQ_JUMP } from '../../../../src/orders/merging/order.ts';
import { readSentOrder } from '../../../../src/orders/merging/order-reader.ts';
import type { ChangeKind } from '../../../../src/outbox/intake/change.ts';
import { ProductReads } from '../../../../src/outbox/sending/product-reads.ts';
import { PushCall, PushFreshness, PushLoop } from '../../../../src/outbox/sending/push-loop.ts';
import type { Transport } from '../../../../src/platform/transport.ts';
import { prepareRestoredMirror } from '../../../../src/support/restored-mirror.ts';
import { chanceFor } from '../profile.ts';
import { ChainStore } from './chain-store.ts';
import type { ChainWorld } from './chain-world.ts';

const SPELLINGS = compileSpellings({});
const CALL_MAX = 100;

/** The hub, between the platform and the server. */
export class SimulatedHub extends ChainStore {
  readonly #holdBack: boolean;
  hub!: Hub;
  #link!: HubLink;
  #reads!: ProductReads;
  #pushes!: Record<ChangeKind, PushLoop>;

  constructor(world: ChainWorld, transport: Transport, refreshToken: string, holdBack: boolean) {
    const branches = world.places.filter(({ isKnown }) => isKnown);
    const config = `
      [platform]
      base_url = "http://platform.test"
      [hub]
      nats = "nats://127.0.0.1:4222"
      [stock]
      hold_back_unbooked = ${holdBack}
      ${branches
        .map(({ subsidiaryId, externalId, mayPrice }) =>
          [
            '[[branches]]',
            `subsidiary_id = "${subsidiaryId}"`,
            externalId === null ? '' : `external_id = "${externalId}"`,
            `may_price = ${mayPrice}`,
          ].join('\n'),
        )
        .join('\n')}`;
    super(world, 'hub', { config, transport, refreshToken });
    this.#holdBack = holdBack;
  }

  protected async begin({ mirror, stores, state, platform }: Services): Promise<void> {
    const { clock, server, seed } = this.world;
    const { guard: guards, stock } = this.config;
    this.#link = server.hub();
    const branches = feedBranches(this.config, state.hub);
    this.hub = new Hub({
      link: this.#link,
      branches: () => branches,
      mirror,
      stores,
      rows: state.hub,
      guards,
      ...{
        holdBack: this.#holdBack,
        onQueued: () => {},
        ordersStaleAfterMs: () => 600_000,

        areOrdersStale: () => false,
        clock,
        log: silentLog,
      },
    });
    await this.hub.begin();
    for (const { name } of branches) {
      if (state.hub.hasJoined(name)) continue;
      const key = `U${name.padEnd(55, 'A')}`;
      state.hub.invite(name, key, clock.nowMs() + 1_000);
      state.hub.join(name, key, clock.nowMs());
    }
    await this.#link.answer((branch, question, body) => this.hub.answer(branch, question, body));
    const freshness = new PushFreshness(mirror.health);
    const { skipUnchanged, trustForMs: trustMs, platformDeducts } = stock;
    const push = (kind: ChangeKind) =>
      new PushLoop({
        kind,
        platform,
        stores,
        freshness,
        clock,
        log: silentLog,
        random: chanceFor(seed, 10),
        rules: { holdBack: this.#holdBack, skipUnchanged, trustMs, platformDeducts },
        hasBranches: true,
        lastPollOkMs: () => mirror.polls.lastOkMs(),
        status: () => 'sends',
        lingerMs: 0,
        beat: () => {},
      });
    this.#reads = new ProductReads({ stores, platform, clock, onQueued: () => {} });
    this.#pushes = { stock: push('stock'), product: push('product') };
    await stores.write(({ dispatcher }) => dispatcher.reclaim());
  }

  override async close(): Promise<void> {
    if (this.isOpen) await this.#link.close();
    await super.close();
  }

  async sweep(): Promise<void> {
    for (const branch of this.services.branches)
      await this.world.run(this.services.catalogSweep.sweep(branch));
  }

  /** Handles a callback of the platform. */
  async callback(body: string): Promise<void> {
    const reading = readSentOrder(JSON.parse(body), body, SPELLINGS);
    if ('unreadable' in reading) throw new Error(reading.unreadable);
    const observedAtMs = this.world.clock.nowMs();
    const observation = { source: 'webhook', observedAtMs, raw: body, reading } as const;
    await this.services.mirror.save([{ kind: 'order', observation }]);
  }

  async poll(): Promise<void> {
    await this.world.run(this.services.orderPoll.poll());
  }

  /** Publishes like the loop: reads the server's message store, then publishes everything that waits. */
  async publish(): Promise<void> {
    const { mirror, state } = this.services;
    const { clock } = this.world;
    const place = await this.#link.prepare([]);
    await mirror.write((db) => noteStream(db, place, state.hub.branches(), clock.nowMs()));
    await this.hub.catchUp();
    while (await this.hub.publish());
    await mirror.write((db) => pruneFeed(db, clock.nowMs()));
  }

  /**
   * Makes one call of each kind; returns whether any was made. With `dies`, the process dies after the platform applied
   * a call and before the outcome was written.
   */
  async push(dies = false): Promise<boolean> {
    const { platform } = this.services;
    while (await this.world.run(this.#reads.step({})));
    let hasSent = false;
    for (const kind of ['stock', 'product'] as const) {
      if (this.#pushes[kind].outlook().waiting === 0) continue;
      const { callId, items } = await this.#pushes[kind].claim(CALL_MAX);
      if (callId === null) continue;
      hasSent = true;
      const call = new PushCall(platform, kind, { endpoint: 'batch', call: {} });
      const { answers, trouble } = await this.world.run(call.run(items));
      if (dies) return true;
      await this.#pushes[kind].settle(callId, answers);
      if (trouble !== undefined && !(trouble instanceof TillsyncError)) throw trouble;
      if (trouble !== undefined) return false;
    }
    return hasSent;
  }

  /** Puts an entry that no branch can read into one branch's feed. */
  async poison(branch: string, body: object): Promise<void> {
    const at = new Date(this.world.clock.nowMs()).toISOString();
    await this.services.mirror.write((db) => addToFeed(db, branch, 'order', body, { at }));
  }

  /**
   * Restores an earlier backup as `tillsync restore` does, and decides on the changes that the restore holds, as a
   * person would.
   */
  async restore(file: string): Promise<void> {
    const newest = this.services.mirror.orders.newestSeq();
    await this.close();
    prepareRestored(file, newest, this.world);
    this.replaceMirror(file);
    await this.open();
    await this.services.stores.write(({ queries, admin }) => {
      for (const { changeId } of queries.list({ state: 'held', limit: 1_000 })) admin.discard(changeId);
    });
    await this.poll();
    await this.sweep();
  }

  get backupFile(): string {
    return path.join(this.world.directory, 'hub-backup.db');
  }
}

export function prepareRestored(file: string, newestSeq: number, { clock }: ChainWorld): void {
  prepareRestoredMirror(file, {
    continueAfterSeq: newestSeq + SEQ_JUMP,
    audited: [],
    clock,
    auditEvent: { who: 'a person', action: 'restore', subject: 'a backup', detail: '' },
  });
}
