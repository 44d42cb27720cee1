import type { Environment } from '../config/config-source.ts';
import type { Clock, Random } from '../domain/time/clock.ts';
import type { ExitCode } from './exit-code.ts';

/** Where a command writes; process.stdout and process.stderr fit. */
export interface TextSink {
  write(text: string | Uint8Array): unknown;
  readonly isTTY?: boolean | undefined;
  readonly columns?: number | undefined;
}

/** Everything of the process that a command may use, so that no command touches the process itself. */
export interface Cli {
  readonly env: Environment;
  readonly stdin: AsyncIterable<string | Uint8Array> & { readonly isTTY?: boolean | undefined };
  /** Results: a table for people, or exactly one JSON document. */
  readonly stdout: TextSink;
  /** Progress, advice and faults, for people. */
  readonly stderr: TextSink;
  readonly clock: Clock;
  readonly random: Random;
  /** Aborts when the person or the system asks the process to end. */
  readonly signal: AbortSignal;
  /** How the process ends unless an error says otherwise. */
  endWith(code: ExitCode): void;
}
