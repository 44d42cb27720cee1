/** A branch's stock of a sku. */
export type Stock = `${'s1' | 's2'}/${'10' | '11' | '12'}`;
/** Quantities of the lines of an order, by sku. */
export type Lines = Readonly<Record<string, number>>;

/** An event of an order. The first event of each order creates it. */
export interface Change {
  id: 'A' | 'B';
  name: string;
  branch?: 's1' | 's2';
  lines?: Lines;
  isLive?: boolean;
}

/** How often each event may happen. The changes of orders, the reads and the acknowledgements are not listed here. */
export interface Budget {
  /** Number of counts of each stock. */
  count: number;
  /** Counts that a guard holds, and a person's decisions about them. */
  hold?: number;
  /** Calls in which the platform refuses everything. */
  refuse?: number;
  /** Counts with an unknown id. */
  misname?: number;
  /** Counts through the inbox, which is read later. */
  insert?: number;
  /** Counts that are noted, and handed over later with the time at which they were made. */
  note?: number;
  /** Pieces sold over the counter. */
  sell?: number;
  rename?: number;
  map?: number;
  appear?: number;
  /** Number of sweeps that are followed by the deletion of unneeded rows, at once or after 91 days. */
  collect?: number;
  wait?: number;
  /** Number of times that a person configures another safety stock of the branch. */
  safety?: number;
  /** The branch gets another external id, on the platform and in the configuration. */
  correct?: number;
  /** Number of times that the POS learns the articles that it did not know. */
  learn?: number;
  /** Number of lost answers. If set, a call is sent, arrives and is answered in separate steps. */
  lose?: number;
}

/** A few events around one topic, which are tried in every sequence. */
export interface SmallWorld {
  name: string;
  stocks: readonly Stock[];
  changes: readonly Change[];
  budget: Budget;
  /** Orders whose lines name products by name. */
  byName?: readonly ('A' | 'B')[];
  /** Each branch's POS acknowledges for itself. */
  areApart?: boolean;
  /** True if only a platform that gives back and follows edits is tried, and not also one that does neither. */
  isOfOneKind?: boolean;
  /** Stocks whose article the POS learns later; its acknowledgements leave their lines out until then. */
  unknown?: readonly Stock[];
  /** Each line is sent as two lines, the first of one piece; of an unknown article, the POS knows that one. */
  areLinesSplit?: boolean;
  /** Number of pieces on each shelf at the start; 20 if left out. */
  shelf?: number;
  /** The stocks of which a count is one of the events; all if left out. */
  counted?: readonly Stock[];
  /** True if `TILLSYNC_WORLDS=half` counts only one stock per run, because to count all of them makes 43,000 states. */
  isCountedInTurn?: boolean;
}

/** Returns the title of a world's test, by which `npm run prove` selects the world. */
export const titleOf = (name: string, { gives, follows }: { gives: boolean; follows: boolean }): string =>
  `a small world in which ${name} ends as counted, where the platform gives back (${gives}) and follows edits (${follows})`;

const PLACED = { id: 'A', name: 'place A', branch: 's1', lines: { 10: 2 } } as const;
const CUT = { id: 'A', name: 'cut A to 1', lines: { 10: 1 } } as const;
const RAISED = { id: 'A', name: 'raise A to 5', lines: { 10: 5 } } as const;
const CANCELLED = { id: 'A', name: 'cancel A', isLive: false } as const;

