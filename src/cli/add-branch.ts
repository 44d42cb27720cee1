import { existsSync, readdirSync, rmSync } from 'node:fs';
import path from 'node:path';
import { actAsStorageUser, rootAfter } from '../app/installation.ts';
import { checkGroup, storagePaths } from '../app/storage.ts';
import { loadConfig } from '../config/config.ts';
import type { Config } from '../config/config-type.ts';
import { configPath, DEFAULT_CONFIG_FILE } from '../config/source.ts';
import { listenList } from '../config/values.ts';
import { asTillsyncError, sameCommandWithSudo, TillsyncError } from '../core/errors.ts';
import { whenFree } from '../core/loop.ts';
import type { HubRows } from '../link/hub-state.ts';
import { NAME } from './ask-branch.ts';
import { type Call, type CommandTools, command, type Result, sourceOf, type Values } from './command.ts';
import { requireBranch, withHub } from './hub.ts';
import { isActive, isInstalled, tryListener, unitsOf } from './init/machine.ts';
import { inviteBranch, tellServer } from './invite.ts';

const OPTIONS = {
  '--here': 'on this machine, in a service of its own: tillsync@NAME',
  '--group <name>': 'Unix group of its point of sale (else the group of this tillsync)',
  '--local-listen <address>': 'where its status page and local API are, as host:port (else on a free port)',
  '--directory <path>': 'its storage directory (else /var/lib/tillsync@NAME)',
};

type AddCall = Call<Values<typeof OPTIONS>, string>;

export const add = command({
  description: 'Create a branch on this machine and start its service',
  examples: ['branch add B1 --here', 'branch add B1 --here --group pos'],
  argument: NAME,
  options: OPTIONS,
  more: '\nIts configuration is /etc/tillsync/NAME.toml. To run a command for it: tillsync --config /etc/tillsync/NAME.toml status\nFor a branch on another machine, run: tillsync branch invite NAME',
  async run(call): Promise<Result> {
    const { cli, options, argument: name } = call;
    if (!options.here) {
      throw new TillsyncError('usage', 'Say where: --here, for this machine. Nothing was changed.', {
        hint: `For another machine: {tillsync} branch invite ${name}`,
      });
    }
    const hub = loadConfig(sourceOf(call));
    const place = await placeHere(call, hub);
    const atHub = <T>(use: (tools: CommandTools) => Promise<T>) =>
      rootAfter(() => {
        const configFile = configPath(options.config, cli.env);
        actAsStorageUser({ directory: hub.storage.directory, configFile, writes: true });
        return withHub(call, use);
      });
    const { invitation } = await atHub(async (tools) => {
      refuseKnown(tools.config, tools.services.state.hub, name);
      return inviteBranch(tools, call);
    });
    try {
      const { joinHub } = await import('./init/join.ts');
      const { language } = hub.shop;
      const { timezone } = hub.orders;
      const how = {
        newPhrase: false,
        start: true,
        config: place.file,
        group: place.group,
        language,
        timezone,
      };
      const { directory, localListen } = options;
      const joined = await rootAfter(() => joinHub(cli, { ...how, directory, localListen }, invitation));
      const { mirror, inbox } = storagePaths(place.directory);
      return {
        ...joined,
        json: { ...Object(joined.json), mirror, inbox },
        text: `${joined.text}Its POS reads ${mirror}\nand writes ${inbox}\n`,
      };
    } catch (error) {
      place.clear();
      await atHub(({ services: { state }, config }) => withdraw(call, state.hub, config));
      // The cause says what happened; the error of `init --join` also says what that command keeps.
      const { code, message } = asTillsyncError(
        error instanceof TillsyncError ? (error.cause ?? error) : error,
      );
      throw new TillsyncError(code, `${message} Nothing of branch ${name} was kept on this machine.`, {
        cause: error,
        hint: 'To see the cause, run {tillsync} doctor --only hub. Then run this command again.',
      });
    }
  },
});

interface Place {
  /** Configuration file of the branch. */
  file: string;
  directory: string;
  group: string | undefined;
  /** Deletes what was made for the branch. */
  clear(): void;
}

/**
 * Returns where the branch will be. Throws `usage` or `config-invalid` if it cannot be made on this machine, before
 * anything is changed.
 */
async function placeHere({ cli, options, argument: name }: AddCall, hub: Config): Promise<Place> {
  const refuse = (message: string, hint: string) =>
    new TillsyncError('usage', `${message} Nothing was changed.`, { hint });
  if (process.getuid?.() !== 0) {
    throw refuse('Only root can start a service.', `Run: ${sameCommandWithSudo()}`);
  }
  const file = path.join(path.dirname(DEFAULT_CONFIG_FILE), `${name}.toml`);
  const service = unitsOf(file);
  if (service === undefined || file === DEFAULT_CONFIG_FILE || !/^[\w-]+$/.test(name)) {
    throw refuse(`No service can be called tillsync@${name}.`, 'Give the branch another external_id.');
  }
  const { unit } = service;
  if (!(await isInstalled(service, cli.env))) {
    throw refuse(
      `systemd has no ${unit} on this machine.`,
      `Without it: {tillsync} branch invite ${name}, then {tillsync} init --join - with a --config FILE of its own`,
    );
  }
  if (await isActive(service, cli.env))
    throw refuse(`${unit} runs already.`, `To look at it: systemctl status ${unit}`);
  const directory = path.resolve(options.directory ?? `/var/lib/tillsync@${name}`);
  const isThere = existsSync(directory);
  const used = existsSync(file) ? file : isThere && readdirSync(directory).length > 0 ? directory : undefined;
  if (used !== undefined) {
    throw refuse(`${used} is there already.`, `To start that branch: sudo systemctl start tillsync@${name}`);
  }
  const group = options.group ?? (hub.storage.group || undefined);
  checkGroup(group ?? '');
  if (options.localListen !== undefined) {
    const { data, error } = listenList.safeParse(options.localListen);
    if (error)
      throw refuse(`--local-listen ${options.localListen} is no host:port.`, 'Such as 127.0.0.1:8790.');
    for (const address of data) await tryListener('local.listen', address, async () => false);
  }
  const { caFileBeside } = await import('./init/join.ts');
  return {
    file,
    directory,
    group,
    clear() {
      for (const made of [file, caFileBeside(file)]) rmSync(made, { force: true });
      const inside = isThere ? readdirSync(directory).map((each) => path.join(directory, each)) : [directory];
      for (const made of inside) rmSync(made, { recursive: true, force: true });
    },
  };
}

/** Throws `usage` if the branch has a machine already, or is closed. */
function refuseKnown(config: Config, rows: HubRows, name: string): void {
  const { branch, isClosed } = requireBranch(config, rows, name);
  if (!isClosed && !rows.hasJoined(branch)) return;
  const why = isClosed ? 'is closed' : 'works on another machine';
  throw new TillsyncError('usage', `Branch ${name} ${why}. Nothing was changed.`, {
    hint: isClosed
      ? `To open it again: {tillsync} branch invite ${name}`
      : `To move it to this machine, first revoke its key: {tillsync} branch revoke ${name}`,
  });
}

/** Takes the invitation back, or the key of the branch that has just joined. */
async function withdraw({ cli, argument: name }: AddCall, rows: HubRows, config: Config): Promise<void> {
  const { branch } = requireBranch(config, rows, name);
  await whenFree(cli.clock, () => rows.remove(branch));
  await tellServer(rows, config, cli.clock.nowMs());
}
