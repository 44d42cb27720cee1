import { branchName } from '../config/roles.ts';
import { asTillsyncError, counted, TillsyncError } from '../core/errors.ts';
import { isoUtc } from '../core/time.ts';
import type { UnassignedOrder } from '../link/assign.ts';
import { bundle, doctor, NAME, status } from './ask-branch.ts';
import { EXIT } from './cli.ts';
import { type CommandTools, command, group } from './command.ts';
import { requireBranch, withHub } from './hub.ts';
import { table, when } from './table.ts';

const INVITATION_MS = 3_600_000;
const UNASSIGNED_MAX = 20;

/** Has the server hear of it at once, whether the daemon runs or not. Gives a line of advice where it cannot. */
async function tellServer(
  rows: CommandTools['parts']['state']['hub'],
  { hub }: CommandTools['config'],
  nowMs: number,
): Promise<string> {
  const { ServerKeeper } = await import('../link/server-file.ts');
  try {
    await new ServerKeeper(rows, hub).look(nowMs);
    return '';
  } catch (error) {
    return `The nats-server has not heard of it yet, and does when it runs: ${asTillsyncError(error).message}\n`;
  }
}

/** Throws `usage` for the shop in which the hub stands: it has no key. */
function refuseOwnStore({ hub }: CommandTools['config'], branch: string): void {
  if (branch !== hub.store) return;
  throw new TillsyncError(
    'usage',
    `The hub itself stands in ${branch} (hub.store), which needs no key. Nothing was changed.`,
    {
      hint: 'To give it a machine of its own, empty store in [hub] and restart, then invite it.',
    },
  );
}

const invite = command({
  description: 'Invite a branch: prints one line that its tillsync joins with, once and within an hour',
  examples: ['branch invite B1', 'branch invite B1 --json'],
  argument: NAME,
  more: '\nThe line is a secret: whoever has it first is the branch. A branch that is invited again loses its key.',
  run: (call) =>
    withHub(call, async ({ parts: { state }, config, note }) => {
      const branch = call.argument;
      requireBranch(config, branch);
      refuseOwnStore(config, branch);
      const place = state.hub.serverConfig();
      if (!place) {
        throw new TillsyncError(
          'config-invalid',
          'The configuration of the nats-server was not written yet.',
          {
            hint: 'Write it first: {tillsync} hub server-config',
          },
        );
      }
      const { newKey } = await import('../link/nats.ts');
      const { invitationText } = await import('../link/server-config.ts');
      const { readPem } = await import('../link/server-look.ts');
      const { seed, publicKey } = await newKey();
      const expiresAtMs = call.cli.clock.nowMs() + INVITATION_MS;
      const url = config.hub.publicUrl || config.hub.nats;
      const ca = place.tls?.caFile == null ? null : readPem(place.tls.caFile);
      state.hub.invite(branch, publicKey, expiresAtMs);
      const expiresAt = isoUtc(expiresAtMs);
      const invitation = invitationText({ hub: url, branch, seed, ca, expiresAt });
      await note({ action: 'branch.invite', subject: `branch ${branch}`, detail: `until ${expiresAt}` });
      const behind = await tellServer(state.hub, config, call.cli.clock.nowMs());
      return {
        json: { branch, hub: url, invitation, expiresAt },
        text: `${invitation}\n`,
        below: `At branch ${branch}, before ${expiresAt}:\n  sudo tillsync init --join -\nand paste the line. It is good once.\n${behind}`,
      };
    }),
});

const list = command({
  description:
    'List the branches, worst first: who is connected, how far behind, what waits there, what is wrong',
  examples: ['branch list', 'branch list --json'],
  run: (call) =>
    withHub(call, async ({ parts: { state, mirror }, config }) => {
      const { branchBoard } = await import('../link/branch-board.ts');
      const { unassignedOrders } = await import('../link/assign.ts');
      const unassigned = mirror.read((db) => unassignedOrders(db, UNASSIGNED_MAX));
      const names = config.branches.map(branchName);
      const nowMs = call.cli.clock.nowMs();
      const branches = mirror.read((db) => branchBoard(db, names, state.hub.branches(), nowMs));
      const { timezone } = config.orders;
      return {
        json: { branches, unassigned },
        ...(unassigned.length > 0 && { below: unassignedText(unassigned) }),
        text: table(
          branches,
          {
            ...{ BRANCH: 'branch', STATUS: 'status', VERDICT: 'level' },
            [`SEEN (${timezone})`]: ({ seenAt }) => when(seenAt, timezone),
            ...{ BEHIND: 'behind', WAITING: 'waiting' },
            'OLDEST WAITING': ({ oldestWaitingAt }) => when(oldestWaitingAt, timezone),
            ...{ QUARANTINE: 'quarantined', VERSION: 'version' },
            'WHAT IS WRONG': 'message',
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
  description:
    'Say whose the orders are that name no branch of the configuration: they go down to it at once',
  examples: ['branch assign B1 --store sub-9', 'branch assign B1 --order 64f0c2a9e1'],
  argument: NAME,
  options: {
    '--store <store>': 'all orders that name this store, those of before and those to come',
    '--order <id>': "this order alone, by the platform's id of it",
  },
  more: '\nWhich orders these are: tillsync branch list. A store that [[branches]] names later is of that branch.',
  run: (call) =>
    withHub(call, async ({ parts: { mirror, stores }, config }) => {
      const branch = call.argument;
      const { store, order } = call.options;
      requireBranch(config, branch);
      if ((store === undefined) === (order === undefined)) {
        throw new TillsyncError('usage', 'Give --store STORE or --order ID.', {
          hint: 'Which orders name no known branch: {tillsync} branch list',
        });
      }
      const { assignOrder, assignStore, unassignedOrders } = await import('../link/assign.ts');
      const subject = store === undefined ? `order ${order}` : `store ${store}`;
      const at = isoUtc(call.cli.clock.nowMs());
      const orders = await stores.write(({ db, audit }) => {
        const sent =
          store === undefined
            ? Number(assignOrder(db, order ?? '', branch, at))
            : assignStore(db, store, branch, at);
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

const remove = command({
  description: 'Take the key from a branch: it is thrown out at once',
  examples: ['branch remove B1'],
  argument: NAME,
  more: '\nWhat the hub has for it stays, and follows when it is invited again.',
  run: (call) =>
    withHub(call, async ({ parts: { state }, config, note }) => {
      const branch = call.argument;
      refuseOwnStore(config, branch);
      const removed = state.hub.remove(branch);
      if (removed) await note({ action: 'branch.remove', subject: `branch ${branch}` });
      return {
        json: { branch, removed },
        text: removed ? `Branch ${branch} has no key any more.\n` : `Branch ${branch} had no key.\n`,
        below: removed ? await tellServer(state.hub, config, call.cli.clock.nowMs()) : '',
        exit: removed ? EXIT.done : EXIT.failed,
      };
    }),
});

export const branch = group('Invite, list, ask and remove the branches of a hub', {
  ...{ invite, list, status, doctor, bundle, assign, remove },
});
