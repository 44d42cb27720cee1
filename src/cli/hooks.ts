import type * as z from 'zod';
import type { hookTestAnswer } from '../api/schemas.ts';
import { programVersion } from '../app/installation.ts';
import { preparationContext } from '../app/read-only-services.ts';
import { loadSetup } from '../config/config.ts';
import { counted, TillsyncError, typedWords } from '../core/errors.ts';
import { isoUtc } from '../core/time.ts';
import { type EventName, feedOf, HOOK_EVENTS } from '../core/values.ts';
import { DELIVERIES_KEPT, type Delivery } from '../hooks/deliveries.ts';
import type { HookStatus } from '../hooks/hook.ts';
import { EXIT, printable } from './cli.ts';
import { choice, command, group, LIMIT, parsed, sourceOf, withReaders, withServices } from './command.ts';
import { askRunning } from './daemon-client.ts';
import { confirm } from './init/terminal.ts';
import { wholeNumber } from './options.ts';
import { namedOrder } from './order.ts';
import { ago, fields, table, when } from './table.ts';

const NAME = ['<name>', 'of the hook, as in the configuration'] as const;
const EVENT = choice('Kind of event to send (default: the first that the hook receives)', HOOK_EVENTS);

const list = command({
  description: 'List hooks with their pending events',
  examples: ['hooks list', 'hooks list --json'],
  run: (call) =>
    withReaders(call, async ({ mirror }, config) => {
      const { newestOf, statusesOf } = await import('../hooks/hook-cursors.ts');
      const newestSeq = mirror.orders.newestSeq();
      const settled = { name: '', event: 'change.rejected' } as const;
      const newestSettledSeq = mirror.read((db) => newestOf(db, settled));
      const context = preparationContext(config, mirror, call.cli.clock);
      const hooks = mirror.read((db) => statusesOf(db, config.hooks, context));
      const json = { newestSeq, newestSettledSeq, hooks };
      if (hooks.length === 0) return { json, above: 'No hooks are configured.\n' };
      return {
        json,
        text: () => hooksText(json, config.orders.timezone, call.cli.clock.nowMs()),
      };
    }),
});

interface ListedHooks {
  newestSeq: number;
  newestSettledSeq: number;
  hooks: readonly HookStatus[];
}

function hooksText(
  { hooks, newestSeq, newestSettledSeq }: ListedHooks,
  timezone: string,
  nowMs: number,
): string {
  const text = table(
    hooks,
    {
      HOOK: 'name',
      TO: 'to',
      EVENTS: 'event',
      PLACE: ({ seq }) => seq ?? 'not begun',
      WAITING: ({ waiting, isMore }) => (isMore ? `${waiting}+` : waiting),
      OLDEST: ({ waitsSince }) => (waitsSince === null ? null : ago(waitsSince, nowMs)),
      [`LAST OK (${timezone})`]: ({ lastOkAt }) => when(lastOkAt, timezone),
      FAILURES: 'failures',
      'NEXT TRY': ({ nextTryAt }) => (nextTryAt === null ? null : ago(nextTryAt, nowMs)),
      [`LAST FAILURE (${timezone})`]: ({ lastFailureAt, lastFailure }) =>
        lastFailureAt === null ? null : `${when(lastFailureAt, timezone)} ${lastFailure}`,
    },
    ['PLACE', 'WAITING', 'FAILURES'],
  );
  const newest = `${text}Newest event of the order feed: ${newestSeq}\n`;
  const getsChanges = hooks.some(({ event }) => event === 'change.rejected');
  return getsChanges ? `${newest}Newest settled change: ${newestSettledSeq}\n` : newest;
}

/** Returns the singular noun of a kind of event, from which `counted` makes texts such as `2 rejected changes`. */
const nounOf = (event: EventName) => (event === 'change.rejected' ? 'rejected change' : 'event');

