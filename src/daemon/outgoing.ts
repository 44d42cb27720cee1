import { cronSchedule } from '../config/schedule.ts';
import { inboxLoop } from '../sync/inbox-loop.ts';
import { OutboxCare } from '../sync/outbox-care.ts';
import { PushLoop } from '../sync/push-loop.ts';
import { sweepLoop } from '../sync/sweep-loop.ts';
import { inboxWiring } from './inbox-wiring.ts';
import { outboxChores, pushLine, retargetAsIs } from './outbox-wiring.ts';
import type { Parts, PartsOptions } from './parts.ts';

/** A loop to be supervised. */
export interface NamedLoop {
  name: string;
  run: (signal: AbortSignal, beat: () => void) => Promise<void>;
}

/** The catalogue's sweep and everything that sends changes. */
export function outgoingLoops(options: PartsOptions, parts: Parts, mayCall: () => boolean): NamedLoop[] {
  const { config, clock, random, log } = options;
  const { mirror, stores, changeDesk, platform, branches, onLine } = parts;
  const { freshnessBoard: freshness, alarms } = mirror;
  const { holdBackUnbooked: holdBack, skipUnchanged } = config.stock;
  const line = pushLine(stores, { holdBack, skipUnchanged, hasBranches: branches.length > 0 });
  let care: OutboxCare | undefined;
  const careLoop: NamedLoop['run'] = (signal, beat) => {
    care = new OutboxCare({
      platform,
      chores: outboxChores(stores, changeDesk, mirror, { holdBack, clock }),
      leases: parts.state.leases,
      mayCall,
      onLine: () => {
        for (const listener of onLine) listener();
      },
      clock,
      log,
      beat,
    });
    return care.run(signal);
  };
  const pushOf = (kind: 'stock' | 'product'): NamedLoop['run'] => {
    return async (signal, beat) => {
      const loop = new PushLoop({
        kind,
        platform,
        line,
        mayCall: () => care?.maySend ?? false,
        freshness,
        alarms,
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
    };
  };
  const inbox: NamedLoop['run'] = async (signal, beat) => {
    const { takeIn, close } = inboxWiring({ config, stores, alarms, clock, log });
    const told = () => {
      for (const listener of onLine) listener();
    };
    try {
      await inboxLoop({ takeIn, alarms, onLine: told, clock, log, beat }, signal);
    } finally {
      close();
    }
  };
  const catalog: NamedLoop['run'] = (signal, beat) =>
    sweepLoop(
      {
        sweep: parts.catalogSweep,
        branches,
        freshness,
        alarms,
        onComplete: () => retargetAsIs(stores, changeDesk),
        schedule: cronSchedule(config.catalog.sweep, config.orders.timezone),
        isComplete: () => stores.read(({ lookup }) => lookup.isComplete),
        mayCall,
        clock,
        random,
        log,
        beat,
      },
      signal,
    );
  return [
    { name: 'inbox', run: inbox },
    { name: 'outbox', run: careLoop },
    { name: 'push.stock', run: pushOf('stock') },
    { name: 'push.product', run: pushOf('product') },
    { name: 'catalog', run: catalog },
  ];
}
