import type { Mirror } from '../../store/mirror/mirror.ts';
import {
  getReceived,
  listReceived,
  type ReceivedDetail,
  type ReceivedEntry,
  type ReceivedFilter,
} from '../../store/mirror/received-queries.ts';

export type { ReceivedDetail, ReceivedEntry, ReceivedFilter };

/** What was received of orders, the newest first. */
export function listEvents(
  mirror: Pick<Mirror, 'read'>,
  filter: ReceivedFilter,
  options: { limit: number; quarantinedOnly: boolean },
): ReceivedEntry[] {
  return mirror.read(({ db }) => listReceived(db, filter, options));
}

/** undefined: nothing has this id, or no longer. */
export function getEvent(mirror: Pick<Mirror, 'read'>, id: string): ReceivedDetail | undefined {
  return mirror.read(({ db }) => getReceived(db, id));
}
