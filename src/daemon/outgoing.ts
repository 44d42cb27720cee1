import { OutboxSender } from '../app/outbox-sender.ts';
import type { Services, ServicesOptions } from '../app/services.ts';
import { storagePaths } from '../app/storage.ts';
import { SweepTrigger, sweepLoop } from '../catalog/sweep-loop.ts';
import { cronSchedule } from '../config/schedule.ts';
import type { Counters } from '../health/counters.ts';
import { retentionLoop } from '../health/retention.ts';
import { InboxLoop } from '../outbox/intake/inbox-loop.ts';

/** A loop to be supervised. */
export interface NamedLoop {
  name: string;
  run: (signal: AbortSignal, beat: () => void) => Promise<void>;
}

/** Returns the loops that read the catalogue and send changes. */
export function outgoingLoops(
  options: ServicesOptions,
  services: Services,
  mayCall: () => boolean,
  counters: Pick<Counters, 'settled' | 'tookIn' | 'inbox'>,
): NamedLoop[] {
  const { config, clock, random, log, lookEveryMs, openInbox } = options;
  const { mirror, stores, branches, outbox } = services;
  const { health: freshness, health: alarms } = mirror;
  const trigger = new SweepTrigger(clock);
  const sender = new OutboxSender({
    services,
    config,
    clock,
    random,
    log,
    lookEveryMs,
    mayCall,
    wantCatalog: () => trigger.request(),
    onSettled: counters.settled,
  });
  const inbox: NamedLoop['run'] = async (signal, beat) => {
    const { directory, group } = config.storage;
    const loop = new InboxLoop(
      {
        path: storagePaths(directory).inbox,
        group: group === '' ? undefined : group,
        stores,
        alarms,
        lookEveryMs,
        openInbox,
        clock,
        log,
        beat,
        guards: config.guard,
        holdBack: config.stock.holdBackUnbooked,
        onWaiting: (waiting) => counters.inbox.saw(waiting, clock),
        onAlive: services.posLife.note.bind(services.posLife),
        onTaken: (taken) => {
          counters.tookIn(taken);
          if (taken.taken + taken.acknowledged > 0) outbox.queued();
        },
      },
      signal,
    );
    outbox.afterInbox(() => loop.ingestFirst());
    try {
      await loop.run(signal);
    } finally {
      outbox.afterInbox(async () => false);
      await loop.close();
    }
  };
  const catalog: NamedLoop['run'] = (signal, beat) =>
    sweepLoop(
      {
        sweep: services.catalogSweep,
        branches,
        freshness,
        schedule: cronSchedule(config.catalog.sweep, config.orders.timezone),
        sweptMs: () => stores.read(({ lookup }) => lookup.sweptMs),
        mayCall,
        trigger,
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
          {
            mirror,
            settings: config.retention,
            leases: services.state.leases,
            alarms,
            clock,
            skewMs: () => services.platform.clock.skewMs(),
            log,
            beat,
          },
          signal,
        ),
    },
  ];
}
