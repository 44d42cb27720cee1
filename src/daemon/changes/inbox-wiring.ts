import type { Config } from '../../config/config-type.ts';
import type { Log } from '../../domain/log.ts';
import { InboxProcess } from '../../store/inbox/inbox-process.ts';
import { COUNTED_MAX, type InboxWaiting } from '../../store/inbox/inbox-rows.ts';
import type { InboxTaken } from '../../sync/inbox-loop.ts';
import type { MirrorStores } from '../storage/mirror-stores.ts';
import { storagePaths } from '../storage/storage-directory.ts';

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
        if (holdBack) at.takings.begin(true);
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
