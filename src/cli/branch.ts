import { configuredNames } from '../config/roles.ts';
import { counted, formatCommands, TillsyncError } from '../core/errors.ts';
import { whenFree } from '../core/loop.ts';
import { isoUtc, localTimes } from '../core/time.ts';
import type { UnassignedOrder } from '../link/assign.ts';
import { add } from './add-branch.ts';
import { bundle, doctor, NAME, status } from './ask-branch.ts';
import { EXIT } from './cli.ts';
import { command, group } from './command.ts';
import { requireBranch, withHub } from './hub.ts';
import { invite, tellServer } from './invite.ts';
import { table, when } from './table.ts';

const UNASSIGNED_MAX = 20;

const list = command({
  description: 'List branches, worst first',
  examples: ['branch list', 'branch list --json'],
  run: (call) =>
    withHub(call, async ({ services: { state, mirror }, config }) => {
      const { branchBoard } = await import('../link/branch-status.ts');
      const { unassignedOrders } = await import('../link/assign.ts');
      const unassigned = mirror.read((db) => unassignedOrders(db, UNASSIGNED_MAX));
      const named = state.hub.named(configuredNames(config.branches));
      const closed = named.filter(({ isClosed }) => isClosed).map(({ name }) => name);
      const nowMs = call.cli.clock.nowMs();
      const branches = mirror.read((db) =>
        branchBoard(db, state.hub.open(configuredNames(config.branches)), state.hub.branches(), nowMs),
      );
      const { timezone } = config.orders;
      return {
        json: { branches, unassigned, closed },
        below: `${closed.length > 0 ? `Closed: ${closed.join(', ')}.\n` : ''}${unassigned.length > 0 ? unassignedText(unassigned) : ''}`,
        text: table(
          branches,
          {
            BRANCH: 'branch',
            STATUS: 'status',
            VERDICT: 'level',
            [`SEEN (${timezone})`]: ({ seenAt }) => when(seenAt, timezone),
            BEHIND: 'behind',
            WAITING: 'waiting',
            'OLDEST WAITING': ({ oldestWaitingAt }) => when(oldestWaitingAt, timezone),
            QUARANTINE: 'quarantined',
            VERSION: 'version',
            'WHAT IS WRONG': ({ message }) => localTimes(message, timezone, nowMs),
          },
          ['BEHIND', 'WAITING', 'QUARANTINE'],
        ),
      };
    }),
});

function unassignedText(orders: readonly UnassignedOrder[]): string {
  const lines = orders.map(
    ({ orderId, store }) => `  ${orderId}  ${store === null ? '-' : `store ${store}`}\n`,
  );
  return `Orders of no known branch, which go to nobody (at most ${UNASSIGNED_MAX} are shown):\n${lines.join('')}`;
}

const assign = command({
  description: 'Assign orders of an unknown store to a branch',
  examples: ['branch assign B1 --store sub-9', 'branch assign B1 --order 64f0c2a9e1'],
  argument: NAME,
  options: {
    '--store <store>': 'All orders of this store, past and future',
    '--order <id>': "Only this order (the platform's ID)",
  },
  more: '\nTo list these orders, run: tillsync branch list. If you later add the store to [[branches]], that branch gets its orders.',
  run: (call) =>
    withHub(call, async ({ services: { mirror, stores, state }, config }) => {
      const { store, order } = call.options;
      const { branch: id, name: branch, isClosed } = requireBranch(config, state.hub, call.argument);
      if ((store === undefined) === (order === undefined)) {
        throw new TillsyncError('usage', 'Give --store STORE or --order ID.', {
          hint: 'Which orders name no known branch: {tillsync} branch list',
        });
      }
      if (isClosed) {
        throw new TillsyncError('usage', `Branch ${branch} is closed. Nothing was changed.`, {
          hint: `To open it again: {tillsync} branch invite ${branch}`,
        });
      }
      const { assignOrder, assignStore, unassignedOrders } = await import('../link/assign.ts');
      const subject = store === undefined ? `order ${order}` : `store ${store}`;
      const at = isoUtc(call.cli.clock.nowMs());
      const orders = await stores.write(({ db, audit }) => {
        const sent =
          store === undefined ? Number(assignOrder(db, order ?? '', id, at)) : assignStore(db, store, id, at);
        audit.note({ who: call.cli.who, action: 'branch.assign', subject, detail: `branch ${branch}` });
        return sent;
      });
      const left = mirror.read((db) => unassignedOrders(db, UNASSIGNED_MAX));
      return {
        json: { branch, store: store ?? null, order: order ?? null, orders, unassigned: left },
        text: `${subject} is of branch ${branch} now. Going down to it: ${counted(orders, 'order')}.\n`,
      };
    }),
});

