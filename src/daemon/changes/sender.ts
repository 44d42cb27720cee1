import type { ChangeKind } from '../../domain/change/change.ts';
import { OutboxCare } from '../../sync/outbox-care.ts';
import { PushFreshness } from '../../sync/push-freshness.ts';
import { PushLoop } from '../../sync/push-loop.ts';
import type { Parts, PartsOptions } from '../parts.ts';
import { type OnSettled, outboxChores, pushLine } from './outbox-wiring.ts';

export interface SenderOptions
  extends Pick<PartsOptions, 'config' | 'clock' | 'random' | 'log' | 'lookEveryMs'> {
  parts: Parts;
  /** False while only a person can bring new tokens. */
  mayCall: () => boolean;
  /** Asks for the catalogue to be read soon; left out where nobody reads it. */
  wantCatalog?: () => void;
  /** Told what became of the changes of each call. */
  onSettled?: OnSettled | undefined;
}

/** What sends the changes in line, in the daemon or in a command that waits for them. */
export class Sender {
  readonly #options: SenderOptions;
  readonly #freshness: PushFreshness;
  readonly #pushing = new Set<Promise<void>>();
  #care: OutboxCare | undefined;

  constructor(options: SenderOptions) {
    this.#options = options;
    this.#freshness = new PushFreshness(options.parts.mirror.freshnessBoard);
  }

  /** Whether this process is the one that sends, and nothing keeps it from it. */
  get maySend(): boolean {
    return this.#standing() === 'sends';
  }

  /** The care of the outbox, without which nothing is sent. Each call begins anew. */
  care(beat: () => void): OutboxCare {
    const { parts, config, clock, random, log, lookEveryMs, mayCall, wantCatalog } = this.#options;
    const { stores, changeDesk, mirror, platform, state, onLine } = parts;
    const { holdBackUnbooked: holdBack } = config.stock;
    this.#care = new OutboxCare({
      platform,
      chores: outboxChores(stores, changeDesk, mirror, {
        holdBack,
        clock,
        keptMs: config.retention.outboxMs,
        readsCatalog: wantCatalog !== undefined && parts.branches.length > 0,
      }),
      leases: state.leases,
      alarms: mirror.alarms,
      mayCall,
      wantCatalog: wantCatalog ?? (() => {}),
      onLine: () => {
        for (const listener of onLine) listener();
      },
      sent: () => Promise.allSettled(this.#pushing),
      lookEveryMs,
      clock,
      random,
      log,
      beat,
    });
    return this.#care;
  }

  /** Sends one kind of changes until the signal, woken by `parts.onLine`. */
  async push(kind: ChangeKind, signal: AbortSignal, beat: () => void): Promise<void> {
    const { parts, config, clock, random, log, lookEveryMs, onSettled } = this.#options;
    const { platform, stores, changeDesk, branches, mirror, onLine } = parts;
    const { holdBackUnbooked: holdBack, skipUnchanged, trustForMs: trustMs, platformDeducts } = config.stock;
    const loop = new PushLoop({
      kind,
      platform,
      line: pushLine(stores, changeDesk, {
        holdBack,
        skipUnchanged,
        trustMs,
        platformDeducts,
        hasBranches: branches.length > 0,
        lastPollOkMs: () => mirror.lastPollOkMs(),
        clock,
        onSettled: onSettled && ((outcomes) => onSettled(kind, outcomes)),
      }),
      standing: () => this.#standing(),
      freshness: this.#freshness,
      clock,
      random,
      log,
      lingerMs: config.outbox.lingerMs,
      lookEveryMs,
      beat,
    });
    const wake = () => loop.wake();
    onLine.add(wake);
    const pushing = loop.run(signal);
    this.#pushing.add(pushing);
    try {
      await pushing;
    } finally {
      this.#pushing.delete(pushing);
      onLine.delete(wake);
    }
  }

  #standing(): 'sends' | 'elsewhere' | 'locked-out' {
    if (!this.#care?.isSender) return 'elsewhere';
    return this.#options.mayCall() ? 'sends' : 'locked-out';
  }
}
