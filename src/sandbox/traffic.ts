import type { Clock, Random } from '../core/time.ts';
import type { SandboxControl } from './control.ts';
import { drawChance, drawFrom } from './draws.ts';
import { isOver, type OrderSnapshot } from './orders.ts';

/** Traffic of the shop. Times are means; probabilities are 0 to 1. */
interface TrafficPlan {
  /** Mean time between new orders. */
  orderEveryMs: number;
  /** Mean time between two steps. Each step changes one of the open orders. */
  stepEveryMs: number;
  /** Share of new orders of which no notification is ever sent. */
  hidden: number;
  /** Share of steps to a status that the document does not name. */
  unknownStatus: number;
  /** Share of steps that change a field but not the status, without a notification. */
  silentChange: number;
  /** Share of steps after which the same notification is sent again. */
  repeated: number;
}

const BUSY: TrafficPlan = {
  orderEveryMs: 2000,
  stepEveryMs: 700,
  hidden: 0.08,
  unknownStatus: 0.02,
  silentChange: 0.05,
  repeated: 0.1,
};

/** A webhook as unreliable as on the internet, for `control.setWebhookBehaviour`. */
export const UNRELIABLE_WEBHOOK = {
  drop: 0.05,
  duplicate: 0.1,
  reorder: 0.1,
  reorderMs: 4000,
  delay: 0.15,
  delayMs: [200, 5000],
} as const;

interface TrafficOptions {
  clock: Clock;
  random: Random;
  control: SandboxControl;
  signal: AbortSignal;
  plan?: Partial<TrafficPlan>;
  /** Called for each event, for people who watch. */
  onEvent?: (event: TrafficEvent) => void;
}

export interface TrafficEvent {
  kind: 'created' | 'hidden' | 'advanced' | 'changed' | 'repeated';
  order: OrderSnapshot;
}

/** Number of events of each kind in a run. */
export type TrafficSummary = Record<TrafficEvent['kind'], number>;

/** Simulates a busy shop until the signal aborts: creates and changes orders, hides some, and repeats notifications. */
export async function runTraffic(options: TrafficOptions): Promise<TrafficSummary> {
  const { clock, random, control, signal } = options;
  const plan = { ...BUSY, ...options.plan };
  const summary: TrafficSummary = { created: 0, hidden: 0, advanced: 0, changed: 0, repeated: 0 };
  const note = (kind: TrafficEvent['kind'], order: OrderSnapshot) => {
    summary[kind] += 1;
    options.onEvent?.({ kind, order });
  };
  const isOpen = ({ status }: OrderSnapshot) => !isOver(status);
  const open = new Set(
    control
      .orders()
      .filter(isOpen)
      .map(({ internalOrderId }) => internalOrderId),
  );
  const create = () => {
    const hidden = drawChance(random, plan.hidden);
    const order = control.createOrder({}, { hidden });
    open.add(order.internalOrderId);
    note('created', order);
    if (hidden) note('hidden', order);
  };
  const step = () => {
    if (open.size === 0) return;
    const orderId = drawFrom(random, [...open]);
    const kind = stepOrder(control, random, plan, orderId);
    const order = control.order(orderId);
    if (!order || isOver(order.status)) open.delete(orderId);
    if (order && kind) note(kind, order);
    if (order && drawChance(random, plan.repeated)) {
      control.announceOrder(orderId);
      note('repeated', order);
    }
  };
  await Promise.all([
    repeat(clock, random, plan.orderEveryMs, signal, create),
    repeat(clock, random, plan.stepEveryMs, signal, step),
  ]);
  return summary;
}

function stepOrder(
  control: SandboxControl,
  random: Random,
  plan: TrafficPlan,
  orderId: string,
): 'advanced' | 'changed' | undefined {
  if (drawChance(random, plan.silentChange)) {
    const { deliveryFee = 0, amount = 0 } = control.order(orderId) ?? {};
    control.changeOrder(orderId, { deliveryFee: deliveryFee + 100, amountToPay: amount + deliveryFee + 100 });
    return 'changed';
  }
  const unknown = drawChance(random, plan.unknownStatus) ? 'awaiting-courier' : undefined;
  return control.advanceOrder(orderId, unknown) ? 'advanced' : undefined;
}

/** Repeats an action at random intervals around the mean, until the signal aborts. */
async function repeat(
  clock: Clock,
  random: Random,
  meanMs: number,
  signal: AbortSignal,
  act: () => void,
): Promise<void> {
  while (!signal.aborted) {
    await clock.sleep(meanMs * (0.5 + random.next()), signal);
    if (!signal.aborted) act();
  }
}
