import { existsSync } from 'node:fs';
import path from 'node:path';
import { actAsStorageUser } from '../app/installation.ts';
import { loadConfig } from '../config/config.ts';
import { configuredNames, isHub } from '../config/roles.ts';
import { configPath, isSetUp } from '../config/source.ts';
import { formatCommands, TillsyncError } from '../core/errors.ts';
import { whenFree } from '../core/loop.ts';
import type { HubRows, NamedBranch, ServerConfigPlace } from '../link/hub-state.ts';
import { EXIT } from './cli.ts';
import { type Call, type CommandTools, command, group, withServices } from './command.ts';
import { isInstalled, restartHub, unitsOf } from './init/machine.ts';

/** Throws `config-invalid` if this is not a hub. */
function requireHub(config: CommandTools['config']): void {
  if (isHub(config)) return;
  throw new TillsyncError('config-invalid', 'This tillsync is no hub: hub.nats is empty.', {
    hint: 'Set nats in [hub] of the configuration, such as nats = "nats://127.0.0.1:4222".',
  });
}

/** Returns the branch with the given name. Throws `not-found` if it is not configured. */
export function requireBranch(config: CommandTools['config'], rows: HubRows, name: string): NamedBranch {
  const known = rows.named(configuredNames(config.branches));
  const found = known.find((each) => each.name === name);
  if (found) return found;
  // A person may type the branch's first name, because its invitation and its machine keep using that name.
  const renamed = known.find((each) => each.branch === name);
  const hint = renamed && `It is called ${renamed.name} now.`;
  throw new TillsyncError('not-found', `There is no branch ${name} in the configuration.`, {
    hint: hint ?? `Branches: ${known.map((each) => each.name).join(', ')}.`,
  });
}

const serverConfigCommand = command({
  description: "Write the configuration of the hub's nats-server",
  examples: [
    'hub server-config',
    'hub server-config --tls-cert /etc/tillsync/hub.pem --tls-key /etc/tillsync/hub.key',
  ],
  argument: [
    '[file]',
    'File to write (default: as last time, at first nats/server.conf in the storage directory)',
  ],
  options: {
    '--tls-cert <file>': 'PEM file of the certificate, for branches on other machines',
    '--tls-key <file>': 'PEM file of its key',
    '--tls-ca <file>': 'PEM file of its authority, if machines do not trust it yet',
    '--no-start': "Don't restart tillsync-nats and tillsync",
  },
  more: '\nThe package tillsync-hub runs the server as tillsync-nats.service and restarts it with tillsync. Without the package,\nrun: nats-server -c FILE. The server stores its data encrypted, in jetstream/ next to the file.',
  run: (call) => {
    // Paths become absolute, because the daemon uses them in another working directory.
    const absolute = (file: string) => path.resolve(file);
    const { tlsCert, tlsKey, tlsCa } = call.options;
    const starting = serviceToStart(call);
    return withHub(call, async ({ services, config }) => {
      if ((tlsCert === undefined) !== (tlsKey === undefined)) {
        throw new TillsyncError('usage', '--tls-cert and --tls-key belong together.');
      }
      const before = services.state.hub.serverConfig();
      const usual = path.join(config.storage.directory, 'nats/server.conf');
      const file = call.argument === undefined ? (before?.file ?? usual) : absolute(call.argument);
      const tls =
        tlsCert === undefined || tlsKey === undefined
          ? (before?.tls ?? null)
          : {
              certFile: absolute(tlsCert),
              keyFile: absolute(tlsKey),
              caFile: tlsCa === undefined ? null : absolute(tlsCa),
            };
      if (/^tls:/i.test(config.hub.publicUrl) && tls === null) {
        throw new TillsyncError(
          'usage',
          'hub.public_url begins with tls://, so the server needs a certificate.',
          {
            hint: 'Give it with --tls-cert FILE --tls-key FILE, and --tls-ca FILE for an authority of your own.',
          },
        );
      }
      const { hubKeys, isOfUnit, isUnitInstalled, SERVER_UNIT, START_SERVER, UNIT_FILE, writeServerFile } =
        await import('../link/server-file.ts');
      if (tls !== null) {
        const { lookAtCertificate, readPem } = await import('../link/server-look.ts');
        if (tls.caFile !== null) readPem(tls.caFile);
        const { publicUrl } = config.hub;
        const { fault } = lookAtCertificate(tls, publicUrl, call.cli.clock.nowMs());
        if (fault !== null) throw new TillsyncError('usage', fault);
      }
      await hubKeys(services.state.hub);
      const place: ServerConfigPlace = {
        file,
        storeDirectory: path.join(path.dirname(file), 'jetstream'),
        tls,
      };
      await whenFree(call.cli.clock, () => services.state.hub.noteServerConfig(place));
      const written = await writeServerFile(services.state.hub, config.hub, call.cli.clock.nowMs());
      const changed = written?.changed ?? false;
      const start = `nats-server -c ${file}`;
      const service = isOfUnit(file) ? starting : undefined;
      const isStarted = service !== undefined && (await isInstalled(service, call.cli.env));
      const fault = isStarted ? await restartHub(service, SERVER_UNIT, call.cli.env) : undefined;
      const typed = isOfUnit(file) ? `${START_SERVER}\n  {restart}` : start;
      const elsewhere =
        isUnitInstalled() && !isOfUnit(file) && !existsSync(UNIT_FILE)
          ? `tillsync-nats reads another file. To have it start this server:\n  {tillsync} hub server-config ${UNIT_FILE}\n`
          : '';
      const is = `${file} ${changed ? 'is written' : 'is as it has to be'}.`;
      const told = isStarted
        ? `${is} ${fault ?? 'tillsync-nats and tillsync were restarted with it.'}\n`
        : `${is} Start the server with:\n  ${typed}\n${elsewhere}`;
      return {
        json: { file, changed, start, started: isStarted && fault === undefined, tls: tls !== null },
        text: formatCommands(told),
        exit: fault === undefined ? EXIT.done : EXIT.failed,
      };
    });
  },
});

/**
 * Returns the services that root restarts with the server's new configuration; undefined if this process restarts none.
 * Root then only acts as the owner of the storage directory, so that it can restart them.
 */
function serviceToStart({ cli, options }: Call<{ start: boolean }>): ReturnType<typeof unitsOf> {
  if (!options.start || process.getuid?.() !== 0) return undefined;
  const configFile = configPath(options.config, cli.env);
  const config = loadConfig({ file: options.config, env: cli.env });
  const service = unitsOf(configFile);
  if (service === undefined || !isSetUp(config)) return undefined;
  actAsStorageUser({ directory: config.storage.directory, configFile, writes: true });
  return service;
}

/** Does the same as `withServices`, but throws `config-invalid` if this is not a hub. */
export async function withHub<T>(call: Call, use: (tools: CommandTools) => Promise<T>): Promise<T> {
  return withServices(call, async (tools) => {
    requireHub(tools.config);
    return use(tools);
  });
}

export const hub = group("Configure the hub's nats-server", {
  'server-config': serverConfigCommand,
});
