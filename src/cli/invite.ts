import { asTillsyncError, TillsyncError } from '../core/errors.ts';
import { whenFree } from '../core/loop.ts';
import { isoUtc, parseDurationMs } from '../core/time.ts';
import { NAME } from './ask-branch.ts';
import { type Call, type CommandTools, command } from './command.ts';
import { requireBranch, withHub } from './hub.ts';

const INVITATION = { defaultMs: 3_600_000, minMs: 60_000, maxMs: 30 * 86_400_000 };

/** Reconfigures the NATS server, even if no daemon runs. Returns '' or, if that is impossible, a line of advice. */
export async function tellServer(
  rows: CommandTools['services']['state']['hub'],
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

export const invite = command({
  description: 'Print a one-time invitation for a branch',
  examples: ['branch invite B1', 'branch invite B1 --expires-in 3d', 'branch invite B1 --json'],
  argument: NAME,
  options: {
    '--expires-in <duration>': 'Time until the invitation expires, 1m to 30d (default: 1h)',
    '--previous-name <name>':
      "Name that the branch's machine still uses, if the hub lost its data after a rename",
  },
  more: '\nThe invitation is a secret: anyone who has it can join as the branch. A running branch keeps its key until a machine\njoins with the new invitation. To revoke that key immediately, run: tillsync branch revoke NAME',
  run: (call) =>
    withHub(call, async (tools) => {
      const { previousName: was } = call.options;
      const { branch, hub, invitation, expiresAt, behind } = await inviteBranch(tools, call, {
        was,
        goodForMs: goodFor(call.options.expiresIn),
      });
      return {
        json: { branch, hub, invitation, expiresAt },
        text: `${invitation}\n`,
        below: `At branch ${branch}, before ${expiresAt}:\n  sudo tillsync init --join -\nand paste the line. It is good once. An earlier line of it is worth nothing now.\n${behind}`,
      };
    }),
});

interface Invited {
  branch: string;
  /** Address of the hub for the branch. */
  hub: string;
  /** The line with which a machine joins. */
  invitation: string;
  expiresAt: string;
  /** A line of advice if the nats-server does not know the invitation yet; else ''. */
  behind: string;
}

/** Makes an invitation of a branch, and tells the nats-server of it. Throws `not-found`, `config-invalid`, `usage`. */
export async function inviteBranch(
  { services: { state, stores }, config, note }: CommandTools,
  { cli: { clock }, argument }: Pick<Call<unknown, string>, 'cli' | 'argument'>,
  { was, goodForMs = INVITATION.defaultMs }: { was?: string | undefined; goodForMs?: number } = {},
): Promise<Invited> {
  const { branch: named, name: branch } = requireBranch(config, state.hub, argument);
  const id = idOfInvited(state.hub, { named, branch, was });
  const place = state.hub.serverConfig();
  if (!place) {
    throw new TillsyncError('config-invalid', 'The configuration of the nats-server was not written yet.', {
      hint: 'Write it first: {tillsync} hub server-config',
    });
  }
  const { newKey } = await import('../link/nats.ts');
  const { invitationText } = await import('../link/server-config.ts');
  const { readAuthorities } = await import('../link/server-look.ts');
  const { seed, publicKey } = await newKey();
  const expiresAtMs = clock.nowMs() + goodForMs;
  const hub = config.hub.publicUrl || config.hub.nats;
  const ca = place.tls?.caFile == null ? null : readAuthorities(place.tls.caFile);
  await whenFree(clock, () => state.hub.invite(id, publicKey, expiresAtMs, branch));
  if (id !== named) {
    const { keepRoute } = await import('../link/assign.ts');
    await stores.write(({ db }) => keepRoute(db, id, id));
  }
  const expiresAt = isoUtc(expiresAtMs);
  const invitation = invitationText({ hub, branch: id, seed, ca, expiresAt });
  await note({ action: 'branch.invite', subject: `branch ${branch}`, detail: `until ${expiresAt}` });
  return { branch, hub, invitation, expiresAt, behind: await tellServer(state.hub, config, clock.nowMs()) };
}

/**
 * Returns the permanent id (the first name) of an invited branch: `named`, or `was` if given, for a hub that lost its
 * rows. With `was`, deletes an invitation under the present name. Throws `usage` if the hub knows the branch already.
 */
function idOfInvited(
  rows: CommandTools['services']['state']['hub'],
  { named, branch, was }: { named: string; branch: string; was: string | undefined },
): string {
  if (was === undefined || was === named) return named;
  const known = rows.branches();
  const isKnown = known.some((each) => each.name === branch && each.joinedAt !== null);
  if (!isKnown && !known.some((each) => each.branch === was) && /^[A-Za-z0-9_-]{1,64}$/.test(was)) {
    rows.forget(branch);
    return was;
  }
  throw new TillsyncError(
    'usage',
    `--previous-name ${was} is for a branch that this hub never heard, by a name that it does not know. Nothing was changed.`,
    { hint: `Leave it out: {tillsync} branch invite ${branch}` },
  );
}

function goodFor(text: string | undefined): number {
  const { defaultMs, minMs, maxMs } = INVITATION;
  const ms = text === undefined ? defaultMs : parseDurationMs(text);
  if (ms !== undefined && ms >= minMs && ms <= maxMs) return ms;
  throw new TillsyncError('usage', `--expires-in ${text} is not a duration from 1m to 30d.`, {
    hint: 'Example: {tillsync} branch invite NAME --expires-in 3d',
  });
}
