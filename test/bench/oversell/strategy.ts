/** An order as the store learns of it. */
export interface HeardOrder {
  id: string;
  product: number;
  qty: number;
  /** Time of the order, in seconds since the morning. */
  atS: number;
}

/** Facts that a strategy knows, and its actions. All times are seconds since the morning. */
export interface ShopView {
  /** Number of products, which are numbered from 0. */
  readonly products: number;
  nowS(): number;
  /** Returns the POS's stock of a product: the morning's, less pieces paid at the till and pieces of booked orders. */
  posStock(product: number): number;
  /** Puts a quantity into the next call to the platform; one call a second, with up to 100 items. */
  send(product: number, qty: number): void;
  /** Asks the platform for its quantity; one question a second. */
  read(product: number): Promise<number>;
  /** Calls `action` at this interval until the shop closes. */
  every(seconds: number, action: () => unknown): void;
}

/** Every method is optional, and may return a promise. */
export interface Strategy {
  /** Called before the shop opens, when the platform has the POS's stock. */
  open?(shop: ShopView): unknown;
  /** Called when the POS sold over the counter or booked an order, so that its stock changed. */
  posChanged?(product: number, qty: number): unknown;
  /** Called when the store learns of an order. */
  heard?(order: HeardOrder): unknown;
  /** Called when the POS has booked an order, after the call of `posChanged` for it. */
  booked?(order: HeardOrder): unknown;
  /** Called when a sent quantity has arrived at the platform. */
  arrived?(product: number, qty: number): unknown;
  close?(): unknown;
}

export interface NamedStrategy {
  name: string;
  /** Description of the strategy in a few words. */
  about: string;
  /** Way in which the store learns of orders; by callbacks if left out. */
  hears?: 'callback' | 'poll';
  create(): Strategy | Promise<Strategy>;
}
