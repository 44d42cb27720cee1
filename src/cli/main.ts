#!/usr/bin/env node
import { commandOrigin } from '../app/installation.ts';
import { systemClock, systemRandom } from '../core/system-clock.ts';
import { EXIT } from './cli.ts';
import { runCli } from './program.ts';

/** Exit code if the command never ended, for example because the event loop became empty. */
const UNFINISHED_EXIT = 1;

/**
 * Time in milliseconds that open handles, such as a hanging call, may keep the process alive after its command ended.
 */
const LINGER_MS = 1000;

process.once('exit', killIfHanging);
const stop = new AbortController();
for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP'] as const) {
  process.on(signal, () => {
    // The first signal lets the command finish in an orderly way. A Ctrl-C after it ends the process at once.
    if (stop.signal.aborted && signal === 'SIGINT') process.exit(EXIT.interrupted);
    stop.abort();
  });
}
for (const stream of [process.stdout, process.stderr]) {
  // A reader such as `head` may close the pipe early, which is no error.
  stream.on('error', (error: NodeJS.ErrnoException) => {
    if (error.code === 'EPIPE') process.exit(0);
    throw error;
  });
}

// The promise is not awaited, so that the packaged program can be CommonJS, which starts in half the time.
process.exitCode = UNFINISHED_EXIT;
void runCli(process.argv.slice(2), {
  env: process.env,
  // Standard input is opened on first use, because few commands read it.
  get stdin() {
    return process.stdin;
  },
  stdout: process.stdout,
  stderr: process.stderr,
  get who() {
    return commandOrigin(process.env);
  },
  clock: systemClock,
  random: systemRandom,
  signal: stop.signal,
}).then((code) => {
  process.exitCode = code;
  setTimeout(() => process.exit(), LINGER_MS).unref();
});

/**
 * Kills this process if a call to the file system is open. Node waits for such a call before it ends, which may be for
 * ever if the call is to a network disk that is off.
 */
function killIfHanging(): void {
  const isHanging = process.getActiveResourcesInfo().some((name) => name.startsWith('FSReq'));
  if (isHanging) process.kill(process.pid, 'SIGKILL');
}
