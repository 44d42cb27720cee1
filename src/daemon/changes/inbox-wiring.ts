import type { Config } from '../../config/config-type.ts';
import type { Log } from '../../domain/log.ts';
import type { Clock } from '../../domain/time/clock.ts';
import { Inbox } from '../../store/inbox/inbox.ts';
import type { InboxTaken } from '../../sync/inbox-loop.ts';
import type { MirrorStores } from '../storage/mirror-stores.ts';
import { storagePaths } from '../storage/storage-directory.ts';

const ROWS_AT_ONCE = 1_000;

export interface InboxWiringOptions {
  config: Config;
  stores: MirrorStores;
  clock: Clock;
  log: Log;
}

/** The inbox database of a SQL-only POS, as the loop wants it. */
export function inboxWiring({ config, stores, clock, log }: InboxWiringOptions) {
  let lost: string | null = null;
  const inbox = new Inbox({
    path: storagePaths(config.storage.directory).inbox,
    group: config.storage.group === '' ? undefined : config.storage.group,
    clock,
    onTrouble: (trouble) => {
      log.error({ ...trouble }, trouble.message);
      // A damaged file says so itself for as long as it is kept.
      if (trouble.kind !== 'damaged') lost = trouble.message;
    },
  });
  const standing = (): string | null => {
    const kept = inbox.keptFiles();
    if (kept.length === 0) return lost;
    return `The inbox was damaged and made anew. What the POS had put into it and tillsync had not taken in is in ${kept.join(', ')}. Have the POS hand it over again, then move the file away.`;
  };
  return {
    close: () => inbox.close(),
    async takeIn(): Promise<InboxTaken> {
      const batch = inbox.read(ROWS_AT_ONCE);
      const rows = batch.changes.length + batch.acks.length;
      if (rows === 0) return { taken: 0, rejected: 0, acknowledged: 0, more: false, trouble: standing() };
      lost = null;
      // Durable in the mirror first, then gone from the inbox, then forgotten: a crash between repeats harmlessly.
      const { holdBackUnbooked: holdBack } = config.stock;
      const report = await stores.write((at) => {
        if (holdBack) at.acks.begin();
        const taken = at.inbox.takeIn(batch, config.guard);
        if (taken.acks.length > 0 && holdBack) at.acks.correct();
        return taken;
      });
      inbox.remove(batch);
      await stores.write((at) => at.inbox.forget(batch));
      return {
        taken: report.accepted.length,
        rejected: report.accepted.filter(({ state }) => state === 'rejected').length,
        acknowledged: report.acks.length,
        more: rows >= ROWS_AT_ONCE,
        trouble: standing(),
      };
    },
  };
}
