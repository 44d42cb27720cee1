import { readdirSync, readFileSync } from 'node:fs';
import path from 'node:path';
import type { SimulatedBranch } from './chain-branch.ts';
import type { ChainDays } from './chain-days.ts';
import type { ChainWorld } from './chain-world.ts';

/** Selects what a branch's POS sees of its orders. The same query at the hub shows what the branch must have. */
const SHOWN = `SELECT order_id, code, status, store_external_id, amount, delivery_fee, customer_email,
    (SELECT group_concat(product_external_id || ':' || quantity, ' ') FROM order_items i WHERE i.order_id = o.order_id) AS items
  FROM orders o WHERE store_external_id = ? ORDER BY order_id`;

/** Returns a sentence for each fault; called when all work is done. */
export function chainFaults(world: ChainWorld, days: ChainDays): string[] {
  const { hub, branches, sandbox } = world;
  const violations = sandbox.control.violations();
  return [
    ...branches.flatMap((branch) => [
      ...orderFaults(world, branch, days),
      ...foreignFaults(world, branch),
      ...outboxFaults(branch),
      ...stockFaults(world, branch),
      ...posFaults(world, branch),
      ...forgottenFaults(branch, days),
    ]),
    ...(violations.length === 0 ? [] : [`the hub broke a limit of the platform ${violations.length} times`]),
    ...waitingFaults(
      hub.rows<{ n: number }>("SELECT count(*) AS n FROM outbox WHERE state IN ('pending', 'sending')"),
    ),
  ];
}

function waitingFaults([found]: { n: number }[]): string[] {
  return found && found.n > 0 ? [`at the hub ${found.n} changes are still under way`] : [];
}

const nameOf = ({ place }: SimulatedBranch) => place.externalId ?? place.subsidiaryId;

/**
 * Checks that the branch lost and doubled nothing that the hub has. Whether the hub itself has all orders of the
 * platform is tested by the simulation of one store.
 */
function orderFaults({ hub, states }: ChainWorld, branch: SimulatedBranch, { known }: ChainDays): string[] {
  const faults: string[] = [];
  const shownAt = (store: ChainWorld['hub'] | SimulatedBranch) =>
    store
      .rows<{ order_id: string; status: string; customer_email: string | null }>(SHOWN, nameOf(branch))
      .map((order) => (known.has(order.order_id) ? { ...order, customer_email: null } : order));
  const [here, atHub] = [shownAt(branch), shownAt(hub)];
  const byId = new Map(here.map((order) => [order.order_id, JSON.stringify(order)]));
  for (const order of atHub) {
    const shown = byId.get(order.order_id);
    if (shown === undefined) faults.push(`${branch.name}: order ${order.order_id} is lost`);
    else if (shown !== JSON.stringify(order)) {
      faults.push(`${branch.name}: shows ${shown} where the hub has ${JSON.stringify(order)}`);
    }
  }
  const events = 'SELECT order_id AS id, count(*) AS n FROM order_events GROUP BY order_id';
  for (const { id, n } of branch.rows<{ id: string; n: number }>(events)) {
    const most = states.get(id) ?? 0;
    if (n > most) faults.push(`${branch.name}: order ${id} has ${n} events, of ${most} states`);
  }
  return faults;
}

/** Checks that the branch's files have no order of another branch. In this simulation, no order changes its branch. */
function foreignFaults({ sandbox, hub }: ChainWorld, branch: SimulatedBranch): string[] {
  const bytes = readdirSync(branch.directory)
    .filter((name) => !name.endsWith('-shm') && name !== 'inbox')
    .map((name) => readFileSync(path.join(branch.directory, name)));
  return sandbox.control.orders().flatMap(({ internalOrderId: id, store }) => {
    if (store.externalId === nameOf(branch) || !bytes.some((file) => file.includes(id))) return [];
    return [`${branch.name}: has bytes of order ${id} of ${store.externalId} (${hub.directory})`];
  });
}

