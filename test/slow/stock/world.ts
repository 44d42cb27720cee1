import type { Lines, Stock } from './small-worlds.ts';

export type Quantities = Record<string, number>;
export type Branch = 's1' | 's2';

export interface Order {
  branch: Branch;
  lines: Lines;
  isLive: boolean;
  createdAt: string;
  isNews: boolean;
  /** Name and id that the lines give the product, from the catalogue at the first arrival of the order; null before. */
  named: { word: string; id: string } | null;
  /** Pieces that the platform has subtracted, by stock. */
  took: Quantities;
  /** Pieces that the order took when tillsync last heard of it, by stock. */
  heard: Quantities;
}

export interface Pos {
  /** Seq of the newest event that the POS has read. */
  read: number;
  /** Quantities that the POS has booked of each order, by stock. */
  booked: Record<string, Quantities>;
  shelf: Quantities;
  /** Stocks whose article the POS does not know yet: it books none of their pieces. */
  unknown: string[];
  /** Orders still to be acknowledged: up to which event, and the stocks that must be counted before. */
  owed: Record<string, { seq: number; uncounted: string[] }>;
}

/** A count, and the pieces of each order that were subtracted from the shelf before it. */
export interface Count {
  stock: Stock;
  qty: number;
  contains: Quantities;
}

export interface World {
  platform: Quantities;
  orders: Partial<Record<'A' | 'B', Order>>;
  events: { seq: number; id: 'A' | 'B'; takes: Quantities }[];
  pos: Record<string, Pos>;
  /** Counts by the version of their submission. */
  counts: Record<number, Count>;
  inbox: (Count & { handedAt: string })[];
  /** A count that is noted and not handed over yet, and when it was made. */
  noted: (Count & { atMs: number }) | null;
  /** The last submission of each stock, through any interface. */
  last: Quantities;
  call: { id: number; items: { changeId: number; stock: Stock; qty: number }[]; isApplied: boolean } | null;
  names: { word: string; id: string; known: string[] };
  /** Pieces of each stock of the first branch that are never offered. */
  safety: number;
  /** The first branch's external id, on the platform and in the configuration. */
  store: 'B1' | 'C1';
  done: string[];
  nowMs: number;
}

export function branchOf(stock: string): string {
  return stock.slice(0, 2);
}

export function skuOf(stock: string): string {
  return stock.slice(3);
}

export function takesOf({ branch, lines, isLive }: Order): Quantities {
  if (!isLive) return {};
  return Object.fromEntries(Object.entries(lines).map(([sku, qty]) => [`${branch}/${sku}`, qty]));
}
