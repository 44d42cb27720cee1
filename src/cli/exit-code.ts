import type { ErrorCode } from '../domain/errors.ts';

/** What a script learns from the exit code of every command. */
export const EXIT = {
  done: 0,
  failed: 1,
  /** Wrong usage or configuration. */
  usage: 2,
  /** Done in part: some items were rejected. */
  partial: 3,
  /** The platform asks for new tokens. */
  authRequired: 4,
  /** Ended at a person's Ctrl-C, as shells have it. */
  interrupted: 130,
} as const;
export type ExitCode = (typeof EXIT)[keyof typeof EXIT];

/** The exit code of a command that ended with an error of this code. */
export function exitCodeOf(code: ErrorCode): ExitCode {
  switch (code) {
    case 'usage':
    case 'config-invalid':
      return EXIT.usage;
    case 'aborted':
      return EXIT.interrupted;
    case 'auth-required':
      return EXIT.authRequired;
    default:
      return EXIT.failed;
  }
}
