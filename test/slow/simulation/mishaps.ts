import path from 'node:path';
import Database from 'better-sqlite3';
import type { Random } from '../../../src/core/time.ts';
import type { FaultSpec } from '../../../src/sandbox/faults.ts';
import type { SimulatedPos } from './simulated-pos.ts';
import type { SimulatedStore } from './simulated-store.ts';

const MINUTE_MS = 60_000;
const HOUR_MS = 3_600_000;
/** Shortest run, in days, that may have a holiday; in a shorter run there would be nothing but the holiday. */
const HOLIDAY_DAYS_MIN = 5;

/** A fault that lasts for a while. */
export interface Mishap {
  name: string;
  lengthMs: number;
  begin(): Promise<void> | void;
  end(): Promise<void> | void;
}

/** Faults of the platform; each applies to some of the calls. */
const FAULTS: readonly FaultSpec[] = [
  { kind: 'status', status: 503, probability: 0.7 },
  { kind: 'status', status: 500, probability: 0.3, when: 'after' },
  { kind: 'html', probability: 0.3 },
  { kind: 'truncated-json', probability: 0.3 },
  { kind: 'cut-body', probability: 0.3 },
  { kind: 'drop', when: 'before', probability: 0.5 },
  { kind: 'drop', when: 'after', probability: 0.5 },
  { kind: 'drop', when: 'after', endpoint: 'token.refresh', times: 1 },
  { kind: 'hang', probability: 0.2 },
  { kind: 'slow-body', probability: 0.5, delayMs: 7_000 },
  { kind: 'not-success', probability: 0.3 },
  { kind: 'not-success', probability: 0.3, when: 'after' },
  { kind: 'wrong-content-type', probability: 0.5 },
  { kind: 'miscount', probability: 0.5 },
  { kind: 'batch-refused', probability: 0.5 },
  { kind: 'rate-limit', times: 3 },
  { kind: 'block', times: 1 },
  { kind: 'forbid', endpoint: 'order.all', times: 1 },
  { kind: 'unauthorized', probability: 0.2 },
];

const CHANGE_ENDPOINTS = [
  'product.put',
  'product.stock.put',
  'product.batch',
  'product.stock.batch',
] as const;

/** Draws the next fault. */
export class Mishaps {
  readonly #store: SimulatedStore;
  readonly #random: Random;
  readonly #pos: Pick<SimulatedPos, 'rush' | 'takeBack' | 'visit'>;
  #maySeeHoliday: boolean;
  readonly excuses = { revocations: 0, holidays: 0 };

  constructor(store: SimulatedStore, random: Random, pos: Pick<SimulatedPos, 'rush' | 'takeBack' | 'visit'>) {
    this.#store = store;
    this.#random = random;
    this.#pos = pos;
    this.#maySeeHoliday = store.profile.days >= HOLIDAY_DAYS_MIN;
  }