export const WORLDS: readonly SmallWorld[] = [
  {
    name: 'an order is edited up and down, and acknowledged as of an older event',
    stocks: ['s1/10'],
    changes: [PLACED, RAISED, CUT],
    budget: { count: 2 },
  },
  {
    name: 'an order is edited and cancelled while a call is under way or its answer lost',
    stocks: ['s1/10'],
    changes: [PLACED, CUT, CANCELLED],
    budget: { count: 1, lose: 1 },
  },
  {
    name: 'a line is removed, and comes again',
    stocks: ['s1/10', 's1/11'],
    changes: [
      { ...PLACED, lines: { 10: 2, 11: 1 } },
      { id: 'A', name: 'remove the line of 11', lines: { 10: 2 } },
      { id: 'A', name: 'add three of 11', lines: { 10: 2, 11: 3 } },
    ],
    budget: { count: 1 },
  },
  {
    name: 'an order moves to another branch and back',
    stocks: ['s1/10', 's2/10'],
    changes: [
      PLACED,
      { id: 'A', name: 'move A', branch: 's2' },
      { id: 'A', name: 'move A back', branch: 's1' },
    ],
    budget: { count: 1 },
    areApart: true,
    isOfOneKind: true,
    isCountedInTurn: true,
  },
  {
    name: 'the catalogue renames what an order names',
    stocks: ['s1/10'],
    changes: [PLACED, RAISED],
    budget: { count: 1, rename: 1 },
    byName: ['A'],
  },
  {
    name: 'the catalogue maps anew what an order names',
    stocks: ['s1/10'],
    changes: [PLACED, CUT],
    budget: { count: 1, map: 1 },
  },
  {
    name: 'a product comes that was sold before',
    stocks: ['s1/12'],
    changes: [{ ...PLACED, lines: { 12: 2 } }, { ...RAISED, lines: { 12: 5 } }, { ...CANCELLED }],
    budget: { count: 1, appear: 1 },
  },
  {
    name: 'a count is held',
    stocks: ['s1/10'],
    changes: [PLACED, RAISED],
    budget: { count: 1, hold: 1, sell: 1 },
    isOfOneKind: true,
  },
  {
    name: 'a count is refused',
    stocks: ['s1/10'],
    changes: [PLACED, RAISED],
    budget: { count: 2, refuse: 1 },
  },
  {
    name: 'a count is by an id that nobody knows',
    stocks: ['s1/10'],
    changes: [PLACED, CUT],
    budget: { count: 1, misname: 1, sell: 1 },
  },
  {
    name: 'counts come by two ways',
    stocks: ['s1/10'],
    changes: [PLACED, RAISED],
    budget: { count: 1, insert: 1, sell: 1 },
    isOfOneKind: true,
  },
  {
    name: 'a count says when it was made, and comes late',
    stocks: ['s1/10'],
    changes: [PLACED, RAISED],
    budget: { count: 1, note: 1 },
    isOfOneKind: true,
  },
  {
    name: 'the POS does not know an article at first',
    stocks: ['s1/10', 's1/11'],
    changes: [
      { ...PLACED, lines: { 10: 2, 11: 1 } },
      { ...RAISED, lines: { 10: 2, 11: 3 } },
    ],
    budget: { count: 1, learn: 1 },
    unknown: ['s1/11'],
    isOfOneKind: true,
  },
  {
    name: 'the POS does not know the second of two lines of an article at first',
    stocks: ['s1/10'],
    changes: [{ ...PLACED, lines: { 10: 3 } }, RAISED],
    budget: { count: 2, learn: 1 },
    unknown: ['s1/10'],
    areLinesSplit: true,
    isOfOneKind: true,
  },
  {
    name: 'the POS counts fewer pieces than none',
    stocks: ['s1/10'],
    changes: [PLACED, CANCELLED],
    budget: { count: 1, sell: 2 },
    shelf: 1,
    isOfOneKind: true,
  },
  {
    name: 'what nothing needs is forgotten',
    stocks: ['s1/10'],
    changes: [PLACED, RAISED, CANCELLED],
    budget: { count: 1, collect: 1 },
  },
  {
    name: 'an article is not counted for 91 days',
    stocks: ['s1/10'],
    changes: [PLACED, CANCELLED],
    budget: { count: 1, hold: 1, wait: 1 },
    isOfOneKind: true,
  },
  {
    name: 'the safety stock changes',
    stocks: ['s1/10'],
    changes: [PLACED, CUT],
    budget: { count: 1, safety: 2 },
  },
  {
    name: "a branch's external id is corrected",
    stocks: ['s1/10', 's2/10'],
    changes: [PLACED, { id: 'A', name: 'move A', branch: 's2' }],
    budget: { count: 1, correct: 1 },
    areApart: true,
    isOfOneKind: true,
  },
];
