import type { NamedStrategy, ShopView, Strategy } from './strategy.ts';

/** Makes a strategy that calls `send` whenever the POS's stock changes. */
const onChange = (send: (shop: ShopView, product: number, qty: number) => unknown): Strategy => {
  let shop: ShopView | undefined;
  return {
    open(given) {
      shop = given;
    },
    posChanged: (product, qty) => shop && send(shop, product, qty),
  };
};

const inventoryEvery = (minutes: number): NamedStrategy => ({
  name: `inventory every ${minutes} min`,
  about: 'the whole POS stock, every so many minutes',
  create: () => ({
    open(shop) {
      shop.every(minutes * 60, () => {
        for (let product = 0; product < shop.products; product++) shop.send(product, shop.posStock(product));
      });
    },
  }),
});

/** Strategies that shops use today, each in at most twenty lines. */
export const PLAIN_STRATEGIES: readonly NamedStrategy[] = [
  {
    name: 'nothing',
    about: 'the platform counts down by itself, and nobody tells it of the shop',
    create: () => ({}),
  },
  {
    name: 'push each change',
    about: 'the POS stock, whenever it changes',
    create: () => onChange((shop, product, qty) => shop.send(product, qty)),
  },
  {
    name: 'safety stock of one',
    about: 'the same, less one piece',
    create: () => onChange((shop, product, qty) => shop.send(product, qty - 1)),
  },
  ...[5, 15, 60].map(inventoryEvery),
  {
    name: 'read, change, write',
    about: 'what was sold over the counter is taken off what the platform has',
    create: () => {
      const before: number[] = [];
      let shop: ShopView | undefined;
      return {
        open(given) {
          shop = given;
          for (let product = 0; product < given.products; product++) before.push(given.posStock(product));
        },
        async posChanged(product, qty) {
          const sold = (before[product] ?? 0) - qty;
          before[product] = qty;
          // Pieces of booked orders are subtracted too, because the POS does not say whether an order or the counter
          // took a piece.
          if (!shop || sold <= 0) return;
          shop.send(product, (await shop.read(product)) - sold);
        },
      };
    },
  },
];
