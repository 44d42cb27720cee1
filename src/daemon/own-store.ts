import { AsyncLocalStorage } from 'node:async_hooks';
import { existsSync, renameSync } from 'node:fs';
import type { FastifyPluginAsync } from 'fastify';
import type { AccessOptions } from '../api/access.ts';
import { ChangeSignal } from '../api/api.ts';
import { localApi } from '../api/local-api.ts';
import { pageFiles, pageRoutes } from '../api/page-routes.ts';
import { programVersion } from '../app/installation.ts';
import { openServices, type Services, type ServicesOptions } from '../app/services.ts';
import { openState } from '../app/state.ts';
import { LEFT_STORE, leftStore, markRunning, storagePaths } from '../app/storage.ts';
import { OWN_STORE, ownStoreConfig } from '../config/config.ts';
import type { Config } from '../config/config-type.ts';
import { branchName, configuredNames } from '../config/roles.ts';
import { setOwnStoreCheck, whenFree } from '../core/errors.ts';
import type { Clock } from '../core/time.ts';
import { closeLeavingFiles, MIRROR_MODE } from '../db/mirror-connection.ts';
import { openDatabase, sqlOf } from '../db/sqlite.ts';
import { Counters } from '../health/counters.ts';
import { keepRoute } from '../link/assign.ts';
import { linkCursor } from '../link/branch-upload.ts';
import { branchRow } from '../link/hub-hello.ts';
import type { HubRows } from '../link/hub-state.ts';
import { OwnStoreLink } from '../link/own-store.ts';
import { beginOwnOrders } from '../orders/own-orders.ts';
import { alarmLoops } from './alarm-loop.ts';
import { ownBranch } from './feed-branches.ts';
import { branchLoops, settleRole } from './link-loops.ts';
import { type NamedLoop, outgoingLoops } from './outgoing.ts';

export interface OwnStoreOptions extends ServicesOptions {
  /** Services of the hub. */
  services: Services;
  access: AccessOptions;
}

/** The shop on the hub's machine: a branch in the hub's own process, whose mirror has only its own orders. */
export interface OwnStore {
  config: Config;
  services: Services;
  link: OwnStoreLink;
  /** Notified when the shop's mirror may have changed. */
  changes: ChangeSignal;
  /** The shop's local API and page, under the path `/store`. */
  plugin: FastifyPluginAsync;
  loops(): NamedLoop[];
  /** Runs a step of the shop. Messages that are made in it name commands with `--own-store`. */
  within<T>(step: () => T): T;
  close(): Promise<void>;
}

/** True while this process works for the shop. */
const shopSteps = new AsyncLocalStorage<boolean>();

/** Opens the shop on the hub's machine; returns undefined if there is none. Throws `storage-…`. */
export async function openOwnStore(options: OwnStoreOptions): Promise<OwnStore | undefined> {
  const config = ownStoreConfig(options.config);
  if (!config) return undefined;
  const { clock, random, log, onSecret, lookEveryMs, openInbox, holders, access } = options;
  const own: ServicesOptions = {
    config,
    clock,
    random,
    log,
    lookEveryMs,
    openInbox,
    onSecret,
    secrets: { webhookSecrets: [] },
    ...(holders && { holders }),
  };
  await takeNewName(options, config);
  const { branch: id = config.link.branch } = ownBranch(options.config, options.services.state.hub) ?? {};
  await takeDirectory(options, config.storage.directory, id);
  const services = await openServices(own);
  const { directory } = config.storage;
  const unmark = await markRunning({ leases: services.state.leases, directory, clock, log });
  const close = async () => {
    await unmark();
    await services.close();
  };
  try {
    await whenFree(clock, () => services.state.hub.joinOwnStore({ branch: id, name: id }, clock.nowMs()));
    await beginMirror(options, config, services, id);
    await settleRole(config, services);
  } catch (error) {
    await close();
    throw error;
  }
  const changes = new ChangeSignal();
  const link = new OwnStoreLink({
    branch: id,
    place: () => services.mirror.read(linkCursor),
    atHub: (step) => shopSteps.run(false, step),
    clock,
  });
  setOwnStoreCheck(() => shopSteps.getStore() === true);
  const within = <T>(step: () => T) => shopSteps.run(true, step);
  const api = localApi({ services, ...access, version: programVersion(), changes, clock, log });
  return {
    config,
    services,
    link,
    changes,
    close,
    within,
    plugin: async (app) => {
      app.addHook('onRequest', (_request, _reply, done) => within(done));
      await app.register(api, { prefix: `/${OWN_STORE}` });
      await app.register(pageRoutes(pageFiles, log), { prefix: `/${OWN_STORE}` });
    },
    loops() {
      const counters = new Counters();
      const outgoing = outgoingLoops(own, services, () => false, counters);
      const loops = [
        ...outgoing.filter(({ name }) => name === 'inbox' || name === 'retention'),
        ...branchLoops({ ...own, link: { branch: link } }, services, () => changes.notify()),
        // Only the health checks run for the shop, because the hub notifies people.
        ...alarmLoops(own, services, counters).filter(({ name }) => name === 'health-checks'),
      ];
      return loops.map(({ name, run }) => ({ name: `${OWN_STORE}.${name}`, run }));
    },
  };
}