/** Checks that every change has a final outcome, and the right one. */
function outboxFaults(branch: SimulatedBranch): string[] {
  const sql = 'SELECT change_id AS id, kind, body, state, message, reference FROM outbox';
  return branch
    .rows<{
      id: number;
      kind: string;
      body: string;
      state: string;
      message: string | null;
      reference: string;
    }>(sql)
    .flatMap(({ id, kind, body, state, message, reference }) => {
      const told = `${branch.name}: change ${id} (${reference}, ${body}) is ${state}: ${message}`;
      if (state === 'pending' || state === 'sending') return [told];
      const mustFail = body.includes('nobody') || (kind === 'product' && !branch.place.mayPrice);
      if (mustFail ? state === 'done' : state === 'rejected') return [told];
      return [];
    });
}

/**
 * Selects the stocks that a count with an unknown id may have meant, if an acknowledgement followed it. Their sold
 * pieces are held back until the next count.
 */
const HELD_FOR_A_NAME = `SELECT sku FROM _stock_steps s JOIN _stock_ledger c USING (sku, subsidiary_id)
  WHERE s.subsidiary_id = ? AND s.booked_version > c.counted_version AND EXISTS (
    SELECT 1 FROM _outbox o WHERE o.version = s.booked_version AND o.kind = 'stock' AND o.sku IS NULL)`;

/**
 * Checks that the platform offers what the POS has. Excused are oversold products, products of orders that the hub
 * never got, and stocks that are lower because a count with an unknown id holds them back.
 */
function stockFaults(world: ChainWorld, branch: SimulatedBranch): string[] {
  const { shelf } = world.posOf(branch.name);
  const heard = new Set(
    world.hub.rows<{ id: string }>('SELECT order_id AS id FROM orders').map(({ id }) => id),
  );
  const unheard = new Set(
    world.sandbox.control
      .orders()
      .filter(({ internalOrderId: id, store }) => store.externalId === nameOf(branch) && !heard.has(id))
      .flatMap(({ items }) => items.map(({ product }) => product.externalId)),
  );
  const short = new Set(world.sandbox.control.oversells().map(({ sku }) => sku));
  const doubtful = new Set(
    world.hub.rows<{ sku: string }>(HELD_FOR_A_NAME, branch.place.subsidiaryId).map(({ sku }) => sku),
  );
  return world.stocksOf(branch.place).flatMap(({ id, sku, qty }) => {
    const wanted = shelf.get(id);
    if (wanted === qty || short.has(sku) || unheard.has(id)) return [];
    if (wanted !== undefined && qty < wanted && doubtful.has(String(sku))) return [];
    return [`${branch.name}: the platform sells ${qty} of ${id}, in the store are ${wanted}`];
  });
}

/** Checks that a POS that reads by `seq` has seen every order in its present state. */
function posFaults(world: ChainWorld, branch: SimulatedBranch): string[] {
  const { hub } = world;
  const pos = world.posOf(branch.name);
  const unseen = hub.rows<{ order_id: string; status: string }>(SHOWN, nameOf(branch)).flatMap((order) => {
    const seen = pos.orders.get(order.order_id);
    if (seen === order.status) return [];
    return [`${branch.name}: the POS has order ${order.order_id} as ${seen}, the hub as ${order.status}`];
  });
  return [...unseen, ...pos.faults];
}

function forgottenFaults(branch: SimulatedBranch, { forgotten }: ChainDays): string[] {
  return [...forgotten].flatMap((id) => {
    const sql = `SELECT customer_email AS email FROM orders WHERE order_id = ? AND customer_email NOT NULL
      UNION ALL SELECT payload FROM _order_payloads WHERE order_id = ? AND instr(payload, '@example.com') > 0
      UNION ALL SELECT payload FROM orders WHERE order_id = ? AND instr(payload, '@example.com') > 0`;
    return branch.rows(sql, id, id, id).length === 0
      ? []
      : [`${branch.name}: still knows the customer of ${id}`];
  });
}
