import type { MirroredProduct } from '../catalog/product.ts';
import type { BoardOrder, TrendHour } from '../orders/mirrored-order.ts';
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

/** Stages of an order, the board's columns. Orders that cannot be prepared yet come after those in progress. */
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

/** An unknown status is shown in the first column. */
export function stageOf(status: string | null): Stage {
  const known = status !== null && Object.hasOwn(STAGE_OF, status) ? STAGE_OF[status] : undefined;
  return known ?? 'new';
}

/** Returns when a scheduled order is due. */
export function dueAt({ isScheduled, scheduledFor }: BoardOrder): string | null {
  return isScheduled === false ? null : scheduledFor;
}

/**
 * Groups orders by stage: first those that wait longest for the POS, then the newest. Scheduled orders that nobody
 * has begun are separate, the next one first; ended ones are sorted by their last change.
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

/** Sorts after every time, because letters come after digits. */
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

/** The board's orders by id; `fresh` are those that changed since the last read. */
interface Board {
  orders: ReadonlyMap<string, BoardOrder>;
  fresh: ReadonlySet<string>;
  isRead: boolean;
}

export const NO_BOARD: Board = { orders: new Map(), fresh: new Set(), isRead: false };

/** Returns the board as read now; `before` is the one shown until now. */
export function boardOf(orders: readonly BoardOrder[], before: Board): Board {
  const changed = orders.filter(({ orderId, seq }) => before.orders.get(orderId)?.seq !== seq);
  return {
    orders: new Map(orders.map((order) => [order.orderId, order])),
    fresh: new Set(before.isRead ? changed.map(({ orderId }) => orderId) : []),
    isRead: true,
  };
}

/** Branches in the worst state first, in the daemon's order. */
export const BRANCH_LEVELS = [
  'red',
  'amber',
  'never-joined',
  'green',
] as const satisfies readonly Branch['level'][];

interface Branches {
  /** null if this is no hub, or the branches were not read yet. */
  all: readonly Branch[] | null;
  /** Search text; empty for all. */
  text: string;
  level: Branch['level'] | null;
  /** True if all rows are shown. */
  isWhole: boolean;
}

export const NO_BRANCHES: Branches = { all: null, text: '', level: null, isWhole: false };

/** Returns the branches that match the search, by name or message. */
export function branchesShown(
  { all, text, level }: Branches,
  messageOf: (branch: Branch) => string,
): Branch[] {
  const wanted = text.trim().toLowerCase();
  return (all ?? []).filter(
    (branch) =>
      (level === null || branch.level === level) &&
      `${branch.branch}\n${messageOf(branch)}`.toLowerCase().includes(wanted),
  );
}

/** A branch reports twice a minute, so an entry younger than this has probably arrived. */
const ON_ITS_WAY_MS = 60_000;

export function isLate({ behindSince }: Branch, nowMs: number): boolean {
  return behindSince !== null && nowMs - Date.parse(behindSince) >= ON_ITS_WAY_MS;
}

export const OUTBOX_TABS = ['waiting', 'held', 'rejected'] as const;
export type OutboxTab = (typeof OUTBOX_TABS)[number];
export type Decision = 'retry' | 'drop' | 'release';

/** The open dialog, which needs an answer first; one at a time. */
export type Dialog =
  /** `command` shows the key. */
  | { kind: 'key'; fault: WordKey | null; isChecking: boolean; command: string }
  | { kind: 'drop'; change: Change }
  /** `answer` is undefined until it has arrived. */
  | { kind: 'order'; orderId: string; answer: OrderAnswer | ApiFault | undefined }
  /** The time line of an order; it is opened from the order's dialog. */
  | { kind: 'order-why'; orderId: string; answer: OrderExplained | ApiFault | undefined }
  /** The time line of a sku in each branch. */
  | { kind: 'stock-why'; sku: string; answer: StocksExplained | ApiFault | undefined };

export interface PageState {
  speech: Speech;
  /** The daemon's clock. */
  nowMs: number;
  /** State of the connection; `locked` means that even reading needs the key. */
  link: 'connecting' | 'live' | 'lost' | 'locked';
  hasKey: boolean;
  /** The shop's name as shown without the key; null if it is not shown. */
  shop: string | null;
  /** Whether the window is as narrow as a phone's. */
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
    /** Changes with a running decision. */
    deciding: ReadonlySet<number>;
  };
  catalog: {
    text: string;
    products: readonly MirroredProduct[] | null;
    next: string | null;
    fault: string | null;
  };
  /** Search for orders; `orders` is null while nobody searches. */
  search: {
    text: string;
    /** A day of the store's calendar, such as 2026-03-01; empty for any day. */
    day: string;
    orders: readonly BoardOrder[] | null;
    /** True if there are more results. */
    hasMore: boolean;
    fault: string | null;
  };
  calls: {
    isOn: boolean;
    /** Orders that a person has seen on this screen. */
    seen: ReadonlySet<string>;
    /** The browser blocks sound until a click. */
    isSilent: boolean;
    /** Whether the browser shows this page's notifications. */
    canNotify: boolean;
  };
  dialog: Dialog | null;
  /** Result of the last decision, read out by screen readers. */
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

/** Returns the orders for which the page rings now; none while it is switched off. */
export function calledFor({ calls, board }: PageState): BoardOrder[] {
  return calls.isOn ? unseenOrders(board.orders.values(), calls.seen) : [];
}

/** The state of the page. Its listener is called once after all changes of a turn of the event loop. */
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
