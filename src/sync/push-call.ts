import { readBatchAnswer } from '../domain/change/batch-answer.ts';
import { Bisection } from '../domain/change/bisect.ts';
import type { ChangeBody, ChangeKind } from '../domain/change/change.ts';
import type { ProductQuery } from '../domain/change/target.ts';
import { type Verification, verifyApplied } from '../domain/change/verify-applied.ts';
import { asTillsyncError, hasCode } from '../domain/errors.ts';
import type { CallOptions } from '../domain/platform/call.ts';
import type { Platform, ProductChangeItem, StockChangeItem } from '../domain/platform/platform.ts';

/** More doubtful items than this are sent again rather than asked for one by one. */
const ASK_MAX = 10;
/** After so many sends an item that stays in doubt is given to a person. */
const DOUBTFUL_SENDS_MAX = 3;

/** Why a change is given to a person that the platform neither took nor refused in so many words. */
const DOUBTS: Record<Exclude<Verification, 'applied'> | 'unreadable', string> = {
  differs: 'Sent several times; the platform does not say why it has another value.',
  unseen: 'Sent several times; the platform does not say that it took it, and the product does not show it.',
  unreadable: 'Sent several times; the platform does not say that it took it, nor show the product.',
};

export interface SentItem {
  changeId: number;
  body: ChangeBody;
  /** How often it was sent before. */
  attempts: number;
}

export interface SentOutcome {
  changeId: number;
  state: 'done' | 'rejected' | 'retry';
  message?: string;
}

export type PushPlatform = Pick<
  Platform,
  'productPut' | 'productStockPut' | 'productBatch' | 'productStockBatch' | 'productGet'
>;

export interface PushResult {
  outcomes: SentOutcome[];
  /** Why the flow should rest, when something beyond single items went wrong. */
  trouble: unknown;
}

/**
 * Sends claimed changes and says what became of each. Never rejects: whatever is not known to have been taken
 * or refused is to be sent again, since all values are absolute.
 */
export async function pushItems(
  platform: PushPlatform,
  kind: ChangeKind,
  items: readonly SentItem[],
  how: { lane: 'batch' | 'single'; call: CallOptions },
): Promise<PushResult> {
  const outcomes = new Map<number, SentOutcome>();
  const note = (item: SentItem, state: SentOutcome['state'], message?: string) =>
    outcomes.set(item.changeId, {
      changeId: item.changeId,
      state,
      ...(message !== undefined && { message }),
    });
  let trouble: unknown;
  const send = (group: readonly SentItem[]) =>
    how.lane === 'single' && group.length === 1
      ? sendOne(platform, kind, group[0] as SentItem, how.call, note)
      : sendBatch(platform, kind, group, how.call, note);
  try {
    await send(items);
  } catch (error) {
    trouble = hasCode(error, 'platform-refused') ? await bisect(items, error.message, send, note) : error;
  }
  for (const item of items) if (!outcomes.has(item.changeId)) note(item, 'retry', retryMessage(trouble));
  return { outcomes: [...outcomes.values()], trouble };
}

type Note = (item: SentItem, state: SentOutcome['state'], message?: string) => void;

async function sendOne(
  platform: PushPlatform,
  kind: ChangeKind,
  item: SentItem,
  call: CallOptions,
  note: Note,
) {
  const answer =
    kind === 'stock'
      ? await platform.productStockPut(item.body as StockChangeItem, call)
      : await platform.productPut(item.body as ProductChangeItem, call);
  if (answer === 'applied') note(item, 'done');
  else await settleDoubtful(platform, [item], call, note);
}

async function sendBatch(
  platform: PushPlatform,
  kind: ChangeKind,
  items: readonly SentItem[],
  call: CallOptions,
  note: Note,
): Promise<void> {
  const bodies = items.map((item) => item.body);
  const answer =
    kind === 'stock'
      ? await platform.productStockBatch(bodies as StockChangeItem[], call)
      : await platform.productBatch(bodies as ProductChangeItem[], call);
  const doubtful: SentItem[] = [];
  readBatchAnswer(bodies, answer).forEach((outcome, i) => {
    const item = items[i] as SentItem;
    if (outcome.state === 'applied') note(item, 'done');
    else if (outcome.state === 'rejected') note(item, 'rejected', outcome.message);
    else doubtful.push(item);
  });
  await settleDoubtful(platform, doubtful, call, note);
}

/** Reads what the answer left open; what cannot be told is sent again, a few times. */
async function settleDoubtful(
  platform: PushPlatform,
  doubtful: readonly SentItem[],
  call: CallOptions,
  note: Note,
): Promise<void> {
  for (const item of doubtful.slice(0, ASK_MAX)) {
    const { externalId } = item.body;
    const sku = 'sku' in item.body ? item.body.sku : undefined;
    const query = sku === undefined ? { externalId: externalId ?? '' } : { sku: String(sku) };
    const verdict = await verdictOf(platform, item, query, call);
    if (verdict === 'applied') note(item, 'done');
    else if (item.attempts + 1 >= DOUBTFUL_SENDS_MAX) note(item, 'rejected', DOUBTS[verdict]);
  }
}

/** `unreadable`: the platform refuses to show the product, which says nothing of the change that was sent. */
async function verdictOf(
  platform: PushPlatform,
  item: SentItem,
  query: ProductQuery,
  call: CallOptions,
): Promise<Verification | 'unreadable'> {
  try {
    return verifyApplied(item.body, await platform.productGet(query, call));
  } catch (error) {
    if (hasCode(error, 'platform-refused')) return 'unreadable';
    throw error;
  }
}

/** Finds the items for which the platform refused the whole call. Returns what else went wrong. */
async function bisect(
  items: readonly SentItem[],
  message: string,
  send: (group: readonly SentItem[]) => Promise<void>,
  note: Note,
): Promise<unknown> {
  const search = new Bisection(items, message);
  for (let group = search.next; group; group = search.next) {
    try {
      await send(group);
      search.groupAccepted();
    } catch (error) {
      if (!hasCode(error, 'platform-refused')) return error;
      search.groupRefused(error.message);
      if (search.isHopeless) return error;
    }
  }
  for (const refused of search.refused) note(refused.item, 'rejected', refused.message);
  return undefined;
}

function retryMessage(trouble: unknown): string {
  if (trouble === undefined) return 'The answer did not say whether it was taken; it is sent again.';
  return `Not known to have arrived (${asTillsyncError(trouble).message}); it is sent again.`;
}
