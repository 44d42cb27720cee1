import type { MirroredProduct } from '../catalog/product.ts';
import type { BoardOrder, MirroredOrder, TrendHour } from '../orders/mirrored-order.ts';
import type { Change, FeedEvent, StatusAnswer } from './api.ts';
import type { Speech, WordKey } from './words/language.ts';

/** Where an order is on its way, for the board's columns. */
export const STAGES = ['payment', 'new', 'preparing', 'ready', 'underway', 'ended'] as const;
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

/** Orders by stage: open ones by creation, ended ones by their last change, newest first. */
export function byStage(orders: Iterable<BoardOrder>): Record<Stage, BoardOrder[]> {
  const stages: Record<Stage, BoardOrder[]> = {
    payment: [],
    new: [],
    preparing: [],
    ready: [],
    underway: [],
    ended: [],
  };
  for (const order of orders) stages[stageOf(order.status)].push(order);
  for (const stage of STAGES) {
    stages[stage].sort(stage === 'ended' ? (a, b) => b.seq - a.seq : newestFirst);
  }
  return stages;
}

function newestFirst(a: BoardOrder, b: BoardOrder): number {
  return (b.createdAt ?? '').localeCompare(a.createdAt ?? '') || b.seq - a.seq;
}

/** Ended orders that are kept on the board. */
const ENDED_MAX = 30;

/** The orders on the board by id; `fresh`: those that changed while it was looked at. */
interface Board {
  orders: ReadonlyMap<string, BoardOrder>;
  fresh: ReadonlySet<string>;
}

export function boardOf(orders: readonly BoardOrder[]): Board {
  return { orders: new Map(orders.map((order) => [order.orderId, order])), fresh: new Set() };
}

/** The board after these events of the feed. An event that is older than what is shown changes nothing. */
export function applyEvents(board: Board, events: readonly FeedEvent[]): Board {
  const orders = new Map(board.orders);
  const fresh = new Set<string>();
  for (const { orderId, order } of events) {
    if (order === null) orders.delete(orderId);
    else if ((orders.get(orderId)?.seq ?? 0) < order.seq) {
      orders.set(orderId, order);
      fresh.add(orderId);
    }
  }
  const ended = [...orders.values()]
    .filter(({ status }) => stageOf(status) === 'ended')
    .sort((a, b) => b.seq - a.seq);
  for (const { orderId } of ended.slice(ENDED_MAX)) orders.delete(orderId);
  return { orders, fresh };
}

export const OUTBOX_TABS = ['waiting', 'held', 'rejected'] as const;
export type OutboxTab = (typeof OUTBOX_TABS)[number];
export type Decision = 'retry' | 'drop' | 'release';

/** What asks for an answer before anything else; one at a time. */
export type Dialog =
  | { kind: 'key'; fault: WordKey | null; isChecking: boolean }
  | { kind: 'drop'; change: Change }
  /** `undefined`: on its way; `null`: no longer kept. */
  | { kind: 'order'; orderId: string; order: MirroredOrder | null | undefined };

export interface PageState {
  speech: Speech;
  /** The daemon's clock. */
  nowMs: number;
  /** `locked`: the key is needed even to look. */
  link: 'connecting' | 'live' | 'lost' | 'locked';
  hasKey: boolean;
  /** The window is no wider than a phone's. */
  isNarrow: boolean;
  status: StatusAnswer | null;
  board: Board;
  /** Columns that show all their orders. */
  expanded: ReadonlySet<Stage>;
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
  dialog: Dialog | null;
  /** Of the last decision; read out. */
  notice: { isFault: boolean; text: string } | null;
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