const test = command({
  description: 'Send a test event to a hook and show its answer',
  examples: [
    'hooks test printer',
    'hooks test printer --order 1005',
    'hooks test till --event change.rejected',
    'hooks test printer --event order.changed',
    'hooks test printer --json',
  ],
  argument: NAME,
  options: {
    '--order <order>': 'Order to send (number or ID; default: a made-up order)',
    '--event <event>': EVENT,
  },
  async run(call) {
    const { namedEvent, namedHook, testHook } = await import('../hooks/hook-test.ts');
    const { clock, signal, env } = call.cli;
    const { config, secrets } = loadSetup(sourceOf(call));
    const hook = namedHook(config, call.argument);
    const { timeoutMs, url, command: words } = hook;
    const { order: word } = call.options;
    const event = namedEvent(hook, call.options.event);
    if (word !== undefined && event === 'change.rejected') {
      throw new TillsyncError('usage', `--order is for events of orders, not for ${event}.`);
    }
    const order =
      word === undefined
        ? undefined
        : await withReaders(call, ({ mirror }) => namedOrder(mirror, word, config.orders.timezone));
    const path = `/hooks/${encodeURIComponent(hook.name)}/test`;
    const body = { event, ...(order && { order: order.orderId }) };
    const answer: z.output<typeof hookTestAnswer> | undefined = await askRunning(call, {
      path,
      body,
      timeoutMs,
    });
    const byCommand = async () => {
      const given = { config, secrets, env, version: programVersion(), clock, signal };
      const asked = { hook: hook.name, event, order: order?.orderId ?? null };
      const { text: answer, ...rest } = await testHook(
        { ...given, mirror: { orders: { get: () => order } } },
        asked,
      );
      return { ...rest, answer };
    };
    const { ok, what, answer: text } = answer ?? (await byCommand());
    return {
      json: { ok, by: answer ? 'daemon' : 'command', hook: hook.name, event, what, answer: text },
      text: fields({
        hook: hook.name,
        event,
        to: url === '' ? words.join(' ') : new URL(url).origin,
        result: ok ? `taken: ${what}` : `NOT TAKEN: ${what}`,
        answer: printable(text),
      }),
      below: answer
        ? 'The running tillsync sent it, as it sends its events.\n'
        : 'tillsync is not running, so this command sent it, with the rights of this user.\n',
      exit: ok ? EXIT.done : EXIT.failed,
    };
  },
});

const skip = command({
  description: 'Skip an event that a hook does not accept',
  examples: [
    'hooks skip printer',
    'hooks skip printer --to 1250',
    'hooks skip printer --to newest',
    'hooks skip till --event change.rejected',
  ],
  argument: NAME,
  options: {
    '--to <seq>': parsed('Skip all events up to this one; `newest` skips all', (text) =>
      text === 'newest' ? text : wholeNumber('--to', 1)(text),
    ),
    '--event <event>': EVENT,
  },
  async run(call) {
    const { namedEvent, namedHook } = await import('../hooks/hook-test.ts');
    const { cursorOf, newestOf, skipWaiting } = await import('../hooks/hook-cursors.ts');
    const { decideWaiting } = await import('../hooks/prepared-orders.ts');
    return withServices(call, async ({ services: { stores, mirror }, config }) => {
      const hook = namedHook(config, call.argument);
      const event = namedEvent(hook, call.options.event);
      const key = { name: hook.name, event: feedOf(event) };
      const { to = null } = call.options;
      const { clock } = call.cli;
      const context = preparationContext(config, mirror, clock);
      const passed = await stores.write(({ db, audit }) => {
        const cursor = key.event === 'order.prepare' ? cursorOf(db, key) : undefined;
        if (cursor && typeof to !== 'number') {
          const { seq, orderSeq, newsFrom } = cursor;
          const all = to === 'newest';
          const after = { seq, orderSeq: orderSeq ?? 0, newsFrom, all, at: isoUtc(clock.nowMs()) };
          decideWaiting(db, hook, after, context);
        }
        const found = skipWaiting(db, hook, key.event, to === 'newest' ? newestOf(db, key) : to);
        const detail = `${counted(found?.skipped ?? 0, nounOf(event))} passed over, up to ${found?.seq}`;
        const auditEvent = { who: call.cli.who, action: 'hooks.skip', subject: hook.name, detail } as const;
        if (found && found.skipped > 0) audit.note(auditEvent);
        return found;
      });
      if (passed === undefined) notBegun(hook.name);
      const { seq, skipped } = passed;
      const text =
        skipped === 0
          ? `Nothing waits for ${hook.name} up to there; its place is ${seq}.\n`
          : `${hook.name} goes on after ${seq}; ${counted(skipped, nounOf(event))} passed over.\n`;
      return { json: { hook: hook.name, event, ...passed }, text };
    });
  },
});

