import { spawn } from 'node:child_process';
import path from 'node:path';

const MAIN = path.resolve(import.meta.dirname, '../../src/cli/main.ts');

export interface ProcessResult {
  code: number | null;
  stdout: string;
  stderr: string;
}

export interface ProcessOptions {
  env?: Record<string, string>;
  /** Standard input; nothing unless given. */
  input?: string;
  /** Sends the signal once standard output and error together contain the text. */
  signalWhen?: { text: string; signal: NodeJS.Signals };
}

/** Runs the real command line in its own process, without the tests' environment. */
export function tillsync(words: readonly string[], options: ProcessOptions = {}): Promise<ProcessResult> {
  const child = spawn(process.execPath, [MAIN, ...words], {
    env: {
      PATH: process.env.PATH ?? '',
      TZ: 'UTC',
      NODE_COMPILE_CACHE: process.env.NODE_COMPILE_CACHE ?? '',
      ...options.env,
    },
    stdio: ['pipe', 'pipe', 'pipe'],
  });
  let stdout = '';
  let stderr = '';
  let signalled = false;
  const look = () => {
    const { signalWhen } = options;
    if (signalWhen === undefined || signalled || !(stdout + stderr).includes(signalWhen.text)) return;
    signalled = true;
    child.kill(signalWhen.signal);
  };
  child.stdout.setEncoding('utf8').on('data', (text: string) => {
    stdout += text;
    look();
  });
  child.stderr.setEncoding('utf8').on('data', (text: string) => {
    stderr += text;
    look();
  });
  child.stdin.on('error', () => {});
  child.stdin.end(options.input ?? '');
  return new Promise((resolve, reject) => {
    child.on('error', reject);
    child.on('close', (code) => resolve({ code, stdout, stderr }));
  });
}
