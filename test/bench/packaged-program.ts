import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import path from 'node:path';
import type { Readable } from 'node:stream';
import { bundle } from '../../config/package/bundle.ts';

const ROOT = path.join(import.meta.dirname, '../..');
const LAUNCHER = readFileSync(path.join(ROOT, 'config/package/debian/launcher'), 'utf8');

/** The program as it runs from a checkout. */
export const CHECKOUT: Program = { args: [path.join(ROOT, 'src/cli/main.ts')], environment: {} };

/** Source of the smallest HTTP server of Node. */
export const BARE_SERVER =
  'require("node:http").createServer((_, r) => r.end("ok")).listen(0, () => console.log("up"))';

/** Arguments and environment with which Node is started. */
export interface Program {
  args: string[];
  environment: Record<string, string>;
}

/** Bundles the program as in the package, with the installed launcher's flags for Node. */
export async function packagedProgram(directory: string): Promise<Program> {
  await bundle({ root: ROOT, directory });
  const flags = LAUNCHER.match(/(?<=\s)--[a-z0-9-]+(=\d+)?(?=\s)/g) ?? [];
  const environment: Record<string, string> = {};
  for (const [, name = '', value = ''] of LAUNCHER.matchAll(/^export (\w+)=(\S+)$/gm)) {
    environment[name] = value;
  }
  return { args: [...flags, path.join(directory, 'start.cjs')], environment };
}

/** A Node process whose output is read. */
export type Child = ChildProcess & { stdout: Readable };

/**
 * Returns this process's environment without the test runner's settings (TILLSYNC_SEED), which are not part of a
 * configuration.
 */
export function inherited(): NodeJS.ProcessEnv {
  return Object.fromEntries(Object.entries(process.env).filter(([name]) => !name.startsWith('TILLSYNC_')));
}

export function startNode(args: string[], environment: Record<string, string> = {}): Child {
  return spawn(process.execPath, args, {
    stdio: ['ignore', 'pipe', 'inherit'],
    env: { ...inherited(), ...environment },
  });
}

/** Returns the program's output so far, once it matches `pattern`. */
export async function outputOf(child: Child, pattern: RegExp): Promise<string> {
  let text = '';
  while (!pattern.test(text)) {
    const ended = once(child, 'exit').then(() => null);
    const chunk = await Promise.race([once(child.stdout, 'data').then(([data]) => String(data)), ended]);
    if (chunk === null) throw new Error(`${child.spawnargs.join(' ')} ended before it was up: ${text}`);
    text += chunk;
  }
  child.stdout.resume();
  return text;
}

export async function stopChild(child: Child): Promise<void> {
  if (child.exitCode !== null || child.signalCode !== null) return;
  child.kill('SIGTERM');
  await once(child, 'exit');
}

export function residentMib(child: Child): number {
  return Number(/VmRSS:\s+(\d+) kB/.exec(readFileSync(`/proc/${child.pid}/status`, 'utf8'))?.[1]) / 1024;
}
