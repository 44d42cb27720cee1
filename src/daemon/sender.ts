import type { ChangeKind } from '../domain/change.ts';
import { OutboxCare } from '../sync/outbox-care.ts';
import { PushLoop } from '../sync/push-loop.ts';
import { outboxChores, pushLine } from './outbox-wiring.ts';
import type { Parts, PartsOptions } from './parts.ts';

export interface SenderOptions extends Pick<PartsOptions, 'config' | 'clock' | 'random' | 'log'> {
  parts: Parts;
  /** False while only a person can bring new tokens. */
  mayCall: () => boolean;
}

/** What sends the changes in line, in the daemon or in a command that waits for them. */
export class Sender {
  readonly #options: SenderOptions;
  #care: OutboxCare | undefined;

  constructor(options: SenderOptions) {
    this.#options = options;
  }

  /** Whether this process is the one that sends. */
  get maySend(): boolean {
    return this.#care?.maySend ?? false;
  }

  /** The care of the outbox, without which nothing is sent. Each call begins anew. */
  care(beat: () => void): OutboxCare {
    const { parts, config, clock, log, mayCall } = this.#options;
    const { stores, changeDesk, mirror, platform, state, onLine } = parts;
    const { holdBackUnbooked: holdBack } = config.stock;
    this.#care = new OutboxCare({
      platform,
      chores: outboxChores(stores, changeDesk, mirror, { holdBack, clock }),
      leases: state.leases,
      mayCall,
      onLine: () => {
        for (const listener of onLine) listener();
      },
      clock,
      log,
      beat,
    });
    return this.#care;
  }

  /** Sends one kind of changes until the signal, woken by `parts.onLine`. */
  async push(kind: ChangeKind, signal: AbortSignal, beat: () => void): Promise<void> {
    const { parts, config, clock, random, log } = this.#options;
    const { platform, stores, mirror, branches, onLine } = parts;
    const { holdBackUnbooked: holdBack, skipUnchanged } = config.stock;
    const loop = new PushLoop({
      kind,
      platform,
      line: pushLine(stores, { holdBack, skipUnchanged, hasBranches: branches.length > 0 }),
      mayCall: () => this.maySend,
      freshness: mirror.freshnessBoard,
      alarms: mirror.alarms,
      clock,
      random,
      log,
      lingerMs: config.outbox.lingerMs,
      beat,
    });
    const wake = () => loop.wake();
    onLine.add(wake);
    try {
      await loop.run(signal);
    } finally {
      onLine.delete(wake);
    }
  }
}
