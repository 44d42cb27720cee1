import { flushCompileCache } from 'node:module';
import { loadSetup } from '../config/config.ts';
import { secretValues } from '../config/secrets.ts';
import { configPath } from '../config/source.ts';
import { inheritedSocket, serviceManager, watchdogLoop } from '../daemon/service.ts';
import { aborted, EXIT } from './cli.ts';
import { becomeOwner, command, sourceOf } from './command.ts';

/**
 * Time after a stop in which running work may end. It is shorter than `TimeoutStopSec` of the unit. It is longer than
 * the wait for an answer with new tokens, because a lost token pair locks the store out.
 */
const STOP_WITHIN_MS = 28_000;

/** Longest wait for the first inbox. An inbox that cannot be made is an alarm, and orders come in without it. */
const INBOX_WITHIN_MS = 20_000;
const INBOX_LOOK_MS = 20;

export const run = command({
  description: 'Run in the foreground (used by the service)',
  examples: ['run', 'run --config /etc/tillsync/second-shop.toml'],
  json: false,
  async run(call) {
    const { createLogger, isJournal } = await import('../core/logger.ts');
    const { startDaemon } = await import('../daemon/daemon.ts');
    const { clock, random, signal, env, stdout } = call.cli;
    const { config, secrets } = loadSetup(sourceOf(call));
    becomeOwner(call, config, true);
    const { log, registerSecret } = createLogger({
      ...config.log,
      pretty: 'auto',
      stream: stdout,
      toJournal: isJournal(process.stdout.fd, env),
      clock,
      secrets: [
        ...secretValues(secrets),
        ...(config.alarms.heartbeatUrl ? [config.alarms.heartbeatUrl] : []),
      ],
    });
    const manager = serviceManager({ env, pid: process.pid });
    const callbackSocketFd = inheritedSocket(env, process.pid);
    const daemon = await startDaemon({
      config,
      secrets,
      clock,
      random,
      log,
      callbackSocketFd,
      configFile: configPath(call.options.config, env),
      onSecret: registerSecret,
    });
    const endMs = clock.monotonicMs() + INBOX_WITHIN_MS;
    while (!daemon.hasInbox() && clock.monotonicMs() < endMs && !signal.aborted) {
      await clock.sleep(INBOX_LOOK_MS, signal);
    }
    manager.tell({ READY: '1', STATUS: `Running; status at ${daemon.localUrl}` });
    void watchdogLoop({ manager, stalledLoops: daemon.stalledLoops, clock, log, signal });
    // A killed process does not write its compile cache, so it is written now. Does nothing if there is no cache.
    flushCompileCache();
    await aborted(signal);
    manager.tell({ STOPPING: '1', STATUS: 'Finishing what is in flight' });
    log.info({}, 'asked to end; finishing what is in flight');
    const waited = new AbortController();
    const stopped = daemon.stop().then(() => true);
    const late = clock.sleep(STOP_WITHIN_MS, waited.signal).then(() => false);
    const isStopped = await Promise.race([stopped, late]);
    waited.abort();
    if (isStopped) log.info({}, 'tillsync has ended');
    else log.error({}, 'not everything came to its end in time; what was acknowledged is on the disk');
    return { exit: isStopped ? EXIT.done : EXIT.failed };
  },
});
