import type { TrendHour } from '../domain/health/trends.ts';
import type { MirroredOrder } from '../domain/order/mirrored-order.ts';
import type { MirroredProduct } from '../domain/product/mirrored-product.ts';
import type { Change, StatusAnswer } from './answers.ts';
import type { Board } from './board.ts';
import type { Stage } from './stages.ts';
import type { Speech, WordKey } from './words/language.ts';

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