const revoke = command({
  description: "Revoke a branch's key and disconnect it immediately",
  examples: ['branch revoke B1'],
  argument: NAME,
  more: '\nThe branch remains configured: its new orders wait at the hub until you invite it again. Its machine keeps its mirror\nand its pending changes. If the shop closes, run: tillsync branch close NAME',
  run: (call) =>
    withHub(call, async ({ services: { state }, config, note }) => {
      const name = call.argument;
      // The branch is looked up in the hub's rows, because it may no longer be in the configuration.
      const known = state.hub.branches().find((each) => each.name === name);
      const revoked =
        known !== undefined && (await whenFree(call.cli.clock, () => state.hub.remove(known.branch)));
      if (revoked) await note({ action: 'branch.revoke', subject: `branch ${name}` });
      const left =
        'Its new orders wait here until you invite it again. Its machine keeps its mirror and its pending changes.';
      return {
        json: { branch: name, revoked },
        text: revoked ? `The key of branch ${name} was revoked. ${left}\n` : `Branch ${name} had no key.\n`,
        below: revoked ? await tellServer(state.hub, config, call.cli.clock.nowMs()) : '',
        exit: revoked ? EXIT.done : EXIT.failed,
      };
    }),
});

const close = command({
  description: 'Close a branch: revoke its key and stop its alarms',
  examples: ['branch close B2'],
  argument: NAME,
  more: '\nOrders of its stores are then reported as orders of an unknown branch. To open it again, run: tillsync branch invite NAME\nIts machine continues with its mirror.',
  run: (call) =>
    withHub(call, async ({ services: { state }, config, note }) => {
      const named = requireBranch(config, state.hub, call.argument);
      const { name } = named;
      const nowMs = call.cli.clock.nowMs();
      const closed = await whenFree(call.cli.clock, () => state.hub.close(named, nowMs));
      if (closed) await note({ action: 'branch.close', subject: `branch ${name}` });
      return {
        json: { branch: name, closed },
        text: closed
          ? formatCommands(
              `Branch ${name} is closed. Its open orders are told as orders of no known branch: {tillsync} branch list. Its catalogue is not read from the next start on: {restart}\n`,
            )
          : `Branch ${name} was closed already.\n`,
        below: closed ? await tellServer(state.hub, config, nowMs) : '',
        exit: closed ? EXIT.done : EXIT.failed,
      };
    }),
});

const rename = command({
  description: 'Rename a branch, keeping its key and data',
  examples: ['branch rename B2 Norte'],
  argument: ['<names...>', 'Previous name, then the name in the configuration'],
  more: '\nFirst change [[branches]] in the configuration and restart. Orders with the old ID still go to the branch while the hub\nhas one. Give the same name twice to say that a branch is the earlier one, whose subsidiary_id was wrong.',
  run: (call) =>
    withHub(call, async ({ services: { state, stores, mirror }, config }) => {
      const [old, name, ...more] = call.argument;
      if (old === undefined || name === undefined || more.length > 0) {
        throw new TillsyncError('usage', 'Give two names: the one of before and the one of now.', {
          hint: 'Such as: {tillsync} branch rename B2 Norte',
        });
      }
      const known = state.hub.branches();
      const configured = configuredNames(config.branches);
      const names = configured.map((each) => each.name);
      // During a swap of two names, both branches have the same name after the first rename, so the subsidiary id
      // decides which of them is meant.
      const isOffered = state.hub.named(configured).find((each) => each.name === name)?.renamedFrom === old;
      const id = configured.find((each) => each.name === name)?.subsidiaryId ?? null;
      const called = known.filter((each) => each.name === old);
      const branch = (isOffered && called.find((each) => each.subsidiaryId === id)) || called[0];
      if (!branch) {
        throw new TillsyncError(
          'not-found',
          `There is no branch ${old} that was ever invited. Nothing was changed.`,
          {
            hint: 'Which there are: {tillsync} branch list',
          },
        );
      }
      const other = known.find((each) => each.name === name);
      const isOther = other !== undefined && (other.publicKey !== null || other.invitedKey !== null);
      const isTaken = isOther || (names.includes(name) && names.includes(old));
      if (isTaken && !isOffered && old !== name) {
        throw new TillsyncError(
          'usage',
          `There is a branch ${name} already; ${old} keeps its name, and nothing was changed.`,
          {
            hint: `If ${name} has a key, revoke it first: {tillsync} branch revoke ${name}`,
          },
        );
      }
      if (!names.includes(name)) {
        throw new TillsyncError(
          'config-invalid',
          `The configuration has no branch ${name}. Nothing was changed.`,
          {
            hint: `Write ${name} in place of ${old} in [[branches]] of it, then {restart}, then type this again.`,
          },
        );
      }
      const { keepRoute, refuseUnread } = await import('../link/assign.ts');
      if (!names.includes(old)) mirror.read((db) => refuseUnread(db, old, branch.branch));
      await whenFree(call.cli.clock, () => state.hub.rename(branch.branch, name, id));
      await stores.write(({ db, audit }) => {
        // Orders with the old name still belong to this branch, unless the configuration now gives that name to another
        // branch.
        if (!names.includes(old)) keepRoute(db, old, branch.branch);
        audit.note({
          who: call.cli.who,
          action: 'branch.rename',
          subject: `branch ${old}`,
          detail: `now ${name}`,
        });
      });
      const now = old === name ? `is the one of before, with the id ${id}` : `is called ${name} from now on`;
      return {
        json: { branch: name, before: old },
        text: `Branch ${old} ${now}. It keeps its key, its numbers and its mirror.\n`,
      };
    }),
});

export const branch = group('Invite, inspect, rename, close or revoke branches', {
  add,
  invite,
  list,
  status,
  doctor,
  bundle,
  assign,
  rename,
  close,
  revoke,
});
