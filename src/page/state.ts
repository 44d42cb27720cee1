import type { MirroredProduct } from '../catalog/product.ts';
import { fold } from '../core/folding.ts';
import type { BoardOrder, TrendHour } from '../orders/merging/mirrored-order.ts';
import type {
  ApiFault,
  Branch,
  Change,
  OrderAnswer,
  OrderExplained,
  StatusAnswer,
  StocksExplained,
} from './api.ts';
import type { Speech, WordKey } from './words/language.ts';

/**
 * Stages of an order, which are the board's columns. Unpaid orders (`payment`) come after those in progress, because
 * they cannot be prepared yet.
 */
export const STAGES = ['new', 'scheduled', 'preparing', 'ready', 'underway', 'payment', 'ended'] as const;
export type Stage = (typeof STAGES)[number];

const STAGE_OF: Readonly<Record<string, Stage>> = {
  pending: 'payment',
  'payment-pending': 'payment',
  'payment-approved': 'new',
  'picker-pending': 'new',
  inProcess: 'preparing',
  ready: 'ready',
  routed: 'underway',
  shippingError: 'underway',
  dispatched: 'ended',
  'payment-canceled': 'ended',
  cancel: 'ended',
  refund: 'ended',
};

/** Returns the stage of a status. An unknown status is shown in the first column. */
export function stageOf(status: string | null): Stage {
  const known = status !== null && Object.hasOwn(STAGE_OF, status) ? STAGE_OF[status] : undefined;
  return known ?? 'new';
}

/** Returns when a scheduled order is due; null if it is not scheduled. */
export function dueAt({ isScheduled, scheduledFor }: BoardOrder): string | null {
  return isScheduled === false ? null : scheduledFor;
}

/**
 * Groups orders by stage: first those that wait longest for the POS, then the newest. Scheduled orders that nobody has
 * begun have a stage of their own, the next due first; ended orders are sorted by their last change.
 */
export function byStage(orders: Iterable<BoardOrder>): Record<Stage, BoardOrder[]> {
  const stages: Record<Stage, BoardOrder[]> = {
    payment: [],
    new: [],
    scheduled: [],
    preparing: [],
    ready: [],
    underway: [],
    ended: [],
  };
  for (const order of orders) {
    const stage = stageOf(order.status);
    stages[stage === 'new' && (order.isScheduled || dueAt(order)) ? 'scheduled' : stage].push(order);
  }
  for (const stage of STAGES) stages[stage].sort(stage === 'scheduled' ? nextFirst : unbookedFirst);
  stages.ended.sort((a, b) => b.seq - a.seq);
  return stages;
}

/** Text that sorts after every ISO time, because letters sort after digits. */
const NEVER = 'never';

function unbookedFirst(a: BoardOrder, b: BoardOrder): number {
  return (
    (a.waitingSince ?? NEVER).localeCompare(b.waitingSince ?? NEVER) ||
    (b.createdAt ?? '').localeCompare(a.createdAt ?? '') ||
    b.seq - a.seq
  );
}

function nextFirst(a: BoardOrder, b: BoardOrder): number {
  return (dueAt(a) ?? NEVER).localeCompare(dueAt(b) ?? NEVER) || unbookedFirst(a, b);
}

/** Orders of the board by id. `fresh` has the ids of the orders that changed since the previous read. */
interface Board {
  orders: ReadonlyMap<string, BoardOrder>;
  fresh: ReadonlySet<string>;
  isRead: boolean;
}

export const NO_BOARD: Board = { orders: new Map(), fresh: new Set(), isRead: false };

/** Returns the new board. `before` is the board shown until now. */
export function boardOf(orders: readonly BoardOrder[], before: Board): Board {
  const changed = orders.filter(({ orderId, seq }) => before.orders.get(orderId)?.seq !== seq);
  return {
    orders: new Map(orders.map((order) => [order.orderId, order])),
    fresh: new Set(before.isRead ? changed.map(({ orderId }) => orderId) : []),
    isRead: true,
  };
}

/** Levels of branches, worst first, in the daemon's order. */
export const BRANCH_LEVELS = [
  'red',
  'amber',
  'never-joined',
  'green',
] as const satisfies readonly Branch['level'][];

interface Branches {
  /** The hub's branches; null if this is no hub or they were not read yet. */
  all: readonly Branch[] | null;
  /** Search text; empty to show all branches. */
  text: string;
  level: Branch['level'] | null;
  /** True if all rows are shown. */
  isWhole: boolean;
}

export const NO_BRANCHES: Branches = { all: null, text: '', level: null, isWhole: false };

