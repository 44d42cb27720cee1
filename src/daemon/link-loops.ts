import { programVersion } from '../app/installation.ts';
import { areOrdersStale, ordersStaleAfterMs, verdictOn } from '../app/read-only-services.ts';
import type { Services, ServicesOptions } from '../app/services.ts';
import { storageSpace } from '../app/storage.ts';
import type { Config } from '../config/config-type.ts';
import { isBranch, isHub } from '../config/roles.ts';
import type { AlarmKey } from '../core/alarm.ts';
import { hasCode, TillsyncError } from '../core/errors.ts';
import type { BranchLink, HubLink } from '../link/link.ts';
import { endFeeding, isFeeding } from '../orders/merging/branch-feed.ts';
import { compileSpellings } from '../orders/merging/field-aliases.ts';
import type { Mirror } from '../orders/reading/mirror.ts';
import { feedBranches } from './feed-branches.ts';
import type { NamedLoop } from './outgoing.ts';
import { supportAnswers } from './support-answers.ts';

export interface LinkOptions {
  /** Links that replace nats-server, for tests of hub and branches in one process. */
  link?: { hub?: HubLink; branch?: BranchLink };
  /** Path of the configuration file. Without it, a branch does not answer questions of the hub. */
  configFile?: string;
}

type Options = ServicesOptions & LinkOptions;

const SERVER_LOOK_EVERY_MS = 1_000;
const SERVER_AGAIN_AFTER_MS = 5_000;
/** Interval at which the nats-server is asked which silent branches it refused because of their link key. */
const REFUSED_EVERY_MS = 30_000;

/**
 * Cleans up after a change of role: a store that is no longer a hub or a branch ends its feeds, and the alarms about
 * branches and link.
 */
export async function settleRole(config: Config, { mirror }: Pick<Services, 'mirror'>): Promise<void> {
  if (isHub(config)) return;
  if (mirror.read(isFeeding)) await mirror.write(endFeeding);
  for (const key of OF_A_HUB) mirror.health.note(key, null);
  if (isBranch(config)) return settleBranch(mirror);
  if (!mirror.health.freshness().some(({ subject }) => subject === 'hub.link')) return;
  await mirror.write((db) => db.exec("DELETE FROM freshness WHERE subject = 'hub.link'"));
}

const OF_A_HUB: readonly AlarmKey[] = [
  'hub.unassigned',
  'hub.unapplied',
  'hub.certificate',
  'hub.server',
  'hub.misuse',
  'hub.branches',
];

const OF_THE_PLATFORM: readonly AlarmKey[] = [
  ...(['auth.none', 'auth.other-company', 'platform.forbidden'] as const),
  ...(['orders.unreadable', 'orders.more-pages', 'orders.lists', 'orders.unlisted'] as const),
  ...(['webhook.refused', 'webhook.unreadable', 'webhook.mismatch', 'webhook.active-field'] as const),
];

/** Ends alarms and flows about the platform, which no part of a branch would end. */
async function settleBranch(mirror: Mirror): Promise<void> {
  for (const key of OF_THE_PLATFORM) mirror.health.note(key, null);
  if (!mirror.health.freshness().some(({ subject }) => subject === 'auth')) return;
  await mirror.write((db) => db.exec("DELETE FROM freshness WHERE subject = 'auth'"));
}

/** Returns the hub's loops; returns none if this is no hub. The hub's code is loaded only at a hub. */
export function hubLoops(options: Options, services: Services): NamedLoop[] {
  const { config, clock, log } = options;
  const { mirror, stores, state, outbox } = services;
  if (!isHub(config)) return [];
  const run: NamedLoop['run'] = async (signal, beat) => {
    const { Hub } = await import('../link/hub.ts');
    const link = options.link?.hub ?? (await natsHubLink(config, services));
    const hub = new Hub({
      link,
      mirror,
      stores,
      clock,
      log,
      branches: () => feedBranches(config, state.hub),
      rows: state.hub,
      guards: config.guard,
      holdBack: config.stock.holdBackUnbooked,
      ordersStaleAfterMs: () => ordersStaleAfterMs(config, mirror),
      areOrdersStale: () => areOrdersStale(mirror, { config, clock }),
      onQueued: () => outbox.queued(),
    });
    try {
      await hub.begin();
      await hub.run(signal, beat);
    } finally {
      await link.close();
    }
  };
  const server: NamedLoop['run'] = async (signal, beat) => {
    const { ServerKeeper } = await import('../link/server-file.ts');
    const keeper = new ServerKeeper(state.hub, config.hub);
    let isTold = false;
    let refusedMs = clock.monotonicMs() + REFUSED_EVERY_MS;
    const told = (fault: TillsyncError | undefined) =>
      mirror.health.note('hub.server', fault ? [fault.message, fault.hint].filter(Boolean).join(' ') : null);
    while (!signal.aborted) {
      beat();
      try {
        if (clock.monotonicMs() >= refusedMs) {
          refusedMs = clock.monotonicMs() + REFUSED_EVERY_MS;
          await keeper.noteRefused(clock.nowMs());
        }
        await keeper.look(clock.nowMs(), (found) => {
          mirror.health.note('hub.certificate', found?.message ?? null, found?.level);
        });
        isTold = false;
        told(undefined);
        await clock.sleep(SERVER_LOOK_EVERY_MS, signal);
      } catch (error) {
        if (hasCode(error, 'config-invalid')) told(error);
        if (!isTold)
          log.warn({ err: error }, 'the nats-server does not know all branches yet; it is told again');
        isTold = true;
        await clock.sleep(SERVER_AGAIN_AFTER_MS, signal);
      }
    }
  };
  return [{ name: 'hub', run }, ...(options.link?.hub ? [] : [{ name: 'hub.server', run: server }])];
}