  draw(): Mishap {
    const { sandbox, network, world } = this.#store;
    const { control } = sandbox;
    const lengthMs = (0.2 + 25 * this.#random.next() ** 2) * MINUTE_MS;
    const during = (name: string, begin: () => void, end: () => void, length = lengthMs): Mishap => ({
      name,
      lengthMs: length,
      begin,
      end,
    });
    const clockWrong = (byMs: number) =>
      during(
        `clock wrong by ${Math.round(byMs / HOUR_MS)} h`,
        () => this.#setClock(byMs),
        () => this.#setClock(0),
      );
    const all: (() => Mishap)[] = [
      () =>
        during(
          'network down',
          () => {
            network.isDown = true;
          },
          () => {
            network.isDown = false;
          },
        ),
      () => clockWrong(this.#random.next() < 0.5 ? HOUR_MS : -HOUR_MS),
      () => clockWrong(MINUTE_MS - world.nowMs()),
      ...(this.#store.profile.goesDown
        ? [
            () => this.#down('stop', () => this.#store.stop()),
            () => this.#down('crash', () => this.#store.crash()),
            () => this.#down('reboot', () => this.#store.reboot()),
            ...(this.#maySeeHoliday ? [() => this.#holiday()] : []),
            () => this.#crashWithin('product'),
            () => this.#crashWithin('token'),
            () => this.#crashWithin('order'),
          ]
        : []),
      () =>
        during(
          'command beside',
          () => void this.#store.pollBeside(),
          () => {},
        ),
      () => this.#lockedInbox(lengthMs),
      () => this.#rush(Math.min(lengthMs, 10 * MINUTE_MS)),
      () =>
        during(
          'tokens revoked',
          () => {
            this.excuses.revocations += 1;
            control.revokeRefreshTokens();
            control.expireAccessTokens();
          },
          () => {},
        ),
      () =>
        during(
          'access tokens expired',
          () => control.expireAccessTokens(),
          () => {},
        ),
      () =>
        during(
          'webhook off',
          () => this.#setActive(false),
          () => this.#setActive(true),
          (1 + this.#random.next()) * HOUR_MS,
        ),
      ...FAULTS.map((fault) => () => {
        let id = 0;
        return during(
          [fault.kind, fault.endpoint, fault.when].filter(Boolean).join(' '),
          () => {
            id = control.setFault(fault);
          },
          () => control.clearFaults(id),
        );
      }),
    ];
    const drawn = all[Math.floor(this.#random.next() * all.length)] as () => Mishap;
    return drawn();
  }

  /** Makes the POS submit many counts and corrections, while the platform applies about half of them without answer. */
  #rush(lengthMs: number): Mishap {
    const { control } = this.#store.sandbox;
    const over = new AbortController();
    const lost = { kind: 'drop', when: 'after', probability: 0.5 } as const;
    let faults: number[] = [];
    return {
      name: 'rush without answers',
      lengthMs,
      begin: () => {
        faults = CHANGE_ENDPOINTS.map((endpoint) => control.setFault({ ...lost, endpoint }));
        void this.#pos.rush(over.signal);
      },
      end: () => {
        over.abort();
        for (const id of faults) control.clearFaults(id);
      },
    };
  }

  /** Locks the inbox, like a program of the POS that begins a transaction and does not end it. */
  #lockedInbox(lengthMs: number): Mishap {
    let db: Database.Database | undefined;
    return {
      name: 'inbox locked',
      lengthMs,
      begin: () => {
        db = new Database(path.join(this.#store.directory, 'inbox', 'inbox.db'), { timeout: 0 });
        try {
          db.exec('BEGIN IMMEDIATE');
        } catch {
          // Another connection holds the lock already.
        }
      },
      end: () => void db?.close(),
    };
  }

  #down(name: string, begin: () => Promise<void> | void): Mishap {
    // The service manager restarts the daemon after five seconds; a machine or a person may take longer.
    const lengthMs = 5_000 + this.#random.next() ** 3 * 30 * MINUTE_MS;
    return { name, lengthMs, begin, end: () => this.#store.open() };
  }

  /** Stops the daemon for days, in which nobody switches the machine on, while the platform continues. */
  #holiday(): Mishap {
    this.#maySeeHoliday = false;
    const lengthMs = (1.5 + 1.5 * this.#random.next()) * 24 * HOUR_MS;
    const begin = () => {
      this.excuses.holidays += 1;
      return this.#store.stop();
    };
    return { ...this.#down('holiday', begin), lengthMs };
  }

  /**
   * Crashes the store after a call was answered and before the store has recorded the answer. The POS then corrects its
   * values: by SQL at once, or by HTTP as soon as the daemon listens again.
   */
  #crashWithin(family: string): Mishap {
    const { network } = this.#store;
    return {
      ...this.#down(`crash within a ${family} call`, () => {
        network.onAnswered = ({ endpoint, path: url, method }) => {
          if (!(endpoint ?? url.slice(1)).startsWith(family) || (method === 'GET' && family !== 'order'))
            return;
          network.onAnswered = undefined;
          this.#store.crash();
          void this.#pos.takeBack();
        };
      }),
      lengthMs: (5 + 25 * this.#random.next()) * MINUTE_MS,
      end: async () => {
        network.onAnswered = undefined;
        await this.#store.open();
        void this.#pos.visit();
      },
    };
  }

  #setClock(wrongByMs: number): void {
    this.#store.clock.wrongByMs = wrongByMs;
  }

  #setActive(active: boolean): void {
    const { control } = this.#store.sandbox;
    const before = control.webhook();
    if (before) control.setWebhook({ ...before, active });
  }
}
