import { flushCompileCache } from 'node:module';
import type { Command } from 'commander';
import { type Cli, EXIT, type GlobalOptions, newCommand } from './cli.ts';

/** What is in flight has this long to end; then the process ends all the same. */
const STOP_WITHIN_MS = 10_000;

/** `run`: the daemon, in the foreground. */
export function runCommand(cli: Cli): Command {
  return newCommand('run', 'Run tillsync in the foreground until it is asked to end', [
    'run',
    'run --config /etc/tillsync/second-shop.toml',
  ]).action((_options, command: Command) => run(cli, command.optsWithGlobals()));
}

async function run(cli: Cli, options: GlobalOptions): Promise<void> {
  const { secretValues } = await import('../config/secrets.ts');
  const { loadSetup } = await import('../config/config.ts');
  const { configPath } = await import('../config/source.ts');
  const { becomeStorageUser } = await import('../app/installation.ts');
  const { createLogger, isJournal } = await import('../core/logger.ts');
  const { startDaemon } = await import('../daemon/daemon.ts');
  const { inheritedSocket } = await import('../daemon/service.ts');
  const { serviceManager } = await import('../daemon/service.ts');
  const { watchdogLoop } = await import('../daemon/service.ts');
  const { clock, random, signal } = cli;
  const { config, secrets } = loadSetup({ file: options.config, env: cli.env });
  const configFile = configPath(options.config, cli.env);
  becomeStorageUser({ directory: config.storage.directory, configFile, writes: true });
  const { log, registerSecret } = createLogger({
    ...config.log,
    stream: cli.stdout,
    toJournal: isJournal(process.stdout.fd, cli.env),
    clock,
    secrets: secretValues(secrets),
  });
  const manager = serviceManager({ env: cli.env, pid: process.pid });
  const callbackSocketFd = inheritedSocket(cli.env, process.pid);
  const daemon = await startDaemon({
    config,
    secrets,
    clock,
    random,
    log,
    onSecret: registerSecret,
    callbackSocketFd,
  });
  manager.tell({ READY: '1', STATUS: `Running; status at ${daemon.localUrl}` });
  void watchdogLoop({ manager, stalledLoops: daemon.stalledLoops, clock, log, signal });
  // A process that is killed leaves no cache behind by itself; without one this does nothing.
  flushCompileCache();
  if (!signal.aborted) {
    await new Promise<void>((resolve) => signal.addEventListener('abort', () => resolve(), { once: true }));
  }
  manager.tell({ STOPPING: '1', STATUS: 'Finishing what is in flight' });
  log.info({}, 'asked to end; finishing what is in flight');
  const waited = new AbortController();
  const stopped = daemon.stop().then(() => true);
  const late = clock.sleep(STOP_WITHIN_MS, waited.signal).then(() => false);
  if (await Promise.race([stopped, late])) {
    log.info({}, 'tillsync has ended');
  } else {
    log.error({}, 'not everything came to its end in time; what was acknowledged is on the disk');
    cli.endWith(EXIT.failed);
  }
  waited.abort();
}
