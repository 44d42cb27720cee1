import type { Random } from '../domain/time/clock.ts';
import type { Catalog } from './catalog.ts';
import { drawChance, drawFrom, drawHex, drawInt } from './draws.ts';
import type { OrderAddress, OrderLine, OrderLineModifier, OrderSnapshot } from './order-model.ts';

/** What a new order shall be like; everything left out is drawn. */
export interface NewOrder {
  subsidiaryId?: string;
  status?: string;
  deliveryType?: 'delivery' | 'pickup';
  isScheduled?: boolean;
  /** SKUs and quantities; taken from the stock even when there is less. */
  items?: { sku: number; qty: number; withModifier?: boolean }[];
  /** Platform's wall clock, epoch milliseconds; now unless told. */
  createdAtMs?: number;
  /** Laid over the finished snapshot. */
  patch?: Partial<OrderSnapshot>;
}

/** A line with the SKU it takes from the stock. */
export interface DrawnLine {
  line: OrderLine;
  sku: number;
  qty: number;
}

const FIRST_NAMES = ['Ana', 'Benjamín', 'Camila', 'Diego', 'Élise', 'Francisca', 'José', 'Lucía', 'Zoë'];
const LAST_NAMES = ['Aguilar', "O'Higgins", 'Muñoz', 'Pérez', 'Soto', 'Vergara', 'Yáñez'];
const STREETS = ['Av. Providencia', 'Calle Ñuñoa', 'Los Leones', 'San Martín', 'Vicuña Mackenna'];
const COMMENTS = ['', '', '', 'sin cebolla', 'well done, please', 'bolsa de papel'];
export const SERVICES = ['web', 'app', 'marketplace'] as const;

/** The lines asked for, or one to three drawn from what the branch has in stock. */
export function drawLines(
  random: Random,
  catalog: Catalog,
  subsidiaryId: string,
  wanted: NewOrder['items'],
): DrawnLine[] {
  const picks = wanted ?? drawPicks(random, catalog, subsidiaryId);
  return picks.flatMap((pick) => {
    const found = catalog.findSku(pick.sku);
    if (!found) return [];
    const { sku, product } = found;
    const additionals = pick.withModifier ? 500 : 0;
    const list = sku.price * pick.qty;
    const best = sku.withDiscount ? Math.round(list * (1 - sku.discount / 100)) : list;
    const line: OrderLine = {
      product: {
        externalId: pick.withModifier ? null : catalog.integrationIdOf(pick.sku, subsidiaryId),
        name: product.name,
      },
      amount: pick.qty,
      comment: drawFrom(random, COMMENTS),
      unitPrice: best / pick.qty,
      baseUnitPrice: list / pick.qty,
      productPrice: best + additionals,
      productBasePrice: list + additionals,
      modifiers: pick.withModifier ? [drawModifier(random, additionals)] : [],
    };
    return [{ line, sku: pick.sku, qty: pick.qty }];
  });
}

function drawPicks(random: Random, catalog: Catalog, subsidiaryId: string): NonNullable<NewOrder['items']> {
  const picks = new Map<number, { sku: number; qty: number; withModifier: boolean }>();
  for (let tries = drawInt(random, 1, 3); tries > 0; tries--) {
    const sellable = catalog.drawSellable(random, subsidiaryId);
    if (!sellable) continue;
    const qty = Math.min(drawInt(random, 1, 3), sellable.qty);
    picks.set(sellable.sku, { sku: sellable.sku, qty, withModifier: drawChance(random, 0.15) });
  }
  return [...picks.values()];
}

function drawModifier(random: Random, price: number): OrderLineModifier {
  const id = drawHex(random, 24);
  const externalId = `MOD-${drawInt(random, 1, 40)}`;
  return {
    externalId: null,
    name: 'Extras',
    shortName: 'Extra',
    description: [],
    countById: { [id]: 1 },
    countByExternalId: { [externalId]: 1 },
    options: [{ optionId: id, externalId, name: 'Queso extra', price }],
  };
}

export function drawUser(random: Random): OrderSnapshot['user'] {
  const firstName = drawFrom(random, FIRST_NAMES);
  const lastName = drawFrom(random, LAST_NAMES);
  const phoneNumber = `+569${drawInt(random, 10_000_000, 99_999_999)}`;
  return { firstName, lastName, email: `customer${drawInt(random, 1, 9999)}@example.com`, phoneNumber };
}

export function drawAddress(random: Random, phoneNumber: string): OrderAddress {
  const streetAddress = drawFrom(random, STREETS);
  const streetNumber = String(drawInt(random, 1, 4999));
  return {
    lat: -33.4 - random.next() / 10,
    lng: -70.6 - random.next() / 10,
    address: `${streetAddress} ${streetNumber}, Santiago, Chile`,
    streetNumber,
    streetAddress,
    country: 'Chile',
    state: 'Región Metropolitana',
    city: 'Santiago',
    zipCode: String(drawInt(random, 7_500_000, 8_999_999)),
    phoneNumber,
    details: drawChance(random, 0.4) ? `Depto ${drawInt(random, 11, 1204)}` : '',
  };
}
