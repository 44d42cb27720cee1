/** What the parts log to; pino satisfies it. Fields first, then one sentence for a person. */
export interface Log {
  debug(fields: object, message: string): void;
  info(fields: object, message: string): void;
  warn(fields: object, message: string): void;
  error(fields: object, message: string): void;
}

/** For tests and tools that need no log. */
export const silentLog: Log = { debug() {}, info() {}, warn() {}, error() {} };
