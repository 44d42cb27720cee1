/** An order as the store hears of it. */
export interface HeardOrder {
  id: string;
  product: number;
  qty: number;
  /** Seconds since the morning at which it was placed. */
  atS: number;
}

/** What a strategy knows and may do. All times are seconds since the morning. */
export interface ShopView {
  /** How many products there are; they are numbered from 0. */
  readonly products: number;
  nowS(): number;
  /** What the POS has in its books of a product: what was there in the morning, less what was paid or booked. */
  posStock(product: number): number;
  /** Puts a quantity into the next call to the platform; one call a second leaves, with up to 100 items. */
  send(product: number, qty: number): void;
  /** Asks the platform for its quantity; one question a second. */
  read(product: number): Promise<number>;
  /** Calls `action` again and again. */
  every(seconds: number, action: () => unknown): void;
}

/** Every method is optional, and may return a promise. */
export interface Strategy {
  /** Before the shop opens: the platform has what the POS has. */
  open?(shop: ShopView): unknown;
  /** The POS sold over the counter, or booked an order: its stock of the product is another one now. */
  posChanged?(product: number, qty: number): unknown;
  /** The store heard of an order. */
  heard?(order: HeardOrder): unknown;
  /** The POS booked it; its stock has changed before. */
  booked?(order: HeardOrder): unknown;
  /** What was sent has arrived. */
  arrived?(product: number, qty: number): unknown;
  close?(): unknown;
}

export interface NamedStrategy {
  name: string;
  /** What it does, in a few words. */
  about: string;
  /** How the store hears of orders, where that is a part of it; left out: by callbacks. */
  hears?: 'callback' | 'poll';
  create(): Strategy | Promise<Strategy>;
}