/** Waits for the link. If it cannot be made, the link is reported as down. */
async function reportingLinkDown<T>({ mirror }: Services, made: Promise<T>): Promise<T> {
  try {
    return await made;
  } catch (error) {
    const { reportLinkDown } = await import('../link/link-freshness.ts');
    reportLinkDown(mirror, error);
    throw error;
  }
}

/** Makes the hub's link. Its files are read at each connect, so a file that a person mends counts without a restart. */
async function natsHubLink(config: Config, { state }: Services): Promise<HubLink> {
  const { NatsHubLink } = await import('../link/nats.ts');
  const { ownAccess } = await import('../link/server-file.ts');
  return new NatsHubLink(() => ownAccess(state.hub, config.hub, '@hub'));
}

/** Returns a branch's loops, which replace all loops that call the platform. */
export function branchLoops(options: Options, services: Services, onOrders: () => void): NamedLoop[] {
  const { config, secrets, clock, log } = options;
  const { mirror, stores, state, outbox, platform } = services;
  const asked = new AbortController();
  const make = async () => {
    const { BranchFollower } = await import('../link/branch.ts');
    const link =
      options.link?.branch ?? (await natsBranchLink(config, secrets.linkSeed ?? state.linkKey.read()));
    const version = programVersion();
    if (options.configFile !== undefined) {
      link.answer(supportAnswers({ config, configFile: options.configFile, signal: asked.signal }));
    }
    const outboxKeptMs = config.retention.outboxMs;
    const spellings = compileSpellings(config.orders.fields, config.orders.timezone, config.orders.statuses);
    return {
      link,
      follower: new BranchFollower({
        link,
        mirror,
        stores,
        version,
        verdict: () =>
          verdictOn(mirror, options, {
            alarms: mirror.health.raised(),
            tokens: null,
            outbox: outbox.counts(),
            disk: storageSpace(config.storage.directory),
          }),
        spellings,
        outboxKeptMs,
        onOrders,
        onHubClock: (nowMs) => platform.clock.observe(nowMs),
        clock,
        log,
      }),
    };
  };
  let making: ReturnType<typeof make> | undefined;
  /**
   * Makes one link that all loops share. If that failed, the next start of a loop tries again, with the link key and
   * the certificate files as they are then.
   */
  const made = () => {
    making ??= reportingLinkDown(services, make()).catch((error: unknown) => {
      making = undefined;
      throw error;
    });
    return making;
  };
  return [
    {
      name: 'link.receive',
      async run(signal, beat) {
        const { follower } = await made();
        await follower.follow(signal, beat);
      },
    },
    {
      name: 'link.send',
      async run(signal, beat) {
        const { link, follower } = await made();
        const unsubscribe = outbox.onQueued(() => follower.wake());
        try {
          await follower.upload(signal, beat);
        } finally {
          unsubscribe();
          // After an error this loop is started again, with the same link and follower.
          if (signal.aborted) {
            asked.abort();
            await follower.sayLast().finally(() => link.close());
          }
        }
      },
    },
  ];
}

/** Makes the link of a branch, whose private key is `seed`. Throws `config-invalid` without a key. */
async function natsBranchLink(
  { link: { hub, otherHubs, branch, caFile } }: Pick<Config, 'link'>,
  seed: string | undefined,
): Promise<BranchLink> {
  if (seed === undefined) {
    throw new TillsyncError('config-invalid', 'This branch has no key by which the hub knows it.', {
      hint: 'Join the hub: {tillsync} init --join INVITATION',
    });
  }
  const { NatsBranchLink } = await import('../link/nats.ts');
  const { readPem } = await import('../link/server-look.ts');
  const { Ways } = await import('../link/ways.ts');
  const tls = { ca: caFile === '' ? null : readPem(caFile), serverName: null };
  return new NatsBranchLink({ url: hub, branch, seed, tls, ways: new Ways([hub, ...otherHubs]) });
}