/**
 * Takes over a new name of the shop from the configuration. This branch has no link key, so a rename changes only the
 * name.
 */
async function takeNewName(
  { config: { branches }, services, log }: OwnStoreOptions,
  own: Config,
): Promise<void> {
  const { state, stores } = services;
  const configured = configuredNames(branches);
  const named = configured.find(({ name }) => name === own.link.branch);
  const before = named && state.hub.formerOwnStore(named, configured);
  if (!named || !before) return;
  state.hub.rename(before.branch, named.name);
  await stores.write(({ db, audit }) => {
    keepRoute(db, before.name, before.branch);
    const auditEvent = {
      who: 'tillsync',
      action: 'branch.rename',
      subject: `branch ${before.name}`,
    } as const;
    audit.note({ ...auditEvent, detail: `now ${named.name}` });
  });
  log.info({ before: before.name, now: named.name }, 'the shop in which the hub stands has another name');
}

/**
 * Moves away the files of another shop that was on the hub's machine before, and restores this shop's earlier files.
 * Otherwise this shop's POS would read the other shop's orders and customers.
 */
async function takeDirectory(
  { services: { state, stores }, clock, log }: OwnStoreOptions,
  directory: string,
  id: string,
): Promise<void> {
  const of = await shopOf(directory, state.hub, clock);
  const aside = (shop: string) => `${directory}-${shop}`;
  if (of !== undefined && of !== id) {
    let to = aside(of);
    for (let n = 2; existsSync(to); n++) to = `${aside(of)}-${n}`;
    renameSync(directory, to);
    await stores.write(({ audit }) =>
      audit.note({ who: 'tillsync', action: 'store.aside', subject: `branch ${of}`, detail: to }),
    );
    log.warn({ directory: to }, 'the hub stands in another shop now; the files of the one before are aside');
  }
  if (!existsSync(directory) && existsSync(aside(id))) renameSync(aside(id), directory);
}

/**
 * Returns the branch that owns the files in `directory`: the branch that the state.db there names, else the one that
 * the hub recorded when it last started.
 */
async function shopOf(directory: string, hub: HubRows, clock: Clock): Promise<string | undefined> {
  const { state: path } = storagePaths(directory);
  if (!existsSync(path)) return undefined;
  const state = await whenFree(clock, () => openState({ path, clock }));
  try {
    return state.hub.ownStore() ?? hub.ownStore();
  } finally {
    state.close();
  }
}

/**
 * Marks the mirror of a shop that is no longer on the hub's machine, so that its readers see that no orders arrive and
 * its inbox is not read. The files are kept, because a person may need unread changes in them.
 */
export function markLeftStore({ config, log }: Pick<ServicesOptions, 'config' | 'log'>): void {
  const directory = leftStore(config);
  if (directory === undefined) return;
  log.warn({ directory }, LEFT_STORE);
  const tell = `INSERT INTO freshness (subject, state, message) VALUES (@subject, 'failing', @message)
    ON CONFLICT (subject) DO UPDATE SET state = excluded.state, message = excluded.message`;
  try {
    const path = storagePaths(directory).mirror;
    const db = openDatabase({ path, mode: MIRROR_MODE, busyTimeoutMs: 100 });
    try {
      for (const subject of ['hub.link', 'orders.poll', 'catalog.sweep']) {
        sqlOf(db).run(tell, { subject, message: LEFT_STORE });
      }
    } finally {
      closeLeavingFiles(db, { path, readonly: false });
    }
  } catch (error) {
    log.warn(
      { err: error, directory },
      'the mirror of that shop could not be marked; it is tried at the next start',
    );
  }
}

/**
 * Fills the shop's new mirror, so that a POS that read the mirror of all shops can continue. Does nothing if another
 * machine was the branch before.
 */
async function beginMirror(
  { config, services: hub }: OwnStoreOptions,
  own: Config,
  services: Services,
  id: string,
): Promise<void> {
  const { branch } = own.link;
  if ((hub.mirror.read((db) => branchRow(db, id))?.leasedSeq ?? 0) > 0) return;
  const { externalId, subsidiaryId } = config.branches.find((each) => branchName(each) === branch) ?? {};
  await beginOwnOrders(services.mirror, {
    from: storagePaths(config.storage.directory).mirror,
    stores: [externalId, subsidiaryId].filter((id) => id !== undefined),
    hooks: own.hooks.map(({ name }) => name),
  });
}
