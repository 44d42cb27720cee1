import type { Parts, PartsOptions } from '../app/parts.ts';
import { Sender } from '../app/sender.ts';
import { storagePaths } from '../app/storage.ts';
import { SweepWish, sweepLoop } from '../catalog/sweep.ts';
import type { Config } from '../config/config-type.ts';
import { cronSchedule } from '../config/schedule.ts';
import type { Log } from '../core/log.ts';
import type { Counters } from '../health/counters.ts';
import { retentionLoop } from '../health/retention.ts';
import { COUNTED_MAX, type InboxWaiting } from '../outbox/inbox.ts';
import { type InboxTaken, inboxLoop } from '../outbox/inbox-loop.ts';
import { InboxProcess } from '../outbox/inbox-process.ts';
import type { MirrorStores } from '../outbox/stores.ts';

const ROWS_AT_ONCE = 1_000;

export interface InboxWiringOptions {
  config: Config;
  stores: MirrorStores;
  /** Told what waits after each look. */
  onWaiting?: (waiting: InboxWaiting) => void;
  signal?: AbortSignal;
  log: Log;
}

/** The inbox database of a SQL-only POS, as the loop wants it. */
export function inboxWiring({ config, stores, onWaiting, signal, log }: InboxWiringOptions) {
  let lost: string | null = null;
  let isTidy = false;
  const inbox = new InboxProcess({
    path: storagePaths(config.storage.directory).inbox,
    group: config.storage.group === '' ? undefined : config.storage.group,
    signal,
    onTrouble: ({ kind, keptAt, message }) => {
      log.error({ kind, keptAt }, message);
      // A damaged file says so itself for as long as it is kept.
      if (kind !== 'damaged') lost = message;
    },
  });
  const standing = (kept: readonly string[]): string | null => {
    if (kept.length === 0) return lost;
    return `The inbox was damaged and made anew. What the POS had put into it and tillsync had not taken in is in ${kept.join(', ')}. Have the POS hand it over again, then move the file away.`;
  };
  return {
    close: () => inbox.close(),
    async takeIn(): Promise<InboxTaken> {
      const { batch, waiting, keptFiles } = await inbox.ask({ do: 'look', limit: ROWS_AT_ONCE });
      onWaiting?.(waiting);
      const rows = [...batch.changes, ...batch.acks];
      const nothing = { taken: 0, rejected: 0, acknowledged: 0, unheard: [], more: false };
      if (rows.length === 0) {
        // What a process that died had deleted there and not forgotten here.
        if (!isTidy && keptFiles.length === 0) await stores.write((at) => at.inbox.forgetAll());
        isTidy = true;
        return { ...nothing, trouble: standing(keptFiles) };
      }
      lost = null;
      // Durable in the mirror first, then gone from the inbox, then forgotten: a crash between repeats harmlessly.
      const { holdBackUnbooked: holdBack } = config.stock;
      const report = await stores.write((at) => {
        if (holdBack) at.reservations.begin(true);
        return at.inbox.takeIn(batch, config.guard);
      });
      for (const { table, id, tooLong } of rows) {
        if (tooLong) log.warn({ table, id, ...tooLong }, 'a row of the inbox is too long and was not taken');
      }
      await inbox.ask({
        do: 'remove',
        rows: rows.map(({ table, id, key, keyHex, tooLong }) => ({ table, id, key, keyHex, tooLong })),
      });
      const left = waiting.rows - rows.length;
      if (waiting.rows < COUNTED_MAX && left <= 0) onWaiting?.({ rows: 0, oldest: null });
      await stores.write((at) => at.inbox.forget(batch));
      return {
        taken: report.accepted.length,
        rejected: report.accepted.filter(({ state }) => state === 'rejected').length,
        acknowledged: report.acks.length,
        unheard: report.acks.flatMap(({ orderId, state }) => (state === 'unheard' ? [orderId] : [])),
        more: batch.more,
        trouble: standing(keptFiles),
      };
    },
  };
}

/** A loop to be supervised. */
export interface NamedLoop {
  name: string;
  run: (signal: AbortSignal, beat: () => void) => Promise<void>;
}

/** The catalogue's sweep and everything that sends changes. */
export function outgoingLoops(
  options: PartsOptions,
  parts: Parts,
  mayCall: () => boolean,
  counters: Pick<Counters, 'settled' | 'tookIn' | 'inbox'>,
): NamedLoop[] {
  const { config, clock, random, log, lookEveryMs } = options;
  const { mirror, stores, branches, onLine } = parts;
  const { freshnessBoard: freshness, alarms } = mirror;
  const wish = new SweepWish(clock);
  const sender = new Sender({
    parts,
    config,
    clock,
    random,
    log,
    lookEveryMs,
    mayCall,
    wantCatalog: () => wish.make(),
    onSettled: counters.settled,
  });
  const inbox: NamedLoop['run'] = async (signal, beat) => {
    const onWaiting = (waiting: InboxWaiting) => counters.inbox.saw(waiting, clock);
    const { takeIn: take, close } = inboxWiring({ config, stores, onWaiting, signal, log });
    const takeIn = async () => {
      const report = await take();
      counters.tookIn(report);
      return report;
    };
    const told = () => {
      for (const listener of onLine) listener();
    };
    try {
      await inboxLoop({ takeIn, alarms, onLine: told, lookEveryMs, clock, log, beat }, signal);
    } finally {
      await close();
    }
  };
  const catalog: NamedLoop['run'] = (signal, beat) =>
    sweepLoop(
      {
        sweep: parts.catalogSweep,
        branches,
        freshness,
        alarms,
        schedule: cronSchedule(config.catalog.sweep, config.orders.timezone),
        sweptMs: () => stores.read(({ lookup }) => lookup.sweptMs),
        mayCall,
        wish,
        clock,
        random,
        log,
        beat,
      },
      signal,
    );
  return [
    { name: 'inbox', run: inbox },
    { name: 'outbox', run: (signal, beat) => sender.maintenance(beat).run(signal) },
    { name: 'push.stock', run: (signal, beat) => sender.push('stock', signal, beat) },
    { name: 'push.product', run: (signal, beat) => sender.push('product', signal, beat) },
    { name: 'catalog', run: catalog },
    {
      name: 'retention',
      run: (signal, beat) =>
        retentionLoop(
          { mirror, settings: config.retention, leases: parts.state.leases, alarms, clock, log, beat },
          signal,
        ),
    },
  ];
}
