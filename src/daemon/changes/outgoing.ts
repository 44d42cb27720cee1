import { cronSchedule } from '../../config/schedule.ts';
import type { InboxWaiting } from '../../store/inbox/inbox-rows.ts';
import { inboxLoop } from '../../sync/inbox-loop.ts';
import { SweepWish, sweepLoop } from '../../sync/sweep-loop.ts';
import type { Counters } from '../metrics/counters.ts';
import type { Parts, PartsOptions } from '../parts.ts';
import { retention } from '../received/retention-wiring.ts';
import { inboxWiring } from './inbox-wiring.ts';
import { Sender } from './sender.ts';

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
    { name: 'outbox', run: (signal, beat) => sender.care(beat).run(signal) },
    { name: 'push.stock', run: (signal, beat) => sender.push('stock', signal, beat) },
    { name: 'push.product', run: (signal, beat) => sender.push('product', signal, beat) },
    { name: 'catalog', run: catalog },
    { name: 'retention', run: retention(options, parts) },
  ];
}
