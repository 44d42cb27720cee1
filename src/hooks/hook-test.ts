import { TillsyncError } from '../core/errors.ts';
import { type Clock, isoUtc } from '../core/time.ts';
import type { EventName } from '../core/values.ts';
import type { MirroredOrder } from '../orders/merging/mirrored-order.ts';
import type { Mirror } from '../orders/reading/mirror.ts';
import { type HookMessage, type HookSettings, madeUpEvent, madeUpRejection, testEvent } from './hook.ts';
import { contentOf, type PreparationChange } from './preparation.ts';
import { timesOf } from './prepared-orders.ts';
import { type HookAnswer, type HookReceiver, hookReceiver } from './receivers.ts';

interface ConfiguredHooks {
  readonly hooks: readonly HookSettings[];
  readonly orders: { readonly timezone: string };
}

export interface HooksOptions {
  config: ConfiguredHooks;
  /** Signing secrets and addresses, by the hook's name. */
  secrets: {
    hookSecrets?: Readonly<Record<string, readonly string[]>> | undefined;
    hookUrls?: Readonly<Record<string, string>> | undefined;
  };
  /** Version of tillsync, which receivers get in the header `user-agent`. */
  version: string;
  /** Environment of this process. A program gets only a small part of it, without secrets. */
  env: NodeJS.ProcessEnv;
  clock: Clock;
}

export function receiverOf(
  { secrets: { hookSecrets = {}, hookUrls = {} }, env, version, clock }: Omit<HooksOptions, 'config'>,
  hook: HookSettings,
): HookReceiver {
  const url = hook.url === '' ? '' : (hookUrls[hook.name] ?? hook.url);
  const secrets = hookSecrets[hook.name] ?? [];
  return hookReceiver({ hook: { ...hook, url }, secrets, env, version, clock });
}

/** Returns the hook with this name. Throws `not-found`. */
export function namedHook({ hooks }: Pick<ConfiguredHooks, 'hooks'>, name: string): HookSettings {
  const found = hooks.find((hook) => hook.name === name);
  if (found) return found;
  const names = hooks.map((hook) => hook.name).join(', ') || 'none';
  throw new TillsyncError('not-found', `No hook ${name} is configured; there are: ${names}.`, {
    hint: 'Hooks stand in the configuration as [[hooks]]. If it was changed since tillsync started: {restart}',
  });
}

/**
 * Returns the kind of event that a command names, or the first kind that the hook gets if the command names none.
 * Throws `usage` for a kind that the hook does not get.
 */
export function namedEvent({ name, events }: HookSettings, event: EventName | undefined): EventName {
  const found = event === undefined ? events[0] : events.find((each) => each === event);
  if (found) return found;
  throw new TillsyncError(
    'usage',
    `The hook ${name} does not get ${event}; its events: ${events.join(', ')}.`,
    {
      hint: `To have it sent, name it in events of the hook's [[hooks]] table, then: {restart}`,
    },
  );
}

/** A requested test of one kind of event. `order` is an order's id, or null for an invented order or change. */
export interface HookTest {
  hook: string;
  event: EventName;
  order: string | null;
}

/** Sends one test event. The hook's cursor is not changed. Throws `not-found`, `aborted`. */
export async function testHook(
  options: HooksOptions & { signal: AbortSignal; mirror: { orders: Pick<Mirror['orders'], 'get'> } },
  { hook: name, event, order }: HookTest,
): Promise<HookAnswer> {
  const { config, clock, signal, mirror } = options;
  const receiver = receiverOf(options, namedHook(config, name));
  try {
    const { timezone } = config.orders;
    return await receiver.send(
      testMessage(mirror, isoUtc(clock.nowMs()), { event, order, timezone }),
      signal,
    );
  } finally {
    receiver.close();
  }
}

function testMessage(
  mirror: { orders: Pick<Mirror['orders'], 'get'> },
  now: string,
  { event, order: orderId, timezone }: Pick<HookTest, 'event' | 'order'> & { timezone: string },
): HookMessage {
  if (event === 'change.rejected') return madeUpRejection(now);
  const found = orderId === null ? madeUpEvent(now) : testEvent(orderOf(mirror, orderId), now);
  if (event === 'order') return found;
  const { order, status } = found;
  return {
    ...{ event, seq: 0, id: 'test', orderId: found.orderId, status },
    reason: event === 'order.undone' ? 'cancel' : null,
    changes: event === 'order.changed' && order ? madeUpChanges(order) : null,
    observedAt: now,
    ...timesOf(order, now, timezone),
    order,
    test: true,
  };
}

/** Returns changes as if the order's first line had been one piece fewer. */
function madeUpChanges(order: MirroredOrder): PreparationChange[] {
  const [first] = contentOf(order, () => '').lines;
  if (first === undefined) return [{ what: 'address' }];
  const { line, name, quantity, options } = first;
  const after = { name, quantity, options };
  const before = { ...after, quantity: (quantity ?? 1) + 1 };
  return [{ what: 'line', change: 'changed', line, before, after }];
}

function orderOf(mirror: { orders: Pick<Mirror['orders'], 'get'> }, orderId: string): MirroredOrder {
  const found = mirror.orders.get(orderId);
  if (found) return found;
  throw new TillsyncError('not-found', `The mirror has no order ${orderId}.`, {
    hint: 'See those it has with: {tillsync} order list',
  });
}
