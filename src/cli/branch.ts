import { branchName } from '../config/roles.ts';
import { TillsyncError } from '../core/errors.ts';
import { isoUtc } from '../core/time.ts';
import { EXIT } from './cli.ts';
import { type CommandTools, command, group } from './command.ts';
import { withHub } from './hub.ts';
import { table, when } from './table.ts';

const INVITATION_MS = 3_600_000;

const NAME = ['<name>', 'its external_id in [[branches]], or its subsidiary_id where it has none'] as const;

function requireBranch({ config }: Pick<CommandTools, 'config'>, name: string): void {
  const names = config.branches.map(branchName);
  if (names.includes(name)) return;
  throw new TillsyncError('not-found', `There is no branch ${name} in the configuration.`, {
    hint: `Branches: ${names.join(', ')}.`,
  });
}

const invite = command({
  description: 'Invite a branch: prints one line that its tillsync joins with, once and within an hour',
  examples: ['branch invite B1', 'branch invite B1 --json'],
  argument: NAME,
  more: '\nThe line is a secret: whoever has it first is the branch. A branch that is invited again loses its key.',
  run: (call) =>
    withHub(call, async ({ parts: { state }, config }) => {
      const branch = call.argument;
      requireBranch({ config }, branch);
      const place = state.hub.serverConfig();
      if (!place) {
        throw new TillsyncError(
          'config-invalid',
          'The configuration of the nats-server was not written yet.',
          {
            hint: 'Write it first: {tillsync} hub server-config {storage}/nats/server.conf',
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
      return {
        json: { branch, hub: url, invitation, expiresAt },
        text: `${invitation}\n`,
        below: `At branch ${branch}, before ${expiresAt}:\n  sudo tillsync init --join -\nand paste the line. It is good once.\n`,
      };
    }),
});

const list = command({
  description: 'List the branches: who is connected, how far behind, what waits there',
  examples: ['branch list', 'branch list --json'],
  run: (call) =>
    withHub(call, async ({ parts: { state, mirror }, config }) => {
      const { newestNumbers } = await import('../link/hub-feed.ts');
      const newest = mirror.read(newestNumbers);
      const invited = new Map(state.hub.branches().map((each) => [each.branch, each]));
      const branches = config.branches.map((own) => {
        const branch = branchName(own);
        const { expiresAt = null, joinedAt = null, seenAt = null, report = null } = invited.get(branch) ?? {};
        const status = !invited.has(branch) ? 'not invited' : expiresAt === null ? 'joined' : 'invited';
        return {
          ...{ branch, status, joinedAt, expiresAt, seenAt },
          /** Entries of the feed that its mirror does not have yet. */
          behind: report === null ? null : Math.max(0, (newest.get(branch) ?? 0) - report.mark),
          waiting: report?.waiting ?? null,
          oldestWaitingAt: report?.oldestWaitingAt ?? null,
          version: report?.version ?? null,
        };
      });
      const { timezone } = config.orders;
      return {
        json: { branches },
        text: table(
          branches,
          {
            ...{ BRANCH: 'branch', STATUS: 'status' },
            [`SEEN (${timezone})`]: ({ seenAt }) => when(seenAt, timezone),
            ...{ BEHIND: 'behind', WAITING: 'waiting' },
            'OLDEST WAITING': ({ oldestWaitingAt }) => when(oldestWaitingAt, timezone),
            VERSION: 'version',
          },
          ['BEHIND', 'WAITING'],
        ),
      };
    }),
});

const remove = command({
  description: 'Take the key from a branch: it is thrown out at once',
  examples: ['branch remove B1'],
  argument: NAME,
  more: '\nWhat the hub has for it stays, and follows when it is invited again.',
  run: (call) =>
    withHub(call, async ({ parts: { state } }) => {
      const branch = call.argument;
      const removed = state.hub.remove(branch);
      return {
        json: { branch, removed },
        text: removed ? `Branch ${branch} has no key any more.\n` : `Branch ${branch} had no key.\n`,
        exit: removed ? EXIT.done : EXIT.failed,
      };
    }),
});

export const branch = group('Invite, list and remove the branches of a hub', { invite, list, remove });