const deliveries = command({
  description: 'List the last events sent to a hook and its answers',
  examples: [
    'hooks deliveries printer',
    'hooks deliveries printer --failed',
    'hooks deliveries printer --json',
  ],
  argument: NAME,
  options: { '--failed': 'Only events with a failed attempt', '--limit <n>': LIMIT },
  more: `\nThe last ${DELIVERIES_KEPT} deliveries of each hook are stored, for each kind of event. Pending events are in \`hooks list\`.`,
  async run(call) {
    const { namedHook } = await import('../hooks/hook-test.ts');
    const { deliveriesOf } = await import('../hooks/deliveries.ts');
    return withReaders(call, ({ mirror }, config) => {
      const { name } = namedHook(config, call.argument);
      const { failed = false, limit } = call.options;
      const found = mirror.read((db) => deliveriesOf(db, name, { failed, limit }));
      const json = { hook: name, deliveries: found };
      const none = `Nothing that it was sent ${failed ? 'failed' : 'is known'}.\n`;
      if (found.length === 0) return { json, above: none };
      return { json, text: () => deliveriesText(found, config.orders.timezone) };
    });
  },
});

function deliveriesText(found: readonly Delivery[], timezone: string): string {
  return table(
    found,
    {
      [`LAST TRY (${timezone})`]: ({ at }) => when(at, timezone),
      EVENT: 'seq',
      'ORDER OR CHANGE': ({ code, orderId, changeId }) =>
        changeId === null ? (code ?? orderId) : `change ${changeId}`,
      STATUS: ({ event, status }) =>
        event === 'order' ? status : event === 'change.rejected' ? 'rejected' : event,
      TRIES: 'tries',
      TAKEN: ({ taken }) => (taken ? 'yes' : 'NO'),
      ANSWER: 'answer',
    },
    ['EVENT', 'TRIES'],
  );
}

const send = command({
  description: 'Send past events to a hook again',
  examples: [
    'hooks send printer --from 1250',
    'hooks send printer --from 1250 --yes --json',
    'hooks send till --event change.rejected --from 88',
  ],
  argument: NAME,
  options: {
    '--from <seq>': parsed('First event to send again, as in `hooks deliveries`', wholeNumber('--from', 1)),
    '--event <event>': EVENT,
    '--yes': "Don't ask for confirmation",
  },
  more: `
The hook continues from the earlier event: one event after the other, each until it is accepted, with the same webhook-id
as before. Each order is sent as it is now. Of orders closed long ago, only the newest event is stored; a change is sent
again only while it is rejected.`,
  async run(call) {
    const { namedEvent, namedHook } = await import('../hooks/hook-test.ts');
    const { resendingFrom, rewind } = await import('../hooks/hook-cursors.ts');
    const { from, yes = false } = call.options;
    if (from === undefined) {
      throw new TillsyncError('usage', 'Say from which event on, with --from.', {
        hint: `See what it was sent: {tillsync} hooks deliveries ${call.argument}`,
      });
    }
    return withServices(call, async ({ services: { stores }, config }) => {
      const { clock, who } = call.cli;
      const hook = namedHook(config, call.argument);
      const event = namedEvent(hook, call.options.event);
      const feed = feedOf(event);
      const plan = stores.read(({ db }) => resendingFrom(db, hook, feed, from)) ?? notBegun(hook.name);
      if (plan.events === 0) {
        const text = `Nothing from event ${from} to ${plan.seq} is for ${hook.name}, so nothing is sent.\n`;
        return { json: { hook: hook.name, event, ...plan, sent: false }, text };
      }
      const go = plan.events === 1 ? 'goes' : 'go';
      const what = `${counted(plan.events, nounOf(event))} ${go} to ${hook.name} once more, from ${plan.first} to ${plan.seq}, before what waits.`;
      if (!yes) await confirm(call.cli, what, 'Send them?');
      const done = await stores.write(({ db, audit }) => {
        const found = resendingFrom(db, hook, feed, from) ?? notBegun(hook.name);
        rewind(db, { name: hook.name, event: feed }, { from, at: isoUtc(clock.nowMs()) });
        const detail = `${counted(found.events, nounOf(event))} again, from ${found.first}`;
        audit.note({ who, action: 'hooks.send', subject: hook.name, detail });
        return found;
      });
      return {
        json: { hook: hook.name, event, ...done, sent: true },
        text: `${what}\n`,
        below: `The running tillsync sends them within seconds. To see it: ${typedWords().tillsync} hooks deliveries ${hook.name}\n`,
      };
    });
  },
});

function notBegun(name: string): never {
  throw new TillsyncError('not-found', `The hook ${name} has not begun.`, {
    hint: 'It begins when tillsync starts with it in the configuration: {restart}',
  });
}

export const hooks = group('Send events to your own programs and URLs; resend or skip them', {
  list,
  deliveries,
  test,
  send,
  skip,
});