/** Returns the branches whose name or message matches the search. */
export function branchesShown(
  { all, text, level }: Branches,
  messageOf: (branch: Branch) => string,
): Branch[] {
  const wanted = fold(text);
  return (all ?? []).filter(
    (branch) =>
      (level === null || branch.level === level) &&
      fold(`${branch.branch}\n${messageOf(branch)}`).includes(wanted),
  );
}

/**
 * An entry of the feed that is younger than this has probably arrived at its branch, which reports only twice a minute.
 */
const ON_ITS_WAY_MS = 60_000;

export function isLate({ behindSince }: Branch, nowMs: number): boolean {
  return behindSince !== null && nowMs - Date.parse(behindSince) >= ON_ITS_WAY_MS;
}

export const OUTBOX_TABS = ['waiting', 'held', 'rejected'] as const;
export type OutboxTab = (typeof OUTBOX_TABS)[number];
export type Decision = 'retry' | 'discard' | 'release';

/** The open dialog. Only one can be open at a time. */
export type Dialog =
  /** Form for the API key. `command` is the command that prints the key. */
  | { kind: 'key'; fault: WordKey | null; isChecking: boolean; command: string }
  | { kind: 'discard'; change: Change }
  /** Details of an order. `answer` is undefined until it has arrived. */
  | { kind: 'order'; orderId: string; answer: OrderAnswer | ApiFault | undefined }
  /** Time line of an order, opened from the order's dialog. */
  | { kind: 'order-why'; orderId: string; answer: OrderExplained | ApiFault | undefined }
  /** Time line of a sku in each branch. */
  | { kind: 'stock-why'; sku: string; answer: StocksExplained | ApiFault | undefined };

export interface PageState {
  speech: Speech;
  /** The daemon's clock, milliseconds since 1970. */
  nowMs: number;
  /** State of the connection. `locked` means that even reading needs the API key. */
  link: 'connecting' | 'live' | 'lost' | 'locked';
  hasKey: boolean;
  /** The shop's name, which is shown even before the API key is entered; null if it is unknown. */
  shop: string | null;
  /** True if the window is as narrow as a phone's. */
  isNarrow: boolean;
  status: StatusAnswer | null;
  board: Board;
  /** Columns that show all their orders. */
  expanded: ReadonlySet<Stage>;
  branches: Branches;
  trends: readonly TrendHour[];
  outbox: {
    tab: OutboxTab;
    changes: readonly Change[] | null;
    before: number | null;
    /** Ids of changes about which a decision is being sent. */
    deciding: ReadonlySet<number>;
  };
  catalog: {
    text: string;
    products: readonly MirroredProduct[] | null;
    next: string | null;
    fault: string | null;
  };
  /** Search for orders. `orders` is null while nobody searches. */
  search: {
    text: string;
    /** A day in the store's calendar, such as 2026-03-01; empty for any day. */
    day: string;
    orders: readonly BoardOrder[] | null;
    /** True if there are more results than shown. */
    hasMore: boolean;
    fault: string | null;
  };
  calls: {
    isOn: boolean;
    /** Ids of orders that a person has seen on this screen. */
    seen: ReadonlySet<string>;
    /** True if the browser blocks sound until a click. */
    isSilent: boolean;
    /** Whether the browser shows this page's notifications. */
    canNotify: boolean;
  };
  dialog: Dialog | null;
  /** Result of the last decision, which screen readers read out. */
  notice: { isFault: boolean; text: string } | null;
}

/** Returns new orders that nobody has seen on this screen and no POS acknowledged, oldest first. */
export function unseenOrders(orders: Iterable<BoardOrder>, seen: ReadonlySet<string>): BoardOrder[] {
  return [...orders]
    .filter(({ orderId, status, acknowledgedAt }) => {
      return stageOf(status) === 'new' && acknowledgedAt === null && !seen.has(orderId);
    })
    .sort((a, b) => (a.createdAt ?? '').localeCompare(b.createdAt ?? '') || a.seq - b.seq);
}

/** Returns the orders for which the page rings now; empty while the sound is switched off. */
export function calledFor({ calls, board }: PageState): BoardOrder[] {
  return calls.isOn ? unseenOrders(board.orders.values(), calls.seen) : [];
}

/** The state of the page. Its listener is called once after all changes in one turn of the event loop. */
export class Store {
  #state: PageState;
  #isDue = false;
  readonly #draw: (state: PageState) => void;

  constructor(state: PageState, draw: (state: PageState) => void) {
    this.#state = state;
    this.#draw = draw;
  }

  get state(): PageState {
    return this.#state;
  }

  set(change: Partial<PageState>): void {
    this.#state = { ...this.#state, ...change };
    if (this.#isDue) return;
    this.#isDue = true;
    queueMicrotask(() => {
      this.#isDue = false;
      this.#draw(this.#state);
    });
  }
}
