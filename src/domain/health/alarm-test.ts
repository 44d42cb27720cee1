/** What became of a test message. */
export interface AlarmTestResult {
  receiver: 'command' | 'url';
  description: string;
  ok: boolean;
  /** Why it did not arrive; empty when it did. */
  message: string;
}

/** That the running daemon is to send a test message, since alarms come from it and from nobody else. */
export interface AlarmTestWish {
  /** Wall clock of whoever asks. */
  askedAtMs: number;
  /** null until the daemon has done it. */
  results: AlarmTestResult[] | null;
  /** Why it could not be tried; null: it was, or is not yet. */
  fault: string | null;
}

/** The newest wish, shared between the processes of one company. */
export interface AlarmTestWishes {
  read(): AlarmTestWish | undefined;
  write(wish: AlarmTestWish): void;
}
