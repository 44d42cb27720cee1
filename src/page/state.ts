import type { MirroredProduct } from '../catalog/product.ts';
import type { BoardOrder, TrendHour } from '../orders/mirrored-order.ts';
import type { ApiFault, Branch, Change, OrderAnswer, StatusAnswer } from './api.ts';
import type { Speech, WordKey } from './words/language.ts';

/** Where an order is on its way, for the board's columns. What nobody can cook yet stands behind what is under way. */
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

/** A status that is not known yet is shown where somebody looks first. */
export function stageOf(status: string | null): Stage {
  const known = status !== null && Object.hasOwn(STAGE_OF, status) ? STAGE_OF[status] : undefined;
  return known ?? 'new';
}

/** When an order is due, of those that are for later. */
export function dueAt({ isScheduled, scheduledFor }: BoardOrder): string | null {
  return isScheduled === false ? null : scheduledFor;
}

/**
 * Orders by stage: those that the POS has not taken for the longest time first, then the newest. Scheduled ones that
 * nobody has begun stand apart, the next one first; ended ones by their last change.
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

/** Stands behind every time: letters come after digits. */
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

/** The orders on the board by id; `fresh`: those that changed since it was last read. */
interface Board {
  orders: ReadonlyMap<string, BoardOrder>;
  fresh: ReadonlySet<string>;
  isRead: boolean;
}

export const NO_BOARD: Board = { orders: new Map(), fresh: new Set(), isRead: false };

/** The board as it was read now; `before`: as it was shown until now. */
export function boardOf(orders: readonly BoardOrder[], before: Board): Board {
  const changed = orders.filter(({ orderId, seq }) => before.orders.get(orderId)?.seq !== seq);
  return {
    orders: new Map(orders.map((order) => [order.orderId, order])),
    fresh: new Set(before.isRead ? changed.map(({ orderId }) => orderId) : []),
    isRead: true,
  };
}

/** Those first that need somebody most, as the daemon has them. */
export const BRANCH_LEVELS = [
  'red',
  'amber',
  'never-joined',
  'green',
] as const satisfies readonly Branch['level'][];

interface Branches {
  /** null: this is no hub, or they were not read yet. */
  all: readonly Branch[] | null;
  /** What somebody looks for; empty: anything. */
  text: string;
  level: Branch['level'] | null;
  /** All rows are shown. */
  isWhole: boolean;
}

export const NO_BRANCHES: Branches = { all: null, text: '', level: null, isWhole: false };

/** The branches that somebody looks for, by their name or by what is told of them. */
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

/** A branch tells of itself twice a minute: what is younger was taken meanwhile, as far as anybody knows. */
const ON_ITS_WAY_MS = 60_000;

export function isLate({ behindSince }: Branch, nowMs: number): boolean {
  return behindSince !== null && nowMs - Date.parse(behindSince) >= ON_ITS_WAY_MS;
}

export const OUTBOX_TABS = ['waiting', 'held', 'rejected'] as const;
export type OutboxTab = (typeof OUTBOX_TABS)[number];
export type Decision = 'retry' | 'drop' | 'release';

/** What asks for an answer before anything else; one at a time. */
export type Dialog =
  /** `command` shows the key. */
  | { kind: 'key'; fault: WordKey | null; isChecking: boolean; command: string }
  | { kind: 'drop'; change: Change }
  /** `undefined`: on its way. */
  | { kind: 'order'; orderId: string; answer: OrderAnswer | ApiFault | undefined };

export interface PageState {
  speech: Speech;
  /** The daemon's clock. */
  nowMs: number;
  /** `locked`: the key is needed even to look. */
  link: 'connecting' | 'live' | 'lost' | 'locked';
  hasKey: boolean;
  /** What the shop is called, as it is told to who has no key; null: not told. */
  shop: string | null;
  /** The window is no wider than a phone's. */
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
    /** Changes about which a decision is under way. */
    deciding: ReadonlySet<number>;
  };
  catalog: {
    text: string;
    products: readonly MirroredProduct[] | null;
    next: string | null;
    fault: string | null;
  };
  /** Orders that somebody looks for; `orders` null: nobody does. */
  search: {
    text: string;
    /** Such as 2026-03-01, on the store's calendar; empty: any. */
    day: string;
    orders: readonly BoardOrder[] | null;
    /** There are more of them. */
    hasMore: boolean;
    fault: string | null;
  };
  calls: {
    isOn: boolean;
    /** Orders that somebody has seen on this screen. */
    seen: ReadonlySet<string>;
    /** The browser lets no sound out before somebody clicks. */
    isSilent: boolean;
    /** The browser shows notifications of this page. */
    canNotify: boolean;
  };
  dialog: Dialog | null;
  /** Of the last decision; read out. */
  notice: { isFault: boolean; text: string } | null;
}

/** New orders that nobody has seen on this screen and no POS took, the oldest first. */
export function unseenOrders(orders: Iterable<BoardOrder>, seen: ReadonlySet<string>): BoardOrder[] {
  return [...orders]
    .filter(({ orderId, status, acknowledgedAt }) => {
      return stageOf(status) === 'new' && acknowledgedAt === null && !seen.has(orderId);
    })
    .sort((a, b) => (a.createdAt ?? '').localeCompare(b.createdAt ?? '') || a.seq - b.seq);
}

/** For whom the page calls just now; nobody while it is switched off. */
export function calledFor({ calls, board }: PageState): BoardOrder[] {
  return calls.isOn ? unseenOrders(board.orders.values(), calls.seen) : [];
}

/** The one state of the page; whoever draws it is told once after any number of changes in a turn. */
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
